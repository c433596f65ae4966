// One reconciliation in hand: a page of a run's applied targets, read from the channel in bulk and compared, or,
// when no target is left, the report. A channel that falls silent in the middle of a page is left behind, so that
// it does not hold up the loop.

import { setTimeout as delay } from 'node:timers/promises';
import type { Channel, Failure, ItemOutcome, Outcome, Readings } from '../connectors/channel.js';
import type { OpenedChannel } from '../connectors/registry.js';
import {
  comparePrices,
  findWholeFailure,
  MAX_FINDINGS_LISTED,
  MAX_IDLE_CLAIMS,
  mayBeOfItems,
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
  extendReconciliation,
  findSuperseded,
  readAppliedPrices,
  readPricesAgain,
  returnReconciliation,
  type ReconciliationClaim,
} from '../store/reconciliation-work.js';
import { repairMismatches } from '../store/reconciliation-repair.js';
import type { AbsentKeys } from './absent-keys.js';
import { passGate } from './channel-gate.js';
import type { ConnectorCache } from './connector-cache.js';
import { LeaseKeeper } from './lease-keeper.js';
import { tellingOf, type Log } from './log.js';
import { observeRead } from './observed-call.js';
import type { RunnerObserver } from './observer.js';
import type { Stragglers } from './stragglers.js';
import type { RunOfWork, Work, WorkResult } from './work.js';

export interface ReconciliationWorkOptions {
  readonly db: Database;
  readonly channels: ConnectorCache<OpenedChannel>;
  readonly leaseMs: number;
  readonly log: Log;
  readonly observer: RunnerObserver;
  /** Uniform in [0, 1): spreads the retries. */
  readonly random: () => number;
  readonly stragglers: Stragglers;
  readonly absentKeys: AbsentKeys;
  /** After so long, what is under way counts as hanging. */
  readonly patienceMs: number;
}

/** Targets to compare now. */
interface PageOfPrices {
  readonly prices: readonly AppliedPrice[];
  /** There is no page after it but such as are read once more. */
  readonly isLast: boolean;
  /** They could not be read the first time. */
  readonly isSecondTime: boolean;
  /** One alone, or what the gate let through of a page. */
  readonly isFew: boolean;
}

/** Until the gate of a channel is asked again after it let nothing through. */
const GATE_CLOSED_MS = 1_000;

export class ReconciliationWork implements Work {
  readonly leases = 1;
  readonly workerId: string;
  readonly channelId: string;
  readonly run: RunOfWork;
  readonly #claim: ReconciliationClaim;
  readonly #options: ReconciliationWorkOptions;

  constructor(claim: ReconciliationClaim, options: ReconciliationWorkOptions) {
    this.#claim = claim;
    this.workerId = claim.workerId;
    this.channelId = claim.channelId;
    this.run = { kind: 'RULE', ...tellingOf(claim) };
    this.#options = options;
  }

  async process(signal: AbortSignal): Promise<WorkResult> {
    const whole = this.#processAll(signal);
    const patience = new AbortController();
    try {
      return await Promise.race([whole, this.#leaveBehind(whole, patience.signal)]);
    } finally {
      patience.abort();
    }
  }

  /** When it has taken so long, somebody else waits for it. */
  async #leaveBehind(whole: Promise<unknown>, signal: AbortSignal): Promise<WorkResult> {
    const { patienceMs, stragglers } = this.#options;
    await delay(patienceMs, undefined, { signal });
    stragglers.adopt(this, whole);
    return 'success';
  }

  async #processAll(signal: AbortSignal): Promise<WorkResult> {
    const { db, leaseMs, log } = this.#options;
    const renew = () => extendReconciliation(db, this.#claim, leaseMs);
    const keeper = new LeaseKeeper(leaseMs, renew, log, this.run);
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
    const { channels, absentKeys, db } = this.#options;
    const { channelId, channelVersion } = this.#claim;
    let opened: OpenedChannel | null;
    try {
      opened = await absentKeys.open(channelId, () => channels.get(channelId, channelVersion));
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'INVALID_INPUT')) throw error;
      return this.#giveUp({ code: 'INVALID', message: error.message });
    }
    if (!opened) {
      await returnReconciliation(db, this.#claim, { delayMs: 0, wasTried: false });
      return 'failure';
    }
    const page = await this.#nextPage(opened.channel.maxBatch);
    return page.prices.length === 0 ? this.#finish() : this.#compare(opened, page, signal);
  }

  /** In the order of the targets; then those that could not be read the first time. */
  async #nextPage(limit: number): Promise<PageOfPrices> {
    const { db } = this.#options;
    const next = await readAppliedPrices(db, this.#claim, limit);
    const isSecondTime = next.length === 0;
    const prices = isSecondTime ? await readPricesAgain(db, this.#claim, limit) : next;
    const isLast = isSecondTime || prices.length < limit;
    return { prices, isLast, isSecondTime, isFew: prices.length === 1 };
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
    const isCut = part.length < page.prices.length;
    const passed = { ...page, prices: part, isLast: page.isLast && !isCut, isFew: page.isFew || isCut };
    try {
      const read = await this.#read(channel, part, signal);
      // A page is one read: there are no further calls to stop.
      const throttled = passage.note(answersIn(read, part.length), () => {});
      if (throttled > 0) this.#options.observer.onThrottle?.(throttled);
      const failure = this.#findFailure(passed, read);
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
    return observeRead(call, this.#options.observer, async () => {
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

  /** What is to be tried later, or ends the comparison; null where it can go on. */
  #findFailure(page: PageOfPrices, read: Readings): Failure | null {
    const whole = findWholeFailure(page.prices, read);
    if (whole === null) return page.isSecondTime ? null : this.#findTooMany(read);
    return whole.kind === 'permanent' && mayBeOfItems(whole, page) ? null : whole;
  }

  /** More to read once more than anybody keeps: then it is not about single items. */
  #findTooMany({ failures }: Readings): Failure | null {
    const isPassing = ({ kind }: Failure): boolean => kind === 'retryable';
    if (this.#claim.again.length + failures.size <= MAX_FINDINGS_LISTED) return null;
    return [...failures.values()].find(isPassing) ?? null;
  }

  /**
   * Those to be read once more wait their time when no other is left. `idle`: claims so far without progress;
   * `pauseMs`: the least time until the next.
   */
  async #record(
    { prices, isLast, isSecondTime }: PageOfPrices,
    read: Readings,
    retry: RetryPolicy,
    { idle, pauseMs } = { idle: 0, pauseMs: 0 },
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
    const delayMs = Math.max(pauseMs, isLast && again.length > 0 ? this.#delayAfter(read, retry) : 0);
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
    const throttled = failure.code === 'RATE_LIMITED';
    return namedDelayMs(failure) ?? nextDelayMs(retry, attempts, throttled, this.#options.random);
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
    const mayGoOn = attempts < MAX_IDLE_CLAIMS;
    const isHopeless = failure.kind === 'permanent' || pauseMs === null || !mayGoOn;
    if (mayBeOfItems(failure, page) && pauseMs !== 0 && mayGoOn && !page.isSecondTime) {
      // Others may be read: if they cannot either, it is the channel, and it ends as that.
      await this.#record(page, read, retry, { idle: attempts, pauseMs: pauseMs ?? 0 });
    } else if (!isHopeless) {
      const delayMs = Math.max(pauseMs, this.#delayOf(failure, retry, attempts));
      await returnReconciliation(this.#options.db, this.#claim, { delayMs, wasTried: true });
    } else if (page.isSecondTime && checked > 0) {
      // The pages after it have their turn, of one read each until one of them succeeds.
      await this.#record(page, read, retry, { idle: attempts, pauseMs: 0 });
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
