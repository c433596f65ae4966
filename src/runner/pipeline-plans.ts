// The planning of pipeline runs as a kind of work: a unit asks one source how its feed is to be cut, outside of
// any transaction, and lays out the partitions.

import type { OpenedSource } from '../connectors/source-registry.js';
import type { Plan, SourceFailure } from '../connectors/source.js';
import { delayOfNextDelivery } from '../domain/partition.js';
import type { RetryPolicy } from '../domain/retry-policy.js';
import type { Database } from '../store/db.js';
import {
  claimPlan,
  extendPlanLease,
  failPlan,
  nextPlanDelayMs,
  recoverPlans,
  releasePlan,
  retryPlan,
  settlePlan,
  type PlanClaim,
} from '../store/pipeline-plan.js';
import { LeaseKeeper } from './lease-keeper.js';
import type { Log } from './log.js';
import { failureOf, type PipelineSources } from './pipeline-source.js';
import type { Work, WorkKind, WorkResult } from './work.js';

export interface PipelineOptions {
  readonly db: Database;
  readonly sources: PipelineSources;
  readonly leaseMs: number;
  readonly log: Log;
  /** For what is no source's fault: consolidation, and sources that cannot be opened. */
  readonly retry: RetryPolicy;
  /** Uniform in [0, 1): spreads the retries. */
  readonly random?: () => number;
}

export class PipelinePlans implements WorkKind {
  readonly name = 'pipeline_plan';
  readonly #options: PipelineOptions;

  constructor(options: PipelineOptions) {
    this.#options = options;
  }

  recover(deadWorkerIds: readonly string[]): Promise<number> {
    return recoverPlans(this.#options.db, deadWorkerIds);
  }

  nextDueMs(): Promise<number | null> {
    return nextPlanDelayMs(this.#options.db);
  }

  async claim(workerId: string): Promise<Work | null> {
    const { db, leaseMs } = this.#options;
    const claim = await claimPlan(db, { workerId, leaseMs });
    return claim && new PlanWork(claim, this.#options);
  }
}

class PlanWork implements Work {
  readonly leases = 1;
  readonly #claim: PlanClaim;
  readonly #options: PipelineOptions;

  constructor(claim: PlanClaim, options: PipelineOptions) {
    this.#claim = claim;
    this.#options = options;
  }

  async process(signal: AbortSignal): Promise<WorkResult> {
    const { db, leaseMs, log, sources } = this.#options;
    const claim = this.#claim;
    const keeper = new LeaseKeeper(leaseMs, () => extendPlanLease(db, claim, leaseMs), log);
    let opened: OpenedSource | null = null;
    try {
      opened = await sources.get(claim);
      const outcome = await opened.source.plan(claim.since, signal);
      return await this.#settle(outcome, opened.policy);
    } catch (error) {
      if (signal.aborted) {
        await releasePlan(db, claim);
        return 'failure';
      }
      log.error({ err: error, runId: claim.runId }, 'a feed could not be planned');
      return await this.#giveUp(failureOf(error), opened?.policy.retry ?? this.#options.retry);
    } finally {
      keeper.stop();
    }
  }

  async #settle(outcome: Plan | SourceFailure, policy: OpenedSource['policy']): Promise<WorkResult> {
    if (outcome.kind !== 'planned') return this.#giveUp(outcome, policy.retry);
    const partitions = outcome.ranges.map(({ range, totalRecords }, index) => ({
      partitionId: `partition-${index}`,
      payload: { ...range, totalRecords, limit: policy.pageSize },
    }));
    const { beganAt } = outcome;
    this.#noteIfLost(await settlePlan(this.#options.db, this.#claim, { beganAt, partitions }));
    return 'success';
  }

  async #giveUp(failure: SourceFailure, retry: RetryPolicy): Promise<WorkResult> {
    const { db, random = Math.random } = this.#options;
    const { message } = failure;
    const delayMs = delayOfNextDelivery(failure, this.#claim.attempts, retry, random);
    const held =
      delayMs === null
        ? await failPlan(db, this.#claim, `the feed could not be planned: ${message}`)
        : await retryPlan(db, this.#claim, { message, delayMs });
    this.#noteIfLost(held);
    return 'failure';
  }

  #noteIfLost(held: boolean): void {
    const { runId } = this.#claim;
    if (!held) this.#options.log.warn({ runId }, 'a plan came after its lease was lost');
  }
}
