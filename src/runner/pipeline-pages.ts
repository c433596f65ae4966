// The reading of pipeline runs as a kind of work: a unit is exactly one page of one partition, fetched outside
// of any transaction and settled in one. The partition is then free for the next claim, of any process.

import { z } from 'zod';
import type { OpenedSource } from '../connectors/source-registry.js';
import type { Page, SourceFailure } from '../connectors/source.js';
import { delayOfNextDelivery, findEndlessness } from '../domain/partition.js';
import type { RetryPolicy } from '../domain/retry-policy.js';
import {
  claimPage,
  extendPageLease,
  nextPageDelayMs,
  recoverPages,
  releasePage,
  type PageClaim,
} from '../store/partition-claim.js';
import { failPartition, retryPage, settlePage, type ReadPage } from '../store/partition-settle.js';
import { LeaseKeeper } from './lease-keeper.js';
import type { PipelineOptions } from './pipeline-plans.js';
import { failureOf } from './pipeline-source.js';
import type { Work, WorkKind, WorkResult } from './work.js';

/** Those who watch a run are told of its pages this often, by each process. */
const RING_EVERY_MS = 100;

const PAYLOAD = z.looseObject({
  totalRecords: z.number().nullable().default(null),
  limit: z.int().positive().default(30),
});

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
  readonly #claim: PageClaim;
  readonly #options: PipelineOptions;
  readonly #isTimeToRing: () => boolean;

  constructor(claim: PageClaim, options: PipelineOptions, isTimeToRing: () => boolean) {
    this.#claim = claim;
    this.#options = options;
    this.#isTimeToRing = isTimeToRing;
  }

  async process(signal: AbortSignal): Promise<WorkResult> {
    const { db, leaseMs, log, sources } = this.#options;
    const claim = this.#claim;
    const keeper = new LeaseKeeper(leaseMs, () => extendPageLease(db, claim, leaseMs), log);
    let opened: OpenedSource | null = null;
    let outcome: Page | SourceFailure;
    try {
      opened = await sources.get(claim);
      outcome = await this.#fetch(opened, signal);
    } catch (error) {
      if (signal.aborted) {
        await releasePage(db, claim);
        return 'failure';
      }
      log.error(
        { err: error, runId: claim.runId, partitionId: claim.partitionId },
        'a page could not be read',
      );
      outcome = failureOf(error);
    } finally {
      keeper.stop();
    }
    if (outcome.kind === 'page') return this.#settle(outcome);
    return this.#giveUp(outcome, opened?.policy.retry ?? this.#options.retry);
  }

  async #fetch({ source }: OpenedSource, signal: AbortSignal): Promise<Page | SourceFailure> {
    const { payload, offset, cursor, since, duplicated } = this.#claim;
    const { totalRecords: total, limit, ...range } = PAYLOAD.parse(payload);
    const message = findEndlessness({ offset, duplicated, total, limit });
    if (message !== null) return { kind: 'permanent', message };
    const page = await source.fetchPage(
      { range: range as Readonly<Record<string, string>>, offset, cursor, limit, since },
      signal,
    );
    if (page.kind !== 'page') return page;
    const end = offset + page.passed;
    if (page.isLast && page.totalRecords !== null && end < page.totalRecords) {
      const fault = `the source ends after ${end} records, though it counts ${page.totalRecords}`;
      return { kind: 'transient', message: fault, throttled: false };
    }
    return { ...page, totalRecords: page.totalRecords ?? total };
  }

  async #settle(page: Page): Promise<WorkResult> {
    const { db, log } = this.#options;
    const { runId, partitionId, offset } = this.#claim;
    const result = await settlePage(db, this.#claim, toReadPage(page), { ring: this.#isTimeToRing() });
    if (result !== 'settled') log.warn({ runId, partitionId, offset, result }, 'a page was not kept');
    return 'success';
  }

  async #giveUp(failure: SourceFailure, retry: RetryPolicy): Promise<WorkResult> {
    const { db, log, random = Math.random } = this.#options;
    const { message } = failure;
    const delayMs = delayOfNextDelivery(failure, this.#claim.attempts, retry, random);
    const held =
      delayMs === null
        ? await failPartition(db, this.#claim, message)
        : await retryPage(db, this.#claim, { message, delayMs });
    if (!held) log.warn({ runId: this.#claim.runId }, 'a failure came after its lease was lost');
    return 'failure';
  }
}

function toReadPage({ records, passed, cursor, isLast, totalRecords: total }: Page): ReadPage {
  return {
    records: records.filter((record) => record.externalId !== null),
    rejected: records.filter((record) => record.externalId === null),
    passed,
    cursor,
    isLast,
    total,
  };
}
