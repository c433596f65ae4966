// Calls that outlast their batch. When a channel falls silent in the middle of one, the loop leaves the rest
// here, under its leases, and goes on; otherwise calls that never answer would hold up every loop, and with it
// every other channel, for as long as they may take. Bounded per channel: while many items of one wait here,
// no more of it is claimed.

import { tellingOf, type Log } from './log.js';
import type { RunOfWork } from './work.js';

const MANY_ITEMS = 64;

/** After so long without an outcome, what is left of a unit of work counts as hanging. */
export const PATIENCE_MS = 500;

/** Until it is looked again whether a channel has room that leaves too many calls unanswered. */
export const FULL_MS = 200;

interface Leftover {
  readonly channelId: string;
  readonly workerId: string;
  /** Leases that it holds still. */
  readonly leases: number;
  readonly run: RunOfWork;
}

export class Stragglers {
  readonly #log: Log;
  readonly #many: number;
  readonly #underWay = new Map<Leftover, Promise<unknown>>();

  /** `many`: leases of one channel. */
  constructor(log: Log, many = MANY_ITEMS) {
    this.#log = log;
    this.#many = many;
  }

  /** Takes over what is left of a batch until `end`. */
  adopt(leftover: Leftover, end: Promise<unknown>): void {
    const settled = end
      .catch((err: unknown) =>
        this.#log.error({ err, ...tellingOf(leftover.run) }, 'the rest of a batch failed'),
      )
      .finally(() => this.#underWay.delete(leftover));
    this.#underWay.set(leftover, settled);
  }

  /** The channels of which so much waits here that no more of them should be begun. */
  fullChannels(): string[] {
    const leases = new Map<string, number>();
    for (const leftover of this.#underWay.keys())
      leases.set(leftover.channelId, (leases.get(leftover.channelId) ?? 0) + leftover.leases);
    return [...leases].filter(([, count]) => count >= this.#many).map(([channelId]) => channelId);
  }

  leasesOf(workerId: string): number {
    const own = [...this.#underWay.keys()].filter((leftover) => leftover.workerId === workerId);
    return own.reduce((sum, { leases }) => sum + leases, 0);
  }

  /** Resolves when nothing is left. */
  async end(): Promise<void> {
    await Promise.all(this.#underWay.values());
  }
}
