// Rule runs: reading them.

import { Arg, Ctx, FieldResolver, ID, Query, Resolver, Root, Subscription } from 'type-graphql';
import { allowedActions, progressOf, type RuleRunAction } from '../domain/rule-run.js';
import { isAllowed } from '../domain/viewer.js';
import { Channel } from '../schema/channel.js';
import { PricingRule } from '../schema/pricing-rule.js';
import { RuleRun, RuleRunActionEnum } from '../schema/rule-run.js';
import { shape } from '../schema/shape.js';
import { countsOf, type RuleRunRow } from '../store/rule-run.js';
import { Needs } from './authorise.js';
import { showChannel } from './channel.js';
import type { Context, RunRow } from './context.js';

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

  @FieldResolver(() => Channel, { description: 'Where the prices go.' })
  async channel(@Root() run: RuleRun, @Ctx() { loaders }: Context): Promise<Channel> {
    const row = await loaders.channel.load(run.channelId);
    return showChannel(row!);
  }

  @FieldResolver(() => [RuleRunActionEnum], {
    description: 'What this caller may ask of it now. Another caller may be faster, and then it is refused.',
  })
  allowedActions(@Root() run: RuleRun, @Ctx() { viewer }: Context): RuleRunAction[] {
    return isAllowed(viewer.role, 'OPERATE') ? allowedActions(run) : [];
  }

  @Needs('READ')
  @Subscription(() => RuleRun, {
    subscribe: ({ args, context }: { args: { runId: string }; context: Context }) =>
      context.feed.runProgress(context.viewer, 'RULE', args.runId),
    description:
      'The run as it is now, then again whenever it changes: at most about ten times a second, and always its final state.',
  })
  ruleRunProgress(
    @Root() row: RunRow,
    @Arg('runId', () => ID, { description: 'The run to watch.' }) _runId: string,
  ): RuleRun {
    return showRuleRun(row.run);
  }
}

export async function findRuleRunNode({ loaders }: Context, id: string): Promise<RuleRun | null> {
  const row = await loaders.ruleRun.load(id);
  return row && showRuleRun(row);
}

export function showRuleRun(row: RuleRunRow): RuleRun {
  const counts = countsOf(row);
  return shape(RuleRun, {
    ...row,
    kind: 'RULE',
    counts,
    progress: progressOf(counts),
    rule: row.ruleSnapshot === null ? null : shape(PricingRule, row.ruleSnapshot as unknown as PricingRule),
  });
}
