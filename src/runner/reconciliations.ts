// Reconciliation as a kind of work: a unit is one page of a run's applied targets, read from the channel in
// bulk and compared, or, when no target is left, the report. Any process takes up where another stopped.

import type { Channel, Failure, ItemOutcome, Outcome, Readings } from '../connectors/channel.js';
import type { OpenedChannel } from '../connectors/registry.js';
import {
  comparePrices,
  findWholeFailure,
  MAX_FINDINGS_LISTED,
  MAX_IDLE_CLAIMS,
  windowPauseMs,
  type AppliedPrice,
} from '../domain/reconciliation.js';
import { isExhausted, namedDelayMs, nextDelayMs, type RetryPolicy } from '../domain/retry-policy.js';
import { AppError } from '../errors.js';
import type { Database } from '../store/db.js';
import {
  abandonRest,
  failReconciliation,
  finishReconciliation,
  recordComparison,
} from '../store/reconciliation-result.js';
import {
  claimReconciliation,
  extendReconciliation,
  findSuperseded,
  nextReconciliationDelayMs,
  readAppliedPrices,
  readPricesAgain,
  recoverReconciliations,
  returnReconciliation,
  type ReconciliationClaim,
} from '../store/reconciliation-work.js';
import { repairMismatches } from '../store/reconciliation-repair.js';
import { passGate } from './channel-gate.js';
import type { ConnectorCache } from './connector-cache.js';
import { LeaseKeeper } from './lease-keeper.js';
import { tellingOf, type Log } from './log.js';
import { observeRead } from './observed-call.js';
import type { RunnerObserver } from './observer.js';
import type { RunOfWork, Work, WorkKind, WorkResult } from './work.js';

export interface ReconciliationOptions {
  readonly db: Database;
  readonly channels: ConnectorCache<OpenedChannel>;
  readonly leaseMs: number;
  readonly log: Log;
  readonly observer?: RunnerObserver;
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

/** Targets to compare now. */
interface PageOfPrices {
  readonly prices: readonly AppliedPrice[];
  /** There is no page after it but such as are read once more. */
  readonly isLast: boolean;
  /** They could not be read the first time. */
  readonly isSecondTime: boolean;
}

/** Until the gate of a channel is asked again after it let nothing through. */
const GATE_CLOSED_MS = 1_000;

class ReconciliationWork implements Work {
  readonly leases = 1;
  readonly run: RunOfWork;
  readonly #claim: ReconciliationClaim;
  readonly #options: ReconciliationOptions;

  constructor(claim: ReconciliationClaim, options: ReconciliationOptions) {
    this.#claim = claim;
    this.run = { kind: 'RULE', ...tellingOf(claim) };
    this.#options = options;
  }

  async process(signal: AbortSignal): Promise<WorkResult> {
    const { db, leaseMs, log } = this.#options;
    const keeper = new LeaseKeeper(
      leaseMs,
      () => extendReconciliation(db, this.#claim, leaseMs),
      log,
      this.run,
    );
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
    const page = await this.#nextPage(opened.channel.maxBatch);
    return page.prices.length === 0 ? this.#finish() : this.#compare(opened, page, signal);
  }

  /** In the order of the targets; then those that could not be read the first time. */
  async #nextPage(limit: number): Promise<PageOfPrices> {
    const { db } = this.#options;
    const prices = await readAppliedPrices(db, this.#claim, limit);
    if (prices.length > 0) return { prices, isLast: prices.length < limit, isSecondTime: false };
    return { prices: await readPricesAgain(db, this.#claim, limit), isLast: true, isSecondTime: true };
  }

  /** Compares as much of the page as the channel's gate lets through now. */
  async #compare(
    { channel, policy }: OpenedChannel,
    page: PageOfPrices,
    signal: AbortSignal,
  ): Promise<WorkResult> {
    const { db, leaseMs } = this.#options;
    const { workerId, channelId, isGuarded, throttles } = this.#claim;
    const gate = { db, channelId, channel, policy, workerId, leaseMs, isGuarded, throttles };
    const passage = await passGate(gate, page.prices.length);
    if (!passage) {
      await returnReconciliation(db, this.#claim, { delayMs: GATE_CLOSED_MS, wasTried: false });
      return 'success';
    }
    const part = page.prices.slice(0, passage.items);
    const isLast = page.isLast && part.length === page.prices.length;
    try {
      const read = await this.#read(channel, part, signal);
      // A page is one read: there are no further calls to stop.
      const throttled = passage.note(answersIn(read, part.length), () => {});
      if (throttled > 0) this.#options.observer?.onThrottle?.(throttled);
      const passed = { ...page, prices: part, isLast };
      const failure = findWholeFailure(part, read) ?? (page.isSecondTime ? null : this.#findTooMany(read));
      return await (failure
        ? this.#tryLater(failure, passed, read, policy.retry)
        : this.#record(passed, read, policy.retry));
    } finally {
      await passage.leave(part.length);
    }
  }

  async #read(channel: Channel, page: readonly AppliedPrice[], signal: AbortSignal): Promise<Readings> {
    const ids = page.map(({ externalId }) => externalId);
    const { channelId, currency } = this.#claim;
    const call = { ...tellingOf(this.#claim), channelId, purpose: 'reconcile', items: ids.length };
    return observeRead(call, this.#options.observer ?? {}, async () => {
      try {
        return await channel.fetchPrices(ids, currency, signal);
      } catch (error) {
        if (signal.aborted) throw error;
        // What breaks the connector must not come back for ever.
        const message = `The connector failed: ${error instanceof Error ? error.message : String(error)}`;
        const failure = { kind: 'retryable', code: 'UPSTREAM', message } as const;
        return { prices: new Map(), failures: new Map(ids.map((id) => [id, failure])) };
      }
    });
  }

  /** More to read once more than anybody keeps: then it is not about single items. */
  #findTooMany({ failures }: Readings): Failure | null {
    const isPassing = ({ kind }: Failure): boolean => kind === 'retryable';
    if (this.#claim.again.length + failures.size <= MAX_FINDINGS_LISTED) return null;
    return [...failures.values()].find(isPassing) ?? null;
  }

  /** Those to be read once more wait their time when no other is left. `idle`: claims so far without progress. */
  async #record(
    { prices, isLast, isSecondTime }: PageOfPrices,
    read: Readings,
    retry: RetryPolicy,
    idle = 0,
  ): Promise<WorkResult> {
    const { db, log } = this.#options;
    const claim = this.#claim;
    const { checked, unread, ...found } = comparePrices(prices, read, isSecondTime);
    const superseded = await findSuperseded(
      db,
      claim,
      found.mismatches.map(({ externalId }) => externalId),
    );
    const mismatches = found.mismatches.filter(({ externalId }) => !superseded.has(externalId));
    const seen = new Set(prices.map(({ targetId }) => targetId));
    const again = [...claim.again.filter((id) => !seen.has(id)), ...found.again];
    const last = prices.at(-1)!.targetId;
    const position = BigInt(last) > BigInt(claim.position) ? last : claim.position;
    const delayMs = isLast && again.length > 0 ? this.#delayAfter(read, retry) : 0;
    const attempts = Math.max(idle, delayMs > 0 ? 1 : 0);
    const compared = { position, checked, mismatches, unread, again, attempts, delayMs };
    if (!(await recordComparison(db, claim, compared))) {
      log.warn(tellingOf(claim), 'a comparison came after its lease was lost');
    }
    return 'success';
  }

  /** The longest that any of the failures asks for. */
  #delayAfter({ failures }: Readings, retry: RetryPolicy): number {
    return Math.max(0, ...[...new Set(failures.values())].map((failure) => this.#delayOf(failure, retry, 1)));
  }

  #delayOf(failure: Failure, retry: RetryPolicy, attempts: number): number {
    if (failure.kind === 'permanent') return 0;
    const { random = Math.random } = this.#options;
    const throttled = failure.code === 'RATE_LIMITED';
    return namedDelayMs(failure) ?? nextDelayMs(retry, attempts, throttled, random);
  }

  async #finish(): Promise<WorkResult> {
    const { db } = this.#options;
    const repairRunId = this.#claim.repair ? await repairMismatches(db, this.#claim) : null;
    await finishReconciliation(db, this.#claim, repairRunId);
    return 'success';
  }

  async #tryLater(
    failure: Failure,
    page: PageOfPrices,
    read: Readings,
    retry: RetryPolicy,
  ): Promise<WorkResult> {
    const { attempts, trigger, ageMs, checked } = this.#claim;
    const pauseMs = isExhausted(retry, attempts) ? windowPauseMs(trigger, ageMs) : 0;
    const isHopeless = failure.kind === 'permanent' || pauseMs === null || attempts >= MAX_IDLE_CLAIMS;
    if (!isHopeless) {
      const delayMs = Math.max(pauseMs, this.#delayOf(failure, retry, attempts));
      await returnReconciliation(this.#options.db, this.#claim, { delayMs, wasTried: true });
    } else if (page.isSecondTime && checked > 0) {
      // The pages after it have their turn, of one read each until one of them succeeds.
      await this.#record(page, read, retry, attempts);
    } else await this.#giveUp(failure);
    return 'failure';
  }

  /** What was compared is reported; where that is nothing, the ledger says why there is no report. */
  async #giveUp(failure: { readonly code: string; readonly message: string }): Promise<WorkResult> {
    const end = this.#claim.checked > 0 ? abandonRest : failReconciliation;
    await end(this.#options.db, this.#claim, failure);
    return 'failure';
  }
}

/** As the gate counts them: each failure, and that there were prices. */
function answersIn({ failures }: Readings, items: number): ItemOutcome[] {
  const outcomes: Outcome[] = [...new Set(failures.values())];
  if (failures.size < items) outcomes.push({ kind: 'applied' });
  return outcomes.map((outcome) => ({ externalId: '', outcome }));
}
