// One server per data directory: a file with the pid of the server and the mark of its start. A lock whose
// owner is gone, however it went, is taken over. Called by the launcher only.
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { AppError } from '../errors.js';
import { startMark } from './processes.js';

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

export class DirectoryLock {
  readonly #path: string;
  readonly #content: string;

  /** Takes the lock, or throws CONFLICT with the pid of the server that has it. */
  static acquire(path: string, directory: string): DirectoryLock {
    const lock = new DirectoryLock(path);
    while (!lock.#tryToTake()) {
      const owner = lock.#liveOwner(path);
      if (owner !== null) {
        throw new AppError(
          'CONFLICT',
          `The data directory ${directory} is in use by another server (pid ${owner}): stop that one, ` +
            'or set RUNLEDGER_DATA_DIR to another directory.',
        );
      }
      lock.#clearStale();
    }
    return lock;
  }

  private constructor(path: string) {
    this.#path = path;
    this.#content = JSON.stringify({ pid: process.pid, started: startMark(process.pid) });
  }

  release(): void {
    try {
      if (readFileSync(this.#path, 'utf8') === this.#content) rmSync(this.#path);
    } catch (error) {
      if (!hasCode(error, 'ENOENT')) throw error;
    }
  }

  /** A link appears with its content or not at all, so nobody ever reads half a lock. */
  #tryToTake(): boolean {
    const draft = `${this.#path}.${process.pid}`;
    writeFileSync(draft, this.#content);
    try {
      linkSync(draft, this.#path);
      return true;
    } catch (error) {
      if (hasCode(error, 'EEXIST')) return false;
      throw error;
    } finally {
      rmSync(draft, { force: true });
    }
  }

  #liveOwner(path: string): number | null {
    try {
      const { pid, started } = JSON.parse(readFileSync(path, 'utf8')) as { pid: number; started: string };
      return startMark(pid) === started ? pid : null;
    } catch (error) {
      // Half a lock was left by a crash of the machine: nobody holds it.
      if (hasCode(error, 'ENOENT') || error instanceof SyntaxError) return null;
      throw error;
    }
  }

  /** Moves the lock away before looking at it again: somebody may have replaced the stale one meanwhile. */
  #clearStale(): void {
    const aside = `${this.#path}.stale.${process.pid}`;
    try {
      renameSync(this.#path, aside);
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return;
      throw error;
    }
    if (this.#liveOwner(aside) === null) rmSync(aside, { force: true });
    else renameSync(aside, this.#path);
  }
}
