// One claimed batch on its way through the channel. Outcomes come in a few at a time; what is known is
// settled while the rest is still under way, so that one call that hangs holds back nobody. Every settle
// names the claim: a worker that was too slow changes nothing.

import { setTimeout as delay } from 'node:timers/promises';
import type { Channel, ItemOutcome, Outcome } from '../connectors/channel.js';
import type { RetryPolicy } from '../domain/retry-policy.js';
import { settlementOf } from '../domain/rule-target.js';
import { extendLeases, type Claim, type ClaimedTarget } from '../store/claim.js';
import type { Database } from '../store/db.js';
import { releaseTargets, settleIfClaimed, type SettledTarget } from '../store/settle.js';
import type { Log } from './log.js';
import type { RunnerObserver } from './observer.js';
import { callChannel } from './price-calls.js';
import type { Work, WorkResult } from './work.js';

export interface RuleTargetWorkOptions {
  readonly db: Database;
  readonly claim: Claim;
  readonly channel: Channel;
  readonly retry: RetryPolicy;
  readonly leaseMs: number;
  readonly log: Log;
  readonly observer: RunnerObserver;
  readonly random: () => number;
}

/** Leases are renewed when a third of their time is over: one renewal may fail. */
const RENEWALS_PER_LEASE = 3;

/** Between two tries to settle while the database does not answer. */
const SETTLE_AGAIN_MS = 500;

export class RuleTargetWork implements Work {
  readonly #options: RuleTargetWorkOptions;
  /** By external id, until the outcome is known. */
  readonly #open: Map<string, ClaimedTarget>;
  /** Ids of the targets whose lease is held. */
  readonly #leased: Set<string>;
  #leasedUntil: number;
  #known: SettledTarget[] = [];
  #settling: Promise<void> | null = null;
  #result: WorkResult = 'success';

  constructor(options: RuleTargetWorkOptions) {
    this.#options = options;
    const { targets } = options.claim;
    this.#open = new Map(targets.map((target) => [target.externalId, target]));
    this.#leased = new Set(targets.map(({ id }) => id));
    this.#leasedUntil = performance.now() + options.leaseMs;
  }

  get leases(): number {
    return this.#leased.size;
  }

  async process(signal: AbortSignal): Promise<WorkResult> {
    const renewal = setInterval(() => void this.#renewLeases(), this.#options.leaseMs / RENEWALS_PER_LEASE);
    try {
      await this.#apply(signal);
      if (!signal.aborted) this.#giveUpOn('The channel gave no outcome');
      do await this.#settleKnown(signal);
      while (this.#known.length > 0);
      await this.#handBack();
    } finally {
      clearInterval(renewal);
    }
    return this.#result;
  }

  async #apply(signal: AbortSignal): Promise<void> {
    const { channel, claim, log, observer } = this.#options;
    try {
      for await (const outcomes of callChannel(channel, claim, signal)) {
        this.#note(outcomes);
        if (outcomes.some(({ outcome }) => isThrottled(outcome))) observer.onThrottle?.();
        // What fails here is tried again, and reported, at the end.
        this.#settleKnown(signal).catch(() => {});
      }
    } catch (error) {
      if (signal.aborted) return;
      log.error({ err: error, runId: claim.runId }, 'the connector failed');
      // It costs an attempt: what breaks the connector must not come back for ever.
      this.#giveUpOn(`The connector failed: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #giveUpOn(message: string): void {
    const outcome = { kind: 'retryable', code: 'UPSTREAM', message } as const;
    this.#note([...this.#open.keys()].map((externalId) => ({ externalId, outcome })));
  }

  #note(outcomes: readonly ItemOutcome[]): void {
    const { retry, random } = this.#options;
    for (const { externalId, outcome } of outcomes) {
      const target = this.#open.get(externalId);
      if (!target) continue;
      this.#open.delete(externalId);
      if (outcome.kind !== 'applied') this.#result = 'failure';
      const settlement = settlementOf(outcome, target.attempts, retry, random);
      this.#known.push({ targetId: target.id, settlement });
    }
  }

  /** Settles in batches: what becomes known while one is being written goes into the next. */
  #settleKnown(signal: AbortSignal): Promise<void> {
    this.#settling ??= this.#drain(signal).finally(() => (this.#settling = null));
    return this.#settling;
  }

  async #drain(signal: AbortSignal): Promise<void> {
    while (this.#known.length > 0) {
      const batch = this.#known;
      this.#known = [];
      try {
        await this.#settle(batch);
      } catch (error) {
        this.#known = [...batch, ...this.#known];
        // A result that is known is worth some patience: without it the call would be made again.
        if (signal.aborted || performance.now() + SETTLE_AGAIN_MS >= this.#leasedUntil) throw error;
        await delay(SETTLE_AGAIN_MS, undefined, { signal }).catch(() => {});
      }
    }
  }

  async #settle(batch: readonly SettledTarget[]): Promise<void> {
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

  /** Only a cut leaves items without an outcome. */
  async #handBack(): Promise<void> {
    const { db, claim } = this.#options;
    await releaseTargets(db, claim, [...this.#leased]);
    this.#leased.clear();
  }

  async #renewLeases(): Promise<void> {
    const { db, claim, leaseMs, log } = this.#options;
    const from = performance.now();
    try {
      await extendLeases(db, claim, [...this.#leased], leaseMs);
      this.#leasedUntil = from + leaseMs;
    } catch (error) {
      log.warn({ err: error, runId: claim.runId }, 'leases could not be renewed');
    }
  }
}

function isThrottled(outcome: Outcome): boolean {
  return outcome.kind !== 'applied' && outcome.code === 'RATE_LIMITED';
}

function countEvents(batch: readonly SettledTarget[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { settlement } of batch) counts[settlement.event] = (counts[settlement.event] ?? 0) + 1;
  return counts;
}
