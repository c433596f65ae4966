// Rule targets: one by its id, and what the ledger tells of it.

import { Ctx, FieldResolver, Resolver, Root } from 'type-graphql';
import { RuleTarget } from '../schema/rule-target.js';
import { RunEvent } from '../schema/run.js';
import { shape } from '../schema/shape.js';
import type { RuleTargetRow } from '../store/rule-target.js';
import type { Context } from './context.js';
import { showRunEvent } from './run-event.js';

@Resolver(() => RuleTarget)
export class RuleTargetResolver {
  @FieldResolver(() => [RunEvent], {
    description: 'Every line of the ledger that tells of it, oldest first.',
  })
  async history(@Root() target: RuleTarget, @Ctx() { loaders }: Context): Promise<RunEvent[]> {
    return ((await loaders.history.load(target.id)) ?? []).map(showRunEvent);
  }
}

export async function findRuleTargetNode({ loaders }: Context, id: string): Promise<RuleTarget | null> {
  const row = await loaders.ruleTarget.load(id);
  return row && showRuleTarget(row);
}

export function showRuleTarget(row: RuleTargetRow): RuleTarget {
  const { beforeAmount, afterAmount, currency } = row;
  return shape(RuleTarget, {
    ...row,
    before: { unit_amount: beforeAmount, currency },
    after: { unit_amount: afterAmount, currency },
  });
}
