// One running PostgreSQL server process: starts it, knows when it is ready and when it is gone, and stops
// it. Called by the launcher only, with the directory lock held.
import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { AppError } from '../errors.js';
import type { DataHome } from './data-home.js';
import { CLEAN_ENVIRONMENT } from './os-user.js';
import { commandOf, startMark } from './processes.js';

const POLL_MS = 20;
/** Recovery after a crash replays the log first, so starting may take a while. */
const READY_WITHIN_MS = 5 * 60_000;
const FAST_STOP_WITHIN_MS = 20_000;

/** The lines of postmaster.pid that we read, by index. */
const PID_LINE = 0;
const PORT_LINE = 3;
const STATUS_LINE = 7;

/** Above what any system gives out. */
const NO_PID = 2_147_483_647;

export interface PostgresExit {
  /** True after stop(). */
  readonly expected: boolean;
  readonly message: string;
}

function readPidFile(pgdata: string): string[] {
  try {
    return readFileSync(join(pgdata, 'postmaster.pid'), 'utf8').split('\n');
  } catch {
    return [];
  }
}

/** The port of the server that runs on this cluster; null when none does. */
export function findPort(pgdata: string): number | null {
  if (findOrphan(pgdata) === null) return null;
  const port = Number(readPidFile(pgdata)[PORT_LINE]);
  return port > 0 ? port : null;
}

/** The pid of a server that runs on this cluster: ours, or left behind by a launcher that was killed. */
export function findOrphan(pgdata: string): number | null {
  const pid = Number(readPidFile(pgdata)[PID_LINE]);
  if (!(pid > 0)) return null;
  const command = commandOf(pid);
  return command !== null && /postgres\b/.test(command) && command.includes(`-D ${pgdata} `) ? pid : null;
}

/**
 * Unbinds postmaster.pid from a pid that is not a live PostgreSQL: given again to another process, or dead
 * but never reaped, as in a container without init. PostgreSQL cannot tell and would refuse to start. Its
 * other lines stay, because they let PostgreSQL notice sessions that outlived the killed server.
 */
export function disownPidFile(pgdata: string): void {
  const lines = readPidFile(pgdata);
  const pid = Number(lines[PID_LINE]);
  if (!(pid > 0) || /postgres\b/.test(commandOf(pid) ?? '')) return;
  writeFileSync(join(pgdata, 'postmaster.pid'), [NO_PID, ...lines.slice(1)].join('\n'));
}

/** Stops a server by pid: fast first (SIGINT), at once (SIGQUIT) if that takes too long. */
export async function stopProcess(pid: number): Promise<void> {
  for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
    signalQuietly(pid, signal);
    for (let waited = 0; waited < FAST_STOP_WITHIN_MS; waited += POLL_MS) {
      if (startMark(pid) === null) return;
      await sleep(POLL_MS);
    }
  }
  throw new AppError('UNAVAILABLE', `PostgreSQL (pid ${pid}) does not stop.`);
}

function signalQuietly(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    const isGone = error instanceof Error && 'code' in error && error.code === 'ESRCH';
    if (!isGone) throw error;
  }
}

export class Postmaster {
  readonly exited: Promise<PostgresExit>;
  readonly #child: ChildProcess;
  readonly #home: DataHome;
  #stopping: Promise<void> | null = null;

  static async start(postgres: string, home: DataHome, settings: readonly string[]): Promise<Postmaster> {
    const postmaster = new Postmaster(postgres, home, settings);
    await postmaster.#untilReady();
    return postmaster;
  }

  private constructor(postgres: string, home: DataHome, settings: readonly string[]) {
    const log = openSync(home.logFile, 'a', 0o600);
    const args = ['-D', home.pgdata, ...settings.flatMap((setting) => ['-c', setting])];
    this.#home = home;
    this.#child = spawn(postgres, args, {
      ...home.user,
      cwd: '/',
      env: CLEAN_ENVIRONMENT,
      // A group of its own: Ctrl-C is for the server, which drains first and stops PostgreSQL last.
      detached: true,
      stdio: ['ignore', log, log],
    });
    closeSync(log);
    this.exited = this.#watch();
    process.once('exit', this.#abandon);
  }

  /** Idempotent; resolves when the process is gone. */
  stop(): Promise<void> {
    const { pid, exitCode, signalCode } = this.#child;
    const isGone = pid === undefined || exitCode !== null || signalCode !== null;
    this.#stopping ??= isGone
      ? Promise.resolve()
      : stopProcess(pid).then(async () => void (await this.exited));
    return this.#stopping;
  }

  /** Our own process ends without stop(): PostgreSQL shuts down by itself. */
  readonly #abandon = (): void => {
    this.#child.kill('SIGINT');
  };

  #watch(): Promise<PostgresExit> {
    return new Promise((resolve) => {
      const settle = (how: string): void => {
        process.off('exit', this.#abandon);
        resolve({ expected: this.#stopping !== null, message: `PostgreSQL ${how}.${this.#lastLogLines()}` });
      };
      this.#child.once('error', (error) => settle(`could not be started: ${error.message}`));
      this.#child.once('exit', (code, signal) => settle(`ended with ${signal ?? `code ${code}`}`));
    });
  }

  async #untilReady(): Promise<void> {
    const exited = this.exited.then(({ message }) => message);
    for (let waited = 0; waited < READY_WITHIN_MS; waited += POLL_MS) {
      const failure = await Promise.race([exited, sleep(POLL_MS, null)]);
      if (failure !== null) throw new AppError('UNAVAILABLE', failure);
      const lines = readPidFile(this.#home.pgdata);
      const isOurs = Number(lines[PID_LINE]) === this.#child.pid;
      if (isOurs && lines[STATUS_LINE]?.trim() === 'ready') return;
    }
    await this.stop();
    throw new AppError('UNAVAILABLE', `PostgreSQL was not ready in time.${this.#lastLogLines()}`);
  }

  #lastLogLines(): string {
    try {
      const lines = readFileSync(this.#home.logFile, 'utf8').trim().split('\n').slice(-8);
      return ` Its log (${this.#home.logFile}) ends:\n${lines.join('\n')}`;
    } catch {
      return '';
    }
  }
}
