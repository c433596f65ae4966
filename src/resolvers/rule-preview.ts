// The preview of a rule run.

import { Ctx, FieldResolver, Resolver, Root } from 'type-graphql';
import { RULE_LIMITS, SKIP_REASONS } from '../domain/pricing-rule.js';
import { LimitHit, PriceChange, RulePreview, SkippedItems } from '../schema/rule-preview.js';
import { RuleRun } from '../schema/rule-run.js';
import { shape } from '../schema/shape.js';
import type { RulePreviewRow } from '../store/target-summary.js';
import type { Context } from './context.js';

/** Of a run that is not queued yet it may be computed from all its targets. */
const PREVIEW_COST = 50;

@Resolver(() => RuleRun)
export class RulePreviewResolver {
  @FieldResolver(() => RulePreview, {
    complexity: ({ childComplexity }) => PREVIEW_COST + childComplexity,
    description: 'What it would do, in figures; once it is queued, what was agreed to.',
  })
  async preview(@Root() run: RuleRun, @Ctx() { loaders }: Context): Promise<RulePreview> {
    return showPreview((await loaders.rulePreview.load(run.id))!);
  }
}

function showPreview(row: RulePreviewRow): RulePreview {
  const { evaluated = null, matched = null, unchanged = null, skipped = {}, limitHits = {} } = row;
  return shape(RulePreview, {
    ...row,
    evaluated,
    matched,
    unchanged,
    largestIncreases: row.largestIncreases.map((change) => shape(PriceChange, change)),
    largestDecreases: row.largestDecreases.map((change) => shape(PriceChange, change)),
    skipped: SKIP_REASONS.flatMap((reason) => {
      const count = skipped[reason];
      return count === undefined ? [] : [shape(SkippedItems, { reason, count })];
    }),
    limitHits: RULE_LIMITS.flatMap((limit) => {
      const count = limitHits[limit];
      return count === undefined ? [] : [shape(LimitHit, { limit, count })];
    }),
  });
}
