// The embedded PostgreSQL: a real server from an npm package, on a data directory of its own, reachable
// from this machine alone and with a password. One server per directory; what a killed one left behind is
// stopped and recovered. Called by app, cli and the test cluster.
import { execFile } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { chown, mkdir, readFile, rename, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { AppError } from '../errors.js';
import { provideBinaries, type Binaries } from './binaries.js';
import {
  findDataHome,
  openDataHome,
  readPassword,
  unusable,
  type DataHome,
  type LaunchLog,
} from './data-home.js';
import { DirectoryLock } from './directory-lock.js';
import { CLEAN_ENVIRONMENT } from './os-user.js';
import {
  disownPidFile,
  findOrphan,
  findPort,
  Postmaster,
  stopProcess,
  type PostgresExit,
} from './postmaster.js';

const run = promisify(execFile);

const SUPERUSER = 'runledger';
const START_ATTEMPTS = 40;
const BETWEEN_ATTEMPTS_MS = 250;
/** Somebody took the port between our looking and PostgreSQL's binding; sessions of a killed server linger. */
const PASSING_TROUBLE = /Address already in use|pre-existing shared memory block/;

export interface EmbeddedPostgresOptions {
  readonly dataDir: string;
  readonly log: LaunchLog;
  /** False gives up crash safety for speed: for tests. */
  readonly durable?: boolean;
  /** Instead of one that is free: for a restart that clients are to find again. */
  readonly port?: number | null;
}

export interface EmbeddedPostgres {
  /** Of the superuser, with password, for the database `postgres`. */
  readonly url: string;
  /** Settles when PostgreSQL has ended, asked or not; never rejects. */
  readonly exited: Promise<PostgresExit>;
  /** Idempotent; resolves when PostgreSQL is gone and the directory is free. */
  stop(): Promise<void>;
}

/** Starts PostgreSQL on `dataDir`, which is made if missing. Throws an AppError that says what to do. */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  if (process.platform === 'win32') {
    throw new AppError(
      'UNAVAILABLE',
      'The embedded PostgreSQL is not supported on Windows: use WSL, or set DATABASE_URL to a PostgreSQL of your own.',
    );
  }
  const { dataDir, lock } = await openDirectory(options.dataDir);
  try {
    const { url, postmaster } = await launch(dataDir, options);
    return new RunningPostgres(url, postmaster, lock);
  } catch (error) {
    lock.release();
    throw error instanceof AppError ? error : unusable(dataDir, error);
  }
}

/** The address of the PostgreSQL that some server runs on `dataDir`; null when none does. */
export async function findRunningPostgres(dataDir: string): Promise<string | null> {
  const directory = await findDataHome(dataDir);
  const port = directory === null ? null : findPort(join(directory, 'pgdata'));
  if (directory === null || port === null) return null;
  try {
    return urlOf(await readFile(join(directory, 'password'), 'utf8'), port);
  } catch (error) {
    throw unusable(directory, error);
  }
}

function urlOf(password: string, port: number): string {
  return `postgresql://${SUPERUSER}:${password}@127.0.0.1:${port}/postgres`;
}

class RunningPostgres implements EmbeddedPostgres {
  readonly url: string;
  readonly exited: Promise<PostgresExit>;
  readonly #postmaster: Postmaster;
  readonly #lock: DirectoryLock;

  constructor(url: string, postmaster: Postmaster, lock: DirectoryLock) {
    this.url = url;
    this.exited = postmaster.exited;
    this.#postmaster = postmaster;
    this.#lock = lock;
  }

  async stop(): Promise<void> {
    await this.#postmaster.stop();
    this.#lock.release();
  }
}

async function openDirectory(path: string): Promise<{ dataDir: string; lock: DirectoryLock }> {
  try {
    await mkdir(path, { recursive: true });
    const dataDir = realpathSync(path);
    return { dataDir, lock: DirectoryLock.acquire(join(dataDir, 'server.lock'), dataDir) };
  } catch (error) {
    throw error instanceof AppError ? error : unusable(path, error);
  }
}

async function launch(
  dataDir: string,
  { log, durable = true, port: wanted = null }: EmbeddedPostgresOptions,
): Promise<{ url: string; postmaster: Postmaster }> {
  const home = await openDataHome(dataDir, log);
  await stopOrphan(home, log);
  const binaries = await provideBinaries(home.directory, home.user);
  const password = await readPassword(home);
  if (!existsSync(home.pgdata)) await createCluster(binaries, home, durable);
  await checkVersion(binaries, home);
  if (existsSync(home.logFile)) await rename(home.logFile, `${home.logFile}.1`);
  const { port, postmaster } = await startOnPort(wanted, binaries, home, durable);
  return { url: urlOf(password, port), postmaster };
}

async function stopOrphan(home: DataHome, log: LaunchLog): Promise<void> {
  const orphan = findOrphan(home.pgdata);
  if (orphan !== null) {
    log.warn(`The last server on ${home.directory} was killed: stopping its PostgreSQL (pid ${orphan})`);
    await stopProcess(orphan);
  }
  disownPidFile(home.pgdata);
}

/** Made aside and renamed, so that a cluster is whole or not there, whenever this is interrupted. */
async function createCluster(binaries: Binaries, home: DataHome, durable: boolean): Promise<void> {
  const draft = `${home.pgdata}.new`;
  await rm(draft, { recursive: true, force: true, maxRetries: 3 });
  await mkdir(draft, { mode: 0o700 });
  if (home.user !== null) await chown(draft, home.user.uid, home.user.gid);
  const args = [
    ...['-D', draft, `--username=${SUPERUSER}`, `--pwfile=${home.passwordFile}`, '--auth=scram-sha-256'],
    ...['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
    ...(durable ? [] : ['--no-sync']),
  ];
  try {
    await run(binaries.initdb, args, { ...home.user, cwd: '/', env: CLEAN_ENVIRONMENT });
  } catch (cause) {
    const reason = cause instanceof Error && 'stderr' in cause ? String(cause.stderr).trim() : String(cause);
    throw new AppError('UNAVAILABLE', `The database could not be created in ${home.pgdata}: ${reason}`, {
      cause,
    });
  }
  await rename(draft, home.pgdata);
}

async function checkVersion({ major }: Binaries, { pgdata }: DataHome): Promise<void> {
  const found = (await readFile(join(pgdata, 'PG_VERSION'), 'utf8')).trim();
  if (found === major) return;
  throw new AppError(
    'UNAVAILABLE',
    `The database in ${pgdata} was made by PostgreSQL ${found}, and this is PostgreSQL ${major}: dump it with the ` +
      'old version and load it with this one, or set RUNLEDGER_DATA_DIR to another directory to start empty.',
  );
}

async function startOnPort(
  wanted: number | null,
  binaries: Binaries,
  home: DataHome,
  durable: boolean,
): Promise<{ port: number; postmaster: Postmaster }> {
  for (let attempt = 1; ; attempt += 1) {
    const port = wanted ?? (await findFreePort());
    try {
      return { port, postmaster: await Postmaster.start(binaries.postgres, home, settings(port, durable)) };
    } catch (error) {
      const willPass = error instanceof AppError && PASSING_TROUBLE.test(error.message);
      if (!willPass || attempt === START_ATTEMPTS) throw error;
      await sleep(BETWEEN_ATTEMPTS_MS);
    }
  }
}

function findFreePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address() as AddressInfo;
      probe.close(() => resolve(port));
    });
  });
}

function settings(port: number, durable: boolean): string[] {
  const speedOverSafety = ['fsync=off', 'full_page_writes=off', 'synchronous_commit=off'];
  return [
    'listen_addresses=127.0.0.1',
    `port=${port}`,
    // No socket file: its path has a length limit, and TCP needs none.
    'unix_socket_directories=',
    'max_connections=100',
    'shared_buffers=128MB',
    'timezone=UTC',
    'log_timezone=UTC',
    // The server reports the errors of its own statements; this log is for PostgreSQL's own troubles.
    'log_min_messages=log',
    'log_checkpoints=off',
    ...(durable ? [] : speedOverSafety),
  ];
}
