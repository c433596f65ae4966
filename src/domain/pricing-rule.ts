// A pricing rule: which items it is for and what they are to cost. Owns the typed definition and its
// evaluation over one item, exact and deterministic. Prices are whole minor units; in between, an amount is a
// whole number of millionths of one, so that a percentage with four decimals is exact and nothing is ever
// rounded twice. Invariant: no price it gives breaks a limit of the rule, is negative or unsafe as a number.

import { isMatch, type Condition, type RuledItem } from './pricing-rule-match.js';

/** Millionths: 12.5 % is 125_000n. */
export type Percent = bigint;

export type Adjustment =
  | { readonly kind: 'percent'; readonly percent: Percent }
  | { readonly kind: 'amount'; readonly amount: bigint }
  | { readonly kind: 'set'; readonly amount: bigint }
  | { readonly kind: 'margin'; readonly percent: Percent };

export const ROUNDING_MODES = ['nearest', 'up', 'down'] as const;
export type RoundingMode = (typeof ROUNDING_MODES)[number];

/** The prices that end in `ending` before the next multiple of `step`: 100 and 99 are 0.99, 1.99, 2.99 … */
export interface Grid {
  readonly mode: RoundingMode;
  readonly step: bigint;
  readonly ending: bigint;
}

export interface Limits {
  readonly floor: bigint | null;
  readonly ceiling: bigint | null;
  readonly minMargin: Percent | null;
  readonly maxChange: Percent | null;
}

export interface RuleDefinition {
  /** The currency of every amount in the rule, and of every item it is for; null: no amount is named. */
  readonly currency: string | null;
  readonly match: Condition;
  readonly adjust: Adjustment;
  readonly round: Grid;
  readonly limits: Limits;
}

export const RULE_LIMITS = ['FLOOR', 'CEILING', 'MIN_MARGIN', 'MAX_CHANGE'] as const;
export type RuleLimit = (typeof RULE_LIMITS)[number];

/** Why a rule leaves an item alone that it matches. */
export const SKIP_REASONS = ['NO_COST', 'LIMITS_CONTRADICT', 'OUT_OF_RANGE'] as const;
export type SkipReason = (typeof SKIP_REASONS)[number];

export type Verdict =
  | { readonly kind: 'UNMATCHED' }
  | { readonly kind: 'SKIPPED'; readonly reason: SkipReason }
  /** `limit` is the one that held the price; the price may still be another than before. */
  | { readonly kind: 'PRICED'; readonly unitAmount: number; readonly limit: RuleLimit | null };

const MILLION = 1_000_000n;
const MAX_AMOUNT = BigInt(Number.MAX_SAFE_INTEGER);

export function evaluateRule(rule: RuleDefinition, item: RuledItem): Verdict {
  if (rule.currency !== null && rule.currency !== item.currency) return { kind: 'UNMATCHED' };
  if (!isMatch(rule.match, item)) return { kind: 'UNMATCHED' };
  if (needsCost(rule) && item.costAmount === null) return { kind: 'SKIPPED', reason: 'NO_COST' };
  const lower = lowerBound(rule.limits, item);
  const upper = upperBound(rule.limits, item);
  if (lower.amount > upper.amount) return { kind: 'SKIPPED', reason: 'LIMITS_CONTRADICT' };
  const rounded = roundToGrid(adjust(rule.adjust, item), rule.round);
  const bound = rounded < lower.amount ? lower : rounded > upper.amount ? upper : null;
  if (bound === null) return { kind: 'PRICED', unitAmount: Number(rounded), limit: null };
  if (bound.limit === null) return { kind: 'SKIPPED', reason: 'OUT_OF_RANGE' };
  const held = holdWithin(lower.amount, upper.amount, bound === lower, rule.round);
  return { kind: 'PRICED', unitAmount: Number(held), limit: bound.limit };
}

function needsCost({ adjust, limits }: RuleDefinition): boolean {
  return adjust.kind === 'margin' || limits.minMargin !== null;
}

/** The new price in millionths of a minor unit, before rounding; it may be negative. */
function adjust(adjustment: Adjustment, item: RuledItem): bigint {
  switch (adjustment.kind) {
    case 'percent':
      return BigInt(item.unitAmount) * (MILLION + adjustment.percent);
    case 'amount':
      return (BigInt(item.unitAmount) + adjustment.amount) * MILLION;
    case 'set':
      return adjustment.amount * MILLION;
    case 'margin':
      return BigInt(item.costAmount!) * (MILLION + adjustment.percent);
  }
}

/**
 * The price on the grid for an amount in millionths; halfway goes up. What is above zero never becomes zero:
 * the grid begins at its first price above it. Zero stays zero, and what is below stays below.
 */
export function roundToGrid(millionths: bigint, { mode, step, ending }: Grid): bigint {
  if (millionths <= 0n) return floorDivide(millionths, MILLION);
  const first = ending > 0n ? ending : step;
  const below = floorDivide(millionths - ending * MILLION, step * MILLION) * step + ending;
  if (below < first) return first;
  const rest = millionths - below * MILLION;
  if (rest === 0n || mode === 'down') return below;
  return mode === 'up' || rest * 2n >= step * MILLION ? below + step : below;
}

interface Bound {
  readonly amount: bigint;
  /** Null: no limit of the rule's, but what a price can be at all. */
  readonly limit: RuleLimit | null;
}

function lowerBound({ floor, minMargin, maxChange }: Limits, item: RuledItem): Bound {
  const bounds: Bound[] = [{ amount: 0n, limit: null }];
  if (floor !== null) bounds.push({ amount: floor, limit: 'FLOOR' });
  if (minMargin !== null) {
    const amount = ceilDivide(BigInt(item.costAmount!) * (MILLION + minMargin), MILLION);
    bounds.push({ amount, limit: 'MIN_MARGIN' });
  }
  if (maxChange !== null) {
    const amount = ceilDivide(BigInt(item.unitAmount) * (MILLION - maxChange), MILLION);
    bounds.push({ amount, limit: 'MAX_CHANGE' });
  }
  return bounds.reduce((a, b) => (b.amount > a.amount || isNamedTwin(a, b) ? b : a));
}

function upperBound({ ceiling, maxChange }: Limits, item: RuledItem): Bound {
  const bounds: Bound[] = [{ amount: MAX_AMOUNT, limit: null }];
  if (ceiling !== null) bounds.push({ amount: ceiling, limit: 'CEILING' });
  if (maxChange !== null) {
    const amount = floorDivide(BigInt(item.unitAmount) * (MILLION + maxChange), MILLION);
    bounds.push({ amount, limit: 'MAX_CHANGE' });
  }
  return bounds.reduce((a, b) => (b.amount < a.amount || isNamedTwin(a, b) ? b : a));
}

/** A floor of zero says that zero will do. */
function isNamedTwin(a: Bound, b: Bound): boolean {
  return a.amount === b.amount && a.limit === null;
}

/** The price on the grid that is nearest to the bound from inside; the bound itself where there is none. */
function holdWithin(lower: bigint, upper: bigint, isLower: boolean, grid: Grid): bigint {
  const bound = isLower ? lower : upper;
  const onGrid = roundToGrid(bound * MILLION, { ...grid, mode: isLower ? 'up' : 'down' });
  return onGrid >= lower && onGrid <= upper ? onGrid : bound;
}

/** BigInt divides towards zero; prices round by direction. The divisor is positive. */
function floorDivide(dividend: bigint, divisor: bigint): bigint {
  const quotient = dividend / divisor;
  return dividend % divisor < 0n ? quotient - 1n : quotient;
}

function ceilDivide(dividend: bigint, divisor: bigint): bigint {
  return -floorDivide(-dividend, divisor);
}
