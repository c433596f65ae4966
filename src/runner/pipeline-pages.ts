// The reading of pipeline runs as a kind of work: a unit is exactly one page of one partition, fetched outside
// of any transaction and settled in one. The partition is then free for the next claim, of any process.

import { z } from 'zod';
import type { OpenedSource } from '../connectors/source-registry.js';
import type { Page, SourceFailure } from '../connectors/source.js';
import { delayOfNextDelivery } from '../domain/partition.js';
import {
  findEndlessness,
  findPageFault,
  lastOf,
  positionOf,
  takePage,
  type PageStep,
} from '../domain/partition-reading.js';
import type { RetryPolicy } from '../domain/retry-policy.js';
import {
  claimPage,
  extendPageLease,
  nextPageDelayMs,
  recoverPages,
  releasePage,
  type PageClaim,
} from '../store/partition-claim.js';
import { failPartition, retreat, retryPage, settlePage, type ReadPage } from '../store/partition-settle.js';
import { wasRead } from '../store/raw-item.js';
import { AppError } from '../errors.js';
import { inSpan } from '../tracing.js';
import { LeaseKeeper } from './lease-keeper.js';
import { tellingOf } from './log.js';
import { observeFeedCall, observeSettle } from './observed-feed.js';
import { settleSpanOf, type PipelineOptions } from './pipeline-plans.js';
import { failureOf } from './pipeline-source.js';
import type { RunOfWork, Work, WorkKind, WorkResult } from './work.js';

/** Those who watch a run are told of its pages this often, by each process. */
const RING_EVERY_MS = 100;

const PAYLOAD = z.looseObject({
  totalRecords: z.number().nullable().default(null),
  limit: z.int().positive().default(30),
  counted: z.number().nullable().default(null),
  lead: z.number().default(0),
});

type Retreat = Extract<PageStep, { kind: 'retreat' }>;

/** A page that is to be kept. */
interface KeptPage {
  readonly kind: 'page';
  readonly page: ReadPage;
}

export class PipelinePages implements WorkKind {
  readonly name = 'pipeline_page';
  readonly #options: PipelineOptions;
  readonly #rungAt = new Map<string, number>();

  constructor(options: PipelineOptions) {
    this.#options = options;
  }

  recover(deadWorkerIds: readonly string[]): Promise<number> {
    return recoverPages(this.#options.db, deadWorkerIds);
  }

  nextDueMs(): Promise<number | null> {
    return nextPageDelayMs(this.#options.db);
  }

  async claim(workerId: string): Promise<Work | null> {
    const { db, leaseMs } = this.#options;
    const claim = await claimPage(db, { workerId, leaseMs });
    return claim && new PageWork(claim, this.#options, () => this.#isTimeToRing(claim.runId));
  }

  #isTimeToRing(runId: string): boolean {
    const now = performance.now();
    if (now - (this.#rungAt.get(runId) ?? -Infinity) < RING_EVERY_MS) return false;
    for (const [id, at] of this.#rungAt) if (now - at > RING_EVERY_MS) this.#rungAt.delete(id);
    this.#rungAt.set(runId, now);
    return true;
  }
}

class PageWork implements Work {
  readonly leases = 1;
  readonly run: RunOfWork;
  readonly #claim: PageClaim;
  readonly #options: PipelineOptions;
  readonly #isTimeToRing: () => boolean;

  constructor(claim: PageClaim, options: PipelineOptions, isTimeToRing: () => boolean) {
    this.#claim = claim;
    this.run = { kind: 'PIPELINE', ...tellingOf({ runId: claim.runId }) };
    this.#options = options;
    this.#isTimeToRing = isTimeToRing;
  }

  async process(signal: AbortSignal): Promise<WorkResult> {
    const { db, leaseMs, log, sources } = this.#options;
    const claim = this.#claim;
    const keeper = new LeaseKeeper(leaseMs, () => extendPageLease(db, claim, leaseMs), log, this.run);
    let opened: OpenedSource | null = null;
    let outcome: KeptPage | Retreat | SourceFailure;
    try {
      opened = await sources.get(claim);
      outcome = await this.#fetch(opened, signal);
    } catch (error) {
      if (signal.aborted) {
        await releasePage(db, claim);
        return 'failure';
      }
      log.error(
        { err: error, ...tellingOf(this.run), partitionId: claim.partitionId },
        'a page could not be read',
      );
      outcome = failureOf(error);
    } finally {
      keeper.stop();
    }
    const retry = opened?.policy.retry ?? this.#options.retry;
    if (outcome.kind === 'retreat') return this.#retreat(outcome);
    return outcome.kind === 'page' ? this.#settle(outcome.page, retry) : this.#giveUp(outcome, retry);
  }

  async #fetch({ source }: OpenedSource, signal: AbortSignal): Promise<KeptPage | Retreat | SourceFailure> {
    const { payload, offset, cursor, since, duplicated, reading: known } = this.#claim;
    const { totalRecords: total, limit, counted, lead, ...range } = PAYLOAD.parse(payload);
    const position = positionOf(this.#claim);
    const message = findEndlessness({ position, duplicated, total, limit, lead, reading: known });
    if (message !== null) return { kind: 'permanent', message };
    const request = {
      range: range as Readonly<Record<string, string>>,
      offset: position,
      cursor,
      limit,
      since,
    };
    const { sourceId, partitionId } = this.#claim;
    const call = {
      ...tellingOf(this.run),
      sourceId,
      purpose: 'page',
      partitionId,
      offset: position,
    } as const;
    const page = await observeFeedCall(call, this.#options.observer, () => source.fetchPage(request, signal));
    if (page.kind !== 'page') return page;
    const reading = { ...known, counted: known.counted ?? counted ?? total };
    const last = lastOf(page.records.map(({ externalId }) => externalId));
    const hasGapBefore = await this.#hasGapBefore(page, known.last);
    const step = takePage({ offset, limit, lead, reading }, { ...page, last, hasGapBefore });
    if (step.kind === 'retreat') return step;
    const end = position + page.passed;
    if (page.isLast && page.totalRecords !== null && end < page.totalRecords) {
      return mayPass(`the source ends after ${end} records, though it counts ${page.totalRecords}`);
    }
    // A page of records that have no id is like any other of the kind, and where the source counts it has an end.
    const isNameless = page.totalRecords !== null && isWithoutIds(page);
    const fault = findPageFault(page, isNameless ? { ...reading, fingerprint: null } : reading);
    if (fault !== null) return mayPass(fault);
    return { kind: 'page', page: toReadPage(page, step, total) };
  }

  /** While the feed rests, the record before the page is the last that was read, and nothing need be looked up. */
  async #hasGapBefore({ before = null }: Page, last: string | null): Promise<boolean> {
    if (before === null || last === null || before === last) return false;
    return !(await wasRead(this.#options.db, this.#claim, before));
  }

  async #retreat(step: Retreat): Promise<WorkResult> {
    const held = await retreat(this.#options.db, this.#claim, step);
    if (!held) this.#noteLost();
    return 'success';
  }

  async #settle(page: ReadPage, retry: RetryPolicy): Promise<WorkResult> {
    try {
      return await this.#keep(page);
    } catch (error) {
      // Without a database there is nobody to tell; the lease expires, and the page comes again.
      if (error instanceof AppError && error.code === 'UNAVAILABLE') throw error;
      const { partitionId } = this.#claim;
      this.#options.log.error(
        { err: error, ...tellingOf(this.run), partitionId },
        'a page could not be kept',
      );
      const reason = error instanceof Error ? error.message : String(error);
      return this.#giveUp(mayPass(`the page cannot be kept: ${reason}`), retry);
    }
  }

  async #keep(page: ReadPage): Promise<WorkResult> {
    const { db, log, observer } = this.#options;
    const { partitionId, offset } = this.#claim;
    const settle = () => settlePage(db, this.#claim, page, { ring: this.#isTimeToRing() });
    const span = settleSpanOf(this.run, page.records.length);
    const eventsOf = (kept: string) => ({ [kept]: 1 });
    const result = await observeSettle(
      'pipeline_page',
      this.run,
      observer,
      () => inSpan(span, settle),
      eventsOf,
    );
    if (result !== 'settled')
      log.warn({ ...tellingOf(this.run), partitionId, offset, result }, 'a page was not kept');
    return 'success';
  }

  async #giveUp(failure: SourceFailure, retry: RetryPolicy): Promise<WorkResult> {
    const { db, observer, random = Math.random } = this.#options;
    const { message } = failure;
    const delayMs = delayOfNextDelivery(failure, this.#claim.attempts, retry, random);
    const [event, settle] =
      delayMs === null
        ? (['fail', () => failPartition(db, this.#claim, message)] as const)
        : (['retry', () => retryPage(db, this.#claim, { message, delayMs })] as const);
    const eventsOf = (kept: boolean) => ({ [kept ? event : 'lost']: 1 });
    const held = await observeSettle('pipeline_page', this.run, observer, settle, eventsOf);
    if (!held) this.#noteLost();
    return 'failure';
  }

  #noteLost(): void {
    this.#options.log.warn(tellingOf(this.run), 'what came of a page came after its lease was lost');
  }
}

function isWithoutIds({ records }: Page): boolean {
  return records.length > 0 && records.every(({ externalId }) => externalId === null);
}

function mayPass(message: string): SourceFailure {
  return { kind: 'transient', message, throttled: false };
}

function toReadPage(
  { records, passed, cursor, isLast, totalRecords, fingerprint }: Page,
  { reading, expectedTwice }: Extract<PageStep, { kind: 'keep' }>,
  planned: number | null,
): ReadPage {
  return {
    records: records.filter((record) => record.reason === undefined),
    rejected: records.filter((record) => record.reason !== undefined),
    passed,
    cursor,
    isLast,
    range: { total: totalRecords ?? planned, planned, isFixed: fingerprint === null },
    reading,
    expectedTwice,
  };
}
