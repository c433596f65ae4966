// Reconciliation as a kind of work: a unit is one page of a run's applied targets, read from the channel in
// bulk and compared, or, when no target is left, the report. Any process takes up where another stopped.

import type { Channel, Failure } from '../connectors/channel.js';
import type { OpenedChannel } from '../connectors/registry.js';
import { findMismatches, MAX_IDLE_CLAIMS, type AppliedPrice } from '../domain/reconciliation.js';
import { isExhausted, nextDelayMs, type RetryPolicy } from '../domain/retry-policy.js';
import { AppError } from '../errors.js';
import type { Database } from '../store/db.js';
import {
  claimReconciliation,
  extendReconciliation,
  failReconciliation,
  findSuperseded,
  finishReconciliation,
  nextReconciliationDelayMs,
  readAppliedPrices,
  recordComparison,
  recoverReconciliations,
  returnReconciliation,
  type ReconciliationClaim,
} from '../store/reconciliation-work.js';
import { repairMismatches } from '../store/reconciliation-repair.js';
import { passGate } from './channel-gate.js';
import type { ConnectorCache } from './connector-cache.js';
import { LeaseKeeper } from './lease-keeper.js';
import type { Log } from './log.js';
import type { Work, WorkKind, WorkResult } from './work.js';

export interface ReconciliationOptions {
  readonly db: Database;
  readonly channels: ConnectorCache<OpenedChannel>;
  readonly leaseMs: number;
  readonly log: Log;
  /** Uniform in [0, 1): spreads the retries. */
  readonly random?: () => number;
}

export class Reconciliations implements WorkKind {
  readonly name = 'reconciliation';
  readonly #options: ReconciliationOptions;

  constructor(options: ReconciliationOptions) {
    this.#options = options;
  }

  recover(deadWorkerIds: readonly string[]): Promise<number> {
    return recoverReconciliations(this.#options.db, deadWorkerIds);
  }

  nextDueMs(): Promise<number | null> {
    return nextReconciliationDelayMs(this.#options.db);
  }

  async claim(workerId: string): Promise<Work | null> {
    const { db, leaseMs } = this.#options;
    const claim = await claimReconciliation(db, { workerId, leaseMs });
    return claim && new ReconciliationWork(claim, this.#options);
  }
}

/** Until the gate of a channel is asked again after it let nothing through. */
const GATE_CLOSED_MS = 1_000;

class ReconciliationWork implements Work {
  readonly leases = 1;
  readonly #claim: ReconciliationClaim;
  readonly #options: ReconciliationOptions;

  constructor(claim: ReconciliationClaim, options: ReconciliationOptions) {
    this.#claim = claim;
    this.#options = options;
  }

  async process(signal: AbortSignal): Promise<WorkResult> {
    const { db, leaseMs, log } = this.#options;
    const keeper = new LeaseKeeper(leaseMs, () => extendReconciliation(db, this.#claim, leaseMs), log);
    try {
      return await this.#advance(signal);
    } catch (error) {
      if (!signal.aborted) throw error;
      await returnReconciliation(db, this.#claim, { delayMs: 0, wasTried: false });
      return 'failure';
    } finally {
      keeper.stop();
    }
  }

  async #advance(signal: AbortSignal): Promise<WorkResult> {
    const { channelId, channelVersion } = this.#claim;
    let opened: OpenedChannel;
    try {
      opened = await this.#options.channels.get(channelId, channelVersion);
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'INVALID_INPUT')) throw error;
      return this.#giveUp({ code: 'INVALID', message: error.message });
    }
    const page = await readAppliedPrices(this.#options.db, this.#claim, opened.channel.maxBatch);
    return page.length === 0 ? this.#finish() : this.#compare(opened, page, signal);
  }

  /** Compares as much of the page as the channel's gate lets through now. */
  async #compare(
    { channel, policy }: OpenedChannel,
    page: readonly AppliedPrice[],
    signal: AbortSignal,
  ): Promise<WorkResult> {
    const { db, leaseMs } = this.#options;
    const { workerId, channelId, isGuarded, throttles } = this.#claim;
    const gate = { db, channelId, channel, policy, workerId, leaseMs, isGuarded, throttles };
    const passage = await passGate(gate, page.length);
    if (!passage) {
      await returnReconciliation(db, this.#claim, { delayMs: GATE_CLOSED_MS, wasTried: false });
      return 'success';
    }
    const part = page.slice(0, passage.items);
    try {
      const read = await this.#read(channel, part, signal);
      // A page is one read: there are no further calls to stop.
      passage.note([{ externalId: '', outcome: 'prices' in read ? { kind: 'applied' } : read }], () => {});
      return 'prices' in read
        ? await this.#record(part, read.prices)
        : await this.#tryLater(read, policy.retry);
    } finally {
      await passage.leave(part.length);
    }
  }

  async #read(
    channel: Channel,
    page: readonly AppliedPrice[],
    signal: AbortSignal,
  ): Promise<{ readonly prices: ReadonlyMap<string, number> } | Failure> {
    const ids = page.map(({ externalId }) => externalId);
    try {
      return { prices: await channel.fetchPrices(ids, this.#claim.currency, signal) };
    } catch (error) {
      if (signal.aborted) throw error;
      return failureOf(error);
    }
  }

  async #record(page: readonly AppliedPrice[], prices: ReadonlyMap<string, number>): Promise<WorkResult> {
    const { db, log } = this.#options;
    const found = findMismatches(page, prices);
    const superseded = await findSuperseded(
      db,
      this.#claim,
      found.map(({ externalId }) => externalId),
    );
    const mismatches = found.filter(({ externalId }) => !superseded.has(externalId));
    const compared = { position: page.at(-1)!.targetId, checked: page.length, mismatches };
    if (!(await recordComparison(db, this.#claim, compared))) {
      log.warn({ runId: this.#claim.runId }, 'a comparison came after its lease was lost');
    }
    return 'success';
  }

  async #finish(): Promise<WorkResult> {
    const { db } = this.#options;
    const repairRunId = this.#claim.repair ? await repairMismatches(db, this.#claim) : null;
    await finishReconciliation(db, this.#claim, repairRunId);
    return 'success';
  }

  async #tryLater(failure: Failure, retry: RetryPolicy): Promise<WorkResult> {
    const { db, random = Math.random } = this.#options;
    const { attempts } = this.#claim;
    const isHopeless =
      failure.kind === 'permanent' || isExhausted(retry, attempts) || attempts >= MAX_IDLE_CLAIMS;
    if (isHopeless) return this.#giveUp(failure);
    const throttled = failure.code === 'RATE_LIMITED';
    const named = failure.kind === 'retryable' ? failure.retryAfterMs : undefined;
    const delayMs = named ?? nextDelayMs(retry, attempts, throttled, random);
    await returnReconciliation(db, this.#claim, { delayMs, wasTried: true });
    return 'failure';
  }

  async #giveUp(failure: { readonly code: string; readonly message: string }): Promise<WorkResult> {
    await failReconciliation(this.#options.db, this.#claim, failure);
    return 'failure';
  }
}

/** The details of a connector's error are those of the call that failed. */
function failureOf(error: unknown): Failure {
  const unknown = { kind: 'retryable', code: 'UPSTREAM' } as const;
  const message = error instanceof Error ? error.message : String(error);
  return { ...unknown, ...(error instanceof AppError ? error.details : null), message } as Failure;
}
