// Where the embedded PostgreSQL keeps its things:
//   server.lock          which server has the directory
//   pgdata/              the database cluster, 0700, owned by whoever PostgreSQL runs as
//   password             of the superuser, 0600, same owner
//   postgres.log         of this start; the one before is postgres.log.1
//   moved-to             link to where the above are, if the directory cannot be entered by that user
// Called by the launcher, which holds the lock.
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  readlink,
  realpath,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { AppError } from '../errors.js';
import { canEnter, findUnprivilegedUser, giveTo, isRoot, type OsUser } from './os-user.js';

export interface LaunchLog {
  info(message: string): void;
  warn(message: string): void;
}

export interface DataHome {
  readonly directory: string;
  readonly pgdata: string;
  readonly passwordFile: string;
  readonly logFile: string;
  /** Whom PostgreSQL runs as; null for ourselves. */
  readonly user: OsUser | null;
}

/** Root's own place for data that must not lie below a directory that only root can enter. */
const PLACE_FOR_ROOT = '/var/lib/runledger';

export function unusable(directory: string, cause: unknown): AppError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new AppError(
    'UNAVAILABLE',
    `The data directory ${directory} cannot be used (${reason}): set RUNLEDGER_DATA_DIR to a directory that ` +
      `${isRoot() ? 'root' : `user ${process.getuid?.()}`} can write, or DATABASE_URL to a PostgreSQL of your own.`,
    { cause },
  );
}

/** Finds or makes the place of the cluster; throws UNAVAILABLE if it belongs to somebody else. */
export async function openDataHome(dataDir: string, log: LaunchLog): Promise<DataHome> {
  let directory = await followMove(dataDir);
  const owner = await ownerOf(join(directory, 'pgdata'));
  const user = await chooseUser(owner, directory);
  if (user !== null && !(await letIn(user, directory))) {
    if (owner !== null) throw outOfReach(directory, user);
    directory = await moveElsewhere(dataDir, user);
  }
  if (directory !== dataDir)
    log.warn(
      `PostgreSQL keeps its data in ${directory}, because the user it runs as cannot enter ${dataDir}`,
    );
  const home = {
    directory,
    pgdata: join(directory, 'pgdata'),
    passwordFile: join(directory, 'password'),
    logFile: join(directory, 'postgres.log'),
    user,
  };
  if (user !== null && owner?.uid === 0) await giveTo(user, home.pgdata);
  return home;
}

/** Where the cluster of a data directory is, if it has one. */
export async function findDataHome(dataDir: string): Promise<string | null> {
  if (!existsSync(dataDir)) return null;
  const directory = await followMove(await realpath(dataDir));
  return existsSync(join(directory, 'pgdata')) ? directory : null;
}

async function followMove(dataDir: string): Promise<string> {
  const link = join(dataDir, 'moved-to');
  const isThere = await lstat(link).then(
    () => true,
    () => false,
  );
  if (!isThere) return dataDir;
  const target = await readlink(link);
  if (existsSync(target)) return target;
  throw new AppError(
    'UNAVAILABLE',
    `The data of ${dataDir} was kept in ${target}, which is gone: bring it back, or remove ${link} to start empty.`,
  );
}

async function ownerOf(path: string): Promise<OsUser | null> {
  return stat(path).then(
    ({ uid, gid }) => ({ uid, gid }),
    () => null,
  );
}

/** An existing cluster keeps its owner, so that root and its owner can take turns. */
async function chooseUser(owner: OsUser | null, directory: string): Promise<OsUser | null> {
  if (isRoot()) return owner !== null && owner.uid !== 0 ? owner : findUnprivilegedUser();
  if (owner === null || owner.uid === process.getuid?.()) return null;
  throw new AppError(
    'UNAVAILABLE',
    `The database in ${directory} belongs to user ${owner.uid}, and this server runs as ${userName()}: ` +
      'start it as that user or as root, or set RUNLEDGER_DATA_DIR to another directory.',
  );
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return `user ${process.getuid?.()}`;
  }
}

/** Lets `user` pass through the directory, which keeps its content to itself; false if a parent is shut. */
async function letIn(user: OsUser, directory: string): Promise<boolean> {
  if (canEnter(directory, user)) return true;
  const { mode } = await stat(directory);
  await chmod(directory, (mode & 0o7777) | 0o011);
  if (canEnter(directory, user)) return true;
  await chmod(directory, mode & 0o7777);
  return false;
}

function outOfReach(directory: string, user: OsUser): AppError {
  return new AppError(
    'UNAVAILABLE',
    `PostgreSQL runs as user ${user.uid}, who cannot enter ${directory}: move it to where that user can, ` +
      'and set RUNLEDGER_DATA_DIR to it.',
  );
}

async function moveElsewhere(dataDir: string, user: OsUser): Promise<string> {
  await mkdir(PLACE_FOR_ROOT, { recursive: true, mode: 0o755 });
  const directory = await mkdtemp(join(PLACE_FOR_ROOT, 'data-'));
  await chmod(directory, 0o711);
  if (!canEnter(directory, user)) throw outOfReach(directory, user);
  await symlink(directory, join(dataDir, 'moved-to'));
  return directory;
}

/** The superuser's password, made once; a cluster without its password file cannot be opened. */
export async function readPassword({ passwordFile, pgdata, user }: DataHome): Promise<string> {
  if (existsSync(passwordFile)) return readFile(passwordFile, 'utf8');
  if (existsSync(pgdata)) {
    throw new AppError(
      'UNAVAILABLE',
      `The password file ${passwordFile} is missing: bring it back, or move ${pgdata} away to start empty.`,
    );
  }
  const password = randomBytes(24).toString('base64url');
  await writeFile(passwordFile, password, { mode: 0o600, flag: 'wx' });
  if (user !== null) await chown(passwordFile, user.uid, user.gid);
  return password;
}
