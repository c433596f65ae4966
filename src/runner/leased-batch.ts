// The leases of one claimed batch, from the claim until each is settled or handed back. Results are settled
// in batches as they become known; meanwhile the leases are renewed. Every settle names the claim: a worker
// that was too slow changes nothing.

import { setTimeout as delay } from 'node:timers/promises';
import { errorMessageOf } from '../domain/rule-target.js';
import { extendLeases, type Claim } from '../store/claim.js';
import type { Database } from '../store/db.js';
import { releaseTargets, settleIfClaimed, type SettledTarget } from '../store/settle.js';
import { isUnavailable } from '../store/sqlstate.js';
import { countFacts, inSpan, type SpanRequest } from '../tracing.js';
import { RENEWALS_PER_LEASE } from './lease-keeper.js';
import { tellingOf, type Log } from './log.js';
import type { RunnerObserver } from './observer.js';

export interface LeasedBatchOptions {
  readonly db: Database;
  readonly claim: Claim;
  readonly leaseMs: number;
  readonly log: Log;
  readonly observer: RunnerObserver;
}

/** Between two tries to settle what the database did not take. */
const SETTLE_AGAIN_MS = 500;

/** A batch that the database answered and refused so often will not pass by itself. */
const MAX_REFUSALS = 2;

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
    let refusals = 0;
    while (this.#known.length > 0) {
      const batch = this.#known;
      this.#known = [];
      try {
        if (refusals < MAX_REFUSALS) await this.#write(batch);
        else await this.#writeApart(batch);
        refusals = 0;
      } catch (error) {
        this.#known = [...batch.filter(({ targetId }) => this.#leased.has(targetId)), ...this.#known];
        if (!isUnavailable(error)) refusals += 1;
        // A result that is known is worth some patience: without it the call would be made again.
        const isPatient = refusals <= MAX_REFUSALS && performance.now() + SETTLE_AGAIN_MS < this.#leasedUntil;
        if (this.#signal.aborted || !isPatient) throw error;
        await delay(SETTLE_AGAIN_MS, undefined, { signal: this.#signal }).catch(() => {});
      }
    }
  }

  /** One result that cannot be kept must not hold up the others: halves, until it stands alone and fails. */
  async #writeApart(batch: readonly SettledTarget[]): Promise<void> {
    try {
      await this.#write(batch);
    } catch (error) {
      if (isUnavailable(error)) throw error;
      if (batch.length === 1) return this.#write([unrecorded(batch[0]!, error)]);
      const middle = Math.ceil(batch.length / 2);
      await this.#writeApart(batch.slice(0, middle));
      await this.#writeApart(batch.slice(middle));
    }
  }

  async #write(batch: readonly SettledTarget[]): Promise<void> {
    const { db, claim, log, observer } = this.#options;
    const { runId, correlationId } = claim;
    const kind = claim.purpose === 'apply' ? 'rule_target' : 'rule_target_roll_back';
    const from = performance.now();
    const { late, runMs } = await inSpan(spanOf(kind, claim, countEvents(batch)), () =>
      settleIfClaimed(db, claim, batch),
    );
    for (const { targetId } of batch) this.#leased.delete(targetId);
    const ms = performance.now() - from;
    const events = countEvents(late.length === 0 ? batch : batch.filter((each) => !late.includes(each)));
    observer.onSettle?.({ kind, runId, correlationId, ms, events, runMs });
    if (late.length === 0) return;
    log.warn({ ...tellingOf(claim), lost: late.length }, 'results came after the lease was lost');
  }

  async #renew(alsoRenew: () => Promise<void>): Promise<void> {
    const { db, claim, leaseMs, log } = this.#options;
    const from = performance.now();
    try {
      await extendLeases(db, claim, [...this.#leased], leaseMs);
      this.#leasedUntil = from + leaseMs;
      await alsoRenew();
    } catch (error) {
      log.warn({ err: error, ...tellingOf(claim) }, 'leases could not be renewed');
    }
  }
}

/** What the database refuses to keep is told in its own words, which it will. */
function unrecorded({ targetId, settlement }: SettledTarget, error: unknown): SettledTarget {
  const result = settlement.event === 'succeed' ? 'The price was set' : 'The attempt failed';
  const reason = error instanceof Error ? error.message : String(error);
  const message = errorMessageOf(`${result}, but the result could not be recorded: ${reason}`);
  return { targetId, settlement: { event: 'exhaust', code: 'UNRECORDED', message } };
}

function countEvents(batch: readonly SettledTarget[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { settlement } of batch) counts[settlement.event] = (counts[settlement.event] ?? 0) + 1;
  return counts;
}

function spanOf(kind: string, { runId, correlationId }: Claim, events: Record<string, number>): SpanRequest {
  const facts = { 'runledger.run_id': runId, 'runledger.correlation_id': correlationId };
  return { name: `settle ${kind}`, facts: { ...facts, ...countFacts(events) } };
}
