// What a rule run would do, in figures: for somebody to look at before it is queued.

import { Field, Float, Int, ObjectType } from 'type-graphql';
import type { RuleLimit, SkipReason } from '../domain/pricing-rule.js';
import { defineEnum } from './enum.js';
import { SafeIntScalar } from './scalar.js';

export const RuleLimitEnum = defineEnum<RuleLimit>('RuleLimit', 'The limits of a pricing rule.', {
  FLOOR: 'limits.floor',
  CEILING: 'limits.ceiling',
  MIN_MARGIN: 'limits.minMarginPercent',
  MAX_CHANGE: 'limits.maxChangePercent',
});

export const SkipReasonEnum = defineEnum<SkipReason>(
  'SkipReason',
  'Why a rule left an item alone that it matched.',
  {
    NO_COST: 'The rule needs a cost, and the item has none.',
    LIMITS_CONTRADICT: 'No price keeps all limits of the rule.',
    OUT_OF_RANGE: 'The price would be below zero or too large, and no limit says what then.',
  },
);

@ObjectType({ simpleResolvers: true, description: 'One price before and after.' })
export class PriceChange {
  @Field(() => String, { description: "The item's id in the channel." })
  externalId!: string;

  @Field(() => SafeIntScalar, { description: 'The price before, in minor units.' })
  beforeAmount!: number;

  @Field(() => SafeIntScalar, { description: 'The price to set.' })
  afterAmount!: number;

  @Field(() => Float, { description: 'By how much it changes, in per cent of the price before.' })
  changePercent!: number;
}

@ObjectType({ simpleResolvers: true, description: 'How many prices a limit of the rule held.' })
export class LimitHit {
  @Field(() => RuleLimitEnum, { description: 'The limit.' })
  limit!: RuleLimit;

  @Field(() => Int, { description: 'How many items it held, whether their price changes or not.' })
  count!: number;
}

@ObjectType({ simpleResolvers: true, description: 'How many matching items a rule left alone, and why.' })
export class SkippedItems {
  @Field(() => SkipReasonEnum, { description: 'Why.' })
  reason!: SkipReason;

  @Field(() => Int, { description: 'How many.' })
  count!: number;
}

@ObjectType({
  simpleResolvers: true,
  description:
    'What a rule run would do, in figures. Percentages leave out targets whose price before is zero. Of a run whose targets were given, it follows them until the run is queued.',
})
export class RulePreview {
  @Field(() => Int, { description: 'How many prices change.' })
  count!: number;

  @Field(() => Float, { nullable: true, description: 'The least change: the largest decrease, if any.' })
  minChangePercent!: number | null;

  @Field(() => Float, { nullable: true, description: 'The median change.' })
  medianChangePercent!: number | null;

  @Field(() => Float, { nullable: true, description: 'The greatest change: the largest increase, if any.' })
  maxChangePercent!: number | null;

  @Field(() => [PriceChange], { description: 'The largest increases in per cent, up to five.' })
  largestIncreases!: readonly PriceChange[];

  @Field(() => [PriceChange], { description: 'The largest decreases in per cent, up to five.' })
  largestDecreases!: readonly PriceChange[];

  @Field(() => Int, {
    nullable: true,
    description: 'How many catalog items the rule was held against; null when the targets were given.',
  })
  evaluated!: number | null;

  @Field(() => Int, { nullable: true, description: 'How many of them it matched.' })
  matched!: number | null;

  @Field(() => Int, { nullable: true, description: 'How many of those have the right price already.' })
  unchanged!: number | null;

  @Field(() => [SkippedItems], { description: 'Those that it left alone.' })
  skipped!: readonly SkippedItems[];

  @Field(() => [LimitHit], { description: 'How often each limit held a price; none that held none.' })
  limitHits!: readonly LimitHit[];

  @Field(() => String, {
    description:
      'Stands for exactly these changes: the run, every target with its prices, and for a rule the state of every item. Give it as `confirm` to queueRuleRun.',
  })
  hash!: string;
}
