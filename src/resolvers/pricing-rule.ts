// Pricing rules: saving and reading them.

import { Arg, Ctx, Mutation, Query, Resolver } from 'type-graphql';
import { PricingRule, PricingRulePayload, SavePricingRuleInput } from '../schema/pricing-rule.js';
import { shape } from '../schema/shape.js';
import { listPricingRules, savePricingRule, type PricingRuleRow } from '../store/pricing-rule.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

@Resolver()
export class PricingRuleResolver {
  @Needs('READ')
  @Query(() => [PricingRule], { description: 'Every pricing rule, highest priority first.' })
  async pricingRules(
    @Arg('projectId', () => String, { nullable: true, description: 'Only rules of this project.' })
    projectId: string | null,
    @Ctx() { db, viewer }: Context,
  ): Promise<PricingRule[]> {
    return (await listPricingRules(db, viewer, projectId ?? null)).map(showPricingRule);
  }

  @Needs('ADMINISTER')
  @Mutation(() => PricingRulePayload, {
    description: 'Saves a rule: a new one, or a new version. Runs keep the version they were made from.',
  })
  savePricingRule(
    @Arg('input', () => SavePricingRuleInput, { description: 'The rule as it is to be.' })
    input: SavePricingRuleInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<PricingRulePayload> {
    return mutate<PricingRulePayload>({ pricingRule: null }, async () => {
      const row = await savePricingRule(db, viewer, {
        id: input.id ?? null,
        projectId: input.projectId ?? 'default',
        name: input.name,
        enabled: input.enabled ?? true,
        priority: input.priority ?? 0,
        definition: input.definition,
        expectedVersion: input.expectedVersion ?? null,
      });
      return { pricingRule: showPricingRule(row) };
    });
  }
}

export async function findPricingRuleNode({ loaders }: Context, id: string): Promise<PricingRule | null> {
  const row = await loaders.pricingRule.load(id);
  return row && showPricingRule(row);
}

function showPricingRule({ id, name, projectId, enabled, priority, version, definition }: PricingRuleRow) {
  return shape(PricingRule, { id, name, projectId, enabled, priority, version, definition });
}
