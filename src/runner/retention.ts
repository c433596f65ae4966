// The maintenance job that prunes what has outlived its tenant's policy. A pass ends before its next tick is
// due, so that one replica prunes at a time; what it did not get to is the next pass's.

import type { Database } from '../store/db.js';
import { pruneDueRuns, type PruneTotals } from '../store/prune.js';
import type { Log } from './log.js';
import type { MaintenanceJob } from './maintenance.js';

export interface RetentionOptions {
  readonly db: Database;
  readonly log: Log;
  readonly everyMs?: number;
  /** Between two lines about how far it has come. */
  readonly tellEveryMs?: number;
  readonly batchSize?: number;
}

const EVERY_MS = 600_000;
const TELL_EVERY_MS = 10_000;
/** Of the time between two ticks. */
const LONGEST_SHARE = 0.9;

export class Retention implements MaintenanceJob {
  readonly name = 'retention';
  readonly everyMs: number;

  constructor(private readonly options: RetentionOptions) {
    this.everyMs = options.everyMs ?? EVERY_MS;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { db, log, batchSize } = this.options;
    const totals = await pruneDueRuns(db, {
      signal,
      longestMs: this.everyMs * LONGEST_SHARE,
      onProgress: this.#teller(),
      ...(batchSize === undefined ? {} : { batchSize }),
    });
    const { heldUntil, runs, rows } = totals;
    if (heldUntil !== undefined) {
      log.warn(
        { heldUntil },
        'the clock has leapt by more than a day, or nobody was there: nothing is pruned yet',
      );
    }
    if (rows > 0 || runs > 0) log.info({ runs, rows }, 'pruned what had outlived its policy');
  }

  #teller(): (totals: PruneTotals) => void {
    const { log, tellEveryMs = TELL_EVERY_MS } = this.options;
    let toldAt = performance.now();
    return (totals) => {
      if (performance.now() - toldAt < tellEveryMs) return;
      toldAt = performance.now();
      log.info({ ...totals }, 'pruning goes on');
    };
  }
}
