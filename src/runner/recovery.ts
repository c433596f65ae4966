// Takes back what workers that are gone held. Shared by the loops of a process: one of them looks, at most
// every so often. A worker of this machine whose process is dead need not be waited for: its leases are
// taken back at once, so that a crash and a restart lose no time.

import type { Database } from '../store/db.js';
import { buryWorkers, listOtherWorkers } from '../store/worker.js';
import type { Log } from './log.js';
import type { WorkKind } from './work.js';

export interface RecoveryOptions {
  readonly db: Database;
  readonly kinds: readonly WorkKind[];
  /** Where this process's pid means something. */
  readonly home: { readonly host: string; readonly pidSpace: string };
  readonly ownIds: readonly string[];
  readonly everyMs: number;
  readonly log: Log;
}

export class Recovery {
  readonly #options: RecoveryOptions;
  #nextAt = -Infinity;

  constructor(options: RecoveryOptions) {
    this.#options = options;
  }

  async runIfDue(): Promise<void> {
    if (performance.now() < this.#nextAt) return;
    await this.run();
  }

  async run(): Promise<void> {
    const { db, kinds, everyMs } = this.#options;
    this.#nextAt = performance.now() + everyMs;
    const dead = await this.#findDead();
    const outcomes: boolean[] = [];
    for (const kind of kinds) outcomes.push(await this.#recover(kind, dead));
    // A kind that could not take everything back is asked again, with the same dead.
    if (outcomes.every((isDone) => isDone)) await buryWorkers(db, dead);
  }

  async #findDead(): Promise<string[]> {
    const { db, home, ownIds } = this.#options;
    const others = await listOtherWorkers(db, home, ownIds);
    // Our own pid under another id was a process before us.
    return others.filter(({ pid }) => pid === process.pid || !isAlive(pid)).map(({ id }) => id);
  }

  async #recover(kind: WorkKind, dead: readonly string[]): Promise<boolean> {
    const { log } = this.#options;
    try {
      const count = await kind.recover(dead);
      if (count > 0) log.warn({ kind: kind.name, count, dead }, 'leases were taken back');
      return true;
    } catch (error) {
      log.error({ err: error, kind: kind.name }, 'recovery failed');
      return false;
    }
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Somebody else's process is alive as well.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
