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
import { inSpan, type SpanRequest } from '../tracing.js';
import { LeaseKeeper } from './lease-keeper.js';
import { tellingOf, type Log } from './log.js';
import { observeFeedCall, observeSettle } from './observed-feed.js';
import type { RunnerObserver } from './observer.js';
import { failureOf, type PipelineSources } from './pipeline-source.js';
import type { RunOfWork, Work, WorkKind, WorkResult } from './work.js';

export interface PipelineOptions {
  readonly db: Database;
  readonly sources: PipelineSources;
  readonly leaseMs: number;
  readonly log: Log;
  readonly observer?: RunnerObserver;
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
  readonly run: RunOfWork;
  readonly #claim: PlanClaim;
  readonly #options: PipelineOptions;

  constructor(claim: PlanClaim, options: PipelineOptions) {
    this.#claim = claim;
    this.run = { kind: 'PIPELINE', ...tellingOf({ runId: claim.runId }) };
    this.#options = options;
  }

  async process(signal: AbortSignal): Promise<WorkResult> {
    const { db, leaseMs, log, sources } = this.#options;
    const claim = this.#claim;
    const keeper = new LeaseKeeper(leaseMs, () => extendPlanLease(db, claim, leaseMs), log, this.run);
    let opened: OpenedSource | null = null;
    try {
      opened = await sources.get(claim);
      const { source, policy } = opened;
      const call = { ...tellingOf(this.run), sourceId: claim.sourceId, purpose: 'plan' } as const;
      const outcome = await observeFeedCall(call, this.#options.observer, () =>
        source.plan(claim.since, signal),
      );
      return await this.#settle(outcome, policy);
    } catch (error) {
      if (signal.aborted) {
        await releasePlan(db, claim);
        return 'failure';
      }
      log.error({ err: error, ...tellingOf(this.run) }, 'a feed could not be planned');
      return await this.#giveUp(failureOf(error), opened?.policy.retry ?? this.#options.retry);
    } finally {
      keeper.stop();
    }
  }

  async #settle(outcome: Plan | SourceFailure, policy: OpenedSource['policy']): Promise<WorkResult> {
    if (outcome.kind !== 'planned') return this.#giveUp(outcome, policy.retry);
    const partitions = outcome.ranges.map(({ range, ...figures }, index) => ({
      partitionId: `partition-${index}`,
      payload: { ...range, ...figures, limit: policy.pageSize },
    }));
    const { beganAt } = outcome;
    const { db } = this.#options;
    const settle = () => settlePlan(db, this.#claim, { beganAt, partitions });
    const span = settleSpanOf(this.run, partitions.length);
    await this.#tell('start', () => inSpan(span, settle));
    return 'success';
  }

  async #giveUp(failure: SourceFailure, retry: RetryPolicy): Promise<WorkResult> {
    const { db, random = Math.random } = this.#options;
    const { message } = failure;
    const delayMs = delayOfNextDelivery(failure, this.#claim.attempts, retry, random);
    if (delayMs === null) {
      await this.#tell('fail', () => failPlan(db, this.#claim, `the feed could not be planned: ${message}`));
    } else await this.#tell('retry', () => retryPlan(db, this.#claim, { message, delayMs }));
    return 'failure';
  }

  async #tell(event: string, settle: () => Promise<boolean>): Promise<void> {
    const eventsOf = (held: boolean) => ({ [held ? event : 'lost']: 1 });
    const held = await observeSettle('pipeline_plan', this.run, this.#options.observer, settle, eventsOf);
    if (!held) this.#options.log.warn(tellingOf(this.run), 'a plan came after its lease was lost');
  }
}

export function settleSpanOf({ runId, correlationId }: RunOfWork, items: number): SpanRequest {
  const facts = { 'runledger.run_id': runId, 'runledger.correlation_id': correlationId };
  return { name: 'settle pipeline', facts: { ...facts, 'runledger.items': items } };
}
