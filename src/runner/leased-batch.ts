// The leases of one claimed batch, from the claim until each is settled or handed back. Results are settled
// in batches as they become known; meanwhile the leases are renewed. Every settle names the claim: a worker
// that was too slow changes nothing.

import { setTimeout as delay } from 'node:timers/promises';
import { extendLeases, type Claim } from '../store/claim.js';
import type { Database } from '../store/db.js';
import { releaseTargets, settleIfClaimed, type SettledTarget } from '../store/settle.js';
import type { Log } from './log.js';
import type { RunnerObserver } from './observer.js';

export interface LeasedBatchOptions {
  readonly db: Database;
  readonly claim: Claim;
  readonly leaseMs: number;
  readonly log: Log;
  readonly observer: RunnerObserver;
}

/** Leases are renewed when a third of their time is over: one renewal may fail. */
const RENEWALS_PER_LEASE = 3;

/** Between two tries to settle while the database does not answer. */
const SETTLE_AGAIN_MS = 500;

export class LeasedBatch {
  readonly #options: LeasedBatchOptions;
  readonly #signal: AbortSignal;
  /** Ids of the targets whose lease is held. */
  readonly #leased: Set<string>;
  readonly #renewal: NodeJS.Timeout;
  #leasedUntil: number;
  #known: SettledTarget[] = [];
  #settling: Promise<void> | null = null;

  /** `signal`: nobody has the patience to wait for the database any more. */
  constructor(options: LeasedBatchOptions, signal: AbortSignal, alsoRenew: () => Promise<void>) {
    this.#options = options;
    this.#signal = signal;
    const { claim, leaseMs } = options;
    this.#leased = new Set(claim.targets.map(({ id }) => id));
    this.#leasedUntil = performance.now() + leaseMs;
    this.#renewal = setInterval(() => void this.#renew(alsoRenew), leaseMs / RENEWALS_PER_LEASE);
  }

  get size(): number {
    return this.#leased.size;
  }

  /** Settles soon; what becomes known while a settle is being written goes into the next. */
  settle(settled: readonly SettledTarget[]): void {
    this.#known.push(...settled);
    // What fails here is tried again, and reported, at the end.
    this.#settleKnown().catch(() => {});
  }

  /** Settles what is known, hands back the rest at the cost of no attempt, and ends the renewals. */
  async end(): Promise<void> {
    const { db, claim } = this.#options;
    try {
      do await this.#settleKnown();
      while (this.#known.length > 0);
      await releaseTargets(db, claim, [...this.#leased]);
      this.#leased.clear();
    } finally {
      clearInterval(this.#renewal);
    }
  }

  #settleKnown(): Promise<void> {
    this.#settling ??= this.#drain().finally(() => (this.#settling = null));
    return this.#settling;
  }

  async #drain(): Promise<void> {
    while (this.#known.length > 0) {
      const batch = this.#known;
      this.#known = [];
      try {
        await this.#write(batch);
      } catch (error) {
        this.#known = [...batch, ...this.#known];
        // A result that is known is worth some patience: without it the call would be made again.
        if (this.#signal.aborted || performance.now() + SETTLE_AGAIN_MS >= this.#leasedUntil) throw error;
        await delay(SETTLE_AGAIN_MS, undefined, { signal: this.#signal }).catch(() => {});
      }
    }
  }

  async #write(batch: readonly SettledTarget[]): Promise<void> {
    const { db, claim, log, observer } = this.#options;
    const from = performance.now();
    const { held, runMs } = await settleIfClaimed(db, claim, batch);
    for (const { targetId } of batch) this.#leased.delete(targetId);
    const ms = performance.now() - from;
    const kind = claim.purpose === 'apply' ? 'rule_target' : 'rule_target_roll_back';
    observer.onSettle?.({ kind, ms, events: countEvents(batch), runMs });
    if (held === batch.length) return;
    log.warn({ runId: claim.runId, lost: batch.length - held }, 'results came after the lease was lost');
  }

  async #renew(alsoRenew: () => Promise<void>): Promise<void> {
    const { db, claim, leaseMs, log } = this.#options;
    const from = performance.now();
    try {
      await extendLeases(db, claim, [...this.#leased], leaseMs);
      this.#leasedUntil = from + leaseMs;
      await alsoRenew();
    } catch (error) {
      log.warn({ err: error, runId: claim.runId }, 'leases could not be renewed');
    }
  }
}

function countEvents(batch: readonly SettledTarget[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { settlement } of batch) counts[settlement.event] = (counts[settlement.event] ?? 0) + 1;
  return counts;
}
