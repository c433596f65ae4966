// Calls that outlast their batch. When all but a few items of a batch are settled and those few hang, the loop
// leaves them here, under their leases, and goes on; otherwise a handful of calls that never answer would hold
// up every loop for as long as a call may take. Bounded: when there are many, loops wait for their own.

import type { Log } from './log.js';

const MOST_ITEMS = 64;

interface Leftover {
  readonly workerId: string;
  /** Leases that it holds still. */
  readonly leases: number;
}

export class Stragglers {
  readonly #log: Log;
  readonly #underWay = new Map<Leftover, Promise<unknown>>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** Takes over what is left of a batch until `end`, if there is room for it. */
  adopt(leftover: Leftover, end: Promise<unknown>): boolean {
    if (this.#count() + leftover.leases > MOST_ITEMS) return false;
    const settled = end
      .catch((error: unknown) => this.#log.error({ err: error }, 'the rest of a batch failed'))
      .finally(() => this.#underWay.delete(leftover));
    this.#underWay.set(leftover, settled);
    return true;
  }

  leasesOf(workerId: string): number {
    return this.#count((leftover) => leftover.workerId === workerId);
  }

  /** Resolves when nothing is left. */
  async end(): Promise<void> {
    await Promise.all(this.#underWay.values());
  }

  #count(counts: (leftover: Leftover) => boolean = () => true): number {
    return [...this.#underWay.keys()].filter(counts).reduce((sum, { leases }) => sum + leases, 0);
  }
}
