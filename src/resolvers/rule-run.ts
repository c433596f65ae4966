// Rule runs: reading them, once or live.

import { Arg, Ctx, FieldResolver, Float, ID, Query, Resolver, Root, Subscription } from 'type-graphql';
import { MAX_LONG_PAGE, MAX_PAGE } from '../domain/page.js';
import {
  allowedActions,
  countOf,
  progressOf,
  type OnConflict,
  type RuleRunAction,
} from '../domain/rule-run.js';
import type { RuleTargetStatus } from '../domain/rule-target.js';
import { isAllowed } from '../domain/viewer.js';
import type { RunRowOf } from '../events/run-row.js';
import { Channel } from '../schema/channel.js';
import { After, First, type CountedConnection } from '../schema/page.js';
import { PricingRule } from '../schema/pricing-rule.js';
import { ReconciliationReport } from '../schema/reconciliation.js';
import { RuleRunFilter } from '../schema/rule-run-input.js';
import { RuleRun, RuleRunActionEnum, RuleRunConnection, RuleRunRollback } from '../schema/rule-run.js';
import { RuleTargetConnection, RuleTargetStatusEnum, type RuleTarget } from '../schema/rule-target.js';
import { shape } from '../schema/shape.js';
import { MAX_REPORTS } from '../store/reconciliation.js';
import { countRuleRuns, listRuleRuns, runCursor } from '../store/rule-run-list.js';
import { countsOf, type RuleRunRow } from '../store/rule-run-row.js';
import { targetCursor } from '../store/rule-target.js';
import { Needs } from './authorise.js';
import { showChannel } from './channel.js';
import { cappedTotal, connect } from './connect.js';
import type { Context } from './context.js';
import { showReconciliation } from './reconciliation.js';
import { showRuleTarget } from './rule-target.js';

const RUNS_PER_PAGE = 20;
const TARGETS_PER_PAGE = 50;
/** A rate is measured on the ledger, not read from the run. */
const RATE_COST = 10;

@Resolver(() => RuleRun)
export class RuleRunResolver {
  @Needs('READ')
  @Query(() => RuleRun, { nullable: true, description: 'A rule run by its id; null for an id of none.' })
  ruleRun(
    @Arg('id', () => ID, { description: 'The id of the run.' }) id: string,
    @Ctx() context: Context,
  ): Promise<RuleRun | null> {
    return findRuleRunNode(context, id);
  }

  @Needs('READ')
  @Query(() => RuleRunConnection, { description: 'Rule runs, newest first.' })
  async ruleRuns(
    @First(RUNS_PER_PAGE, MAX_PAGE) first: number | null,
    @After() after: string | null = null,
    @Arg('filter', () => RuleRunFilter, { nullable: true, description: 'Which of them.' })
    filter: RuleRunFilter | null,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunConnection> {
    const page = await listRuleRuns(db, viewer, {
      first: first ?? RUNS_PER_PAGE,
      after,
      filter: filter ?? {},
    });
    const total = cappedTotal(() => countRuleRuns(db, viewer, filter ?? {}));
    return { ...connect(page, showRuleRun, runCursor), ...total };
  }

  @FieldResolver(() => Channel, { description: 'Where the prices go.' })
  async channel(@Root() run: RuleRun, @Ctx() { loaders }: Context): Promise<Channel> {
    const row = await loaders.channel.load(run.channelId);
    return showChannel(row!);
  }

  @FieldResolver(() => Float, {
    nullable: true,
    complexity: RATE_COST,
    description: 'Targets settled per second of late, while it is applied or set back.',
  })
  async ratePerSecond(@Root() run: RuleRun, @Ctx() { loaders }: Context): Promise<number | null> {
    return (await loaders.pace.load(run.id))?.rate ?? null;
  }

  @FieldResolver(() => Float, {
    nullable: true,
    complexity: RATE_COST,
    description: 'How long the rest takes at that rate; null while nothing moves.',
  })
  async etaSeconds(@Root() run: RuleRun, @Ctx() { loaders }: Context): Promise<number | null> {
    const { rate, left } = (await loaders.pace.load(run.id)) ?? { rate: 0, left: 0 };
    return rate > 0 ? left / rate : null;
  }

  @FieldResolver(() => RuleTargetConnection, { description: 'Its targets, in the order they were added.' })
  async targets(
    @Root() run: RuleRun,
    @First(TARGETS_PER_PAGE, MAX_LONG_PAGE) first: number | null,
    @After() after: string | null = null,
    @Arg('status', () => [RuleTargetStatusEnum], {
      nullable: true,
      description: 'Only those in these states.',
    })
    status: RuleTargetStatus[] | null = null,
    @Ctx() { loaders }: Context,
  ): Promise<CountedConnection<RuleTarget>> {
    const request = { first: first ?? TARGETS_PER_PAGE, after, status };
    const page = await loaders.ruleTargets.load(run.id, request);
    // The run carries the counts: nothing needs to be counted.
    return {
      ...connect(page, showRuleTarget, targetCursor),
      totalCount: async () => countOf(run.counts, status),
    };
  }

  @FieldResolver(() => [ReconciliationReport], {
    complexity: ({ childComplexity }) => 1 + MAX_REPORTS * childComplexity,
    description: `Its comparisons with the channel, newest first; the newest ${MAX_REPORTS} of more.`,
  })
  async reconciliations(@Root() run: RuleRun, @Ctx() { loaders }: Context): Promise<ReconciliationReport[]> {
    const rows = (await loaders.reconciliations.load(run.id)) ?? [];
    return rows.map(showReconciliation);
  }

  @FieldResolver(() => [RuleRunActionEnum], {
    description: 'What this caller may ask of it now. Another caller may be faster, and then it is refused.',
  })
  allowedActions(@Root() run: RuleRun, @Ctx() { viewer }: Context): RuleRunAction[] {
    return isAllowed(viewer.role, 'OPERATE') ? allowedActions(run, new Date()) : [];
  }

  @Needs('READ')
  @Subscription(() => RuleRun, {
    subscribe: ({ args, context }: { args: { runId: string }; context: Context }) =>
      context.feed.runProgress(context.viewer, 'RULE', args.runId),
    description:
      'The run as it is now, then again whenever it changes: at most about ten times a second, and always its final state.',
  })
  ruleRunProgress(
    @Root() row: RunRowOf<'RULE'>,
    @Arg('runId', () => ID, { description: 'The run to watch.' }) _runId: string,
  ): RuleRun {
    return showRuleRun(row.run);
  }
}

export async function findRuleRunNode({ loaders }: Context, id: string): Promise<RuleRun | null> {
  const row = await loaders.ruleRun.load(id);
  return row && showRuleRun(row);
}

function showRollback(row: RuleRunRow): RuleRunRollback | null {
  const { rollbackAskedAt: askedAt, rollbackAll: all, rollbackOnConflict: onConflict, rollingBack } = row;
  if (askedAt === null) return null;
  return shape(RuleRunRollback, {
    askedAt,
    all,
    onConflict: onConflict as OnConflict,
    underWay: rollingBack,
  });
}

export function showRuleRun(row: RuleRunRow): RuleRun {
  const counts = countsOf(row);
  return shape(RuleRun, {
    ...row,
    kind: 'RULE',
    counts,
    progress: progressOf(counts),
    rollback: showRollback(row),
    rule: row.ruleSnapshot === null ? null : shape(PricingRule, row.ruleSnapshot as unknown as PricingRule),
  });
}
