// Whom PostgreSQL runs as. It refuses root, so root hands it to another user of the machine; anybody else
// runs it as themselves. Called by the launcher's parts only.
import { execFile, spawnSync } from 'node:child_process';
import { chmod, chown, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { AppError } from '../errors.js';

const run = promisify(execFile);

export interface OsUser {
  readonly uid: number;
  readonly gid: number;
}

/** The environment of every process we start: nothing of ours (PGDATA, LC_…) may change what it does. */
export const CLEAN_ENVIRONMENT = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C' } as const;

const CANDIDATES = ['postgres', 'nobody'] as const;

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

async function lookUp(name: string): Promise<OsUser | null> {
  try {
    const [uid, gid] = await Promise.all(['-u', '-g'].map((flag) => run('id', [flag, name])));
    return { uid: Number(uid?.stdout) >>> 0, gid: Number(gid?.stdout) >>> 0 };
  } catch {
    return null;
  }
}

/** A user that root can hand PostgreSQL to. */
export async function findUnprivilegedUser(): Promise<OsUser> {
  for (const name of CANDIDATES) {
    const user = await lookUp(name);
    if (user !== null) return user;
  }
  throw new AppError(
    'UNAVAILABLE',
    `PostgreSQL does not run as root, and this machine has no user ${CANDIDATES.join(' or ')} to run it as: ` +
      'start as another user, or set DATABASE_URL to a PostgreSQL of your own.',
  );
}

/** True if `user` can reach what is inside `directory`. Asks the system, since modes are not all there is. */
export function canEnter(directory: string, user: OsUser | null): boolean {
  const probe = spawnSync('/bin/sh', ['-c', 'cd -- "$1"', 'sh', directory], {
    ...user,
    cwd: '/',
    env: CLEAN_ENVIRONMENT,
    stdio: 'ignore',
  });
  return probe.status === 0;
}

/** Makes `user` the owner of a whole tree that nobody else may enter. */
export async function giveTo(user: OsUser, directory: string): Promise<void> {
  await chown(directory, user.uid, user.gid);
  await chmod(directory, 0o700);
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) await giveTo(user, path);
    else if (!entry.isSymbolicLink()) await chown(path, user.uid, user.gid);
  }
}
