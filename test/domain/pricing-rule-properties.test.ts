// What must hold for every rule and every item: amounts from nothing to the largest safe integer, currencies
// with no, two and three decimals, limits that bind, contradict each other or lie far away.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { evaluateRule, roundToGrid, type Grid, type RuleDefinition } from '../../src/domain/pricing-rule.js';
import type { RuledItem } from '../../src/domain/pricing-rule-match.js';
import { parseRule } from '../../src/domain/pricing-rule-parser.js';

const amount = fc.oneof(fc.nat(50), fc.nat(100_000), fc.maxSafeNat());
const currency = fc.constantFrom('EUR', 'JPY', 'KWD');
/** With up to four decimals, as people write them. */
const percent = (min: number, max: number) =>
  fc.integer({ min: min * 10_000, max: max * 10_000 }).map((parts) => parts / 10_000);
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });

const item = (code: string): fc.Arbitrary<RuledItem> =>
  fc.record({
    externalId: fc.constant('sku'),
    title: fc.constant('item'),
    unitAmount: amount,
    costAmount: fc.option(amount),
    currency: fc.constant(code),
    attributes: fc.constant({}),
  });

const adjust = fc.oneof(
  percent(-100, 1000).map((value) => ({ percent: value })),
  fc.maxSafeInteger().map((value) => ({ amount: value })),
  fc.integer({ min: -1000, max: 1000 }).map((value) => ({ amount: value })),
  amount.map((value) => ({ set: value })),
  percent(-100, 1000).map((value) => ({ marginPercent: value })),
);

const round = fc
  .record({ mode: fc.constantFrom('nearest', 'up', 'down'), step: amount, ending: fc.nat() })
  .map(({ mode, step, ending }) => ({ mode, step: step + 1, ending: ending % (step + 1) }))
  .filter(({ step }) => Number.isSafeInteger(step));

const limits = fc
  .record({
    floor: maybe(amount),
    ceiling: maybe(amount),
    minMarginPercent: maybe(percent(-100, 300)),
    maxChangePercent: maybe(percent(0, 300)),
  })
  .filter(({ floor = 0, ceiling = Number.MAX_SAFE_INTEGER }) => floor <= ceiling);

const definition = (code: string) =>
  fc.record({ currency: fc.constant(code), adjust, round: maybe(round), limits: maybe(limits) });

const ruleAndItem = currency.chain((code) => fc.tuple(definition(code), item(code)));

function parse(value: unknown): RuleDefinition {
  const { rule, faults } = parseRule(value);
  expect(faults).toEqual([]);
  return rule!;
}

/** A percentage in millionths of the whole. */
const millionths = (value: number) => BigInt(Math.round(value * 10_000));

describe('every price that a rule gives', () => {
  const check = (
    holds: (given: { before: bigint; after: bigint; cost: bigint; limits: Record<string, number> }) => void,
  ) =>
    fc.assert(
      fc.property(ruleAndItem, ([written, given]) => {
        const verdict = evaluateRule(parse(written), given);
        if (verdict.kind !== 'PRICED') return;
        holds({
          before: BigInt(given.unitAmount),
          after: BigInt(verdict.unitAmount),
          cost: BigInt(given.costAmount ?? 0),
          limits: (written.limits ?? {}) as Record<string, number>,
        });
      }),
      { numRuns: 3000 },
    );

  test('is whole, safe and not negative', () => {
    fc.assert(
      fc.property(ruleAndItem, ([written, given]) => {
        const verdict = evaluateRule(parse(written), given);
        if (verdict.kind !== 'PRICED') return;
        expect(Number.isSafeInteger(verdict.unitAmount) && verdict.unitAmount >= 0).toBe(true);
      }),
      { numRuns: 3000 },
    );
  });

  test('is not below the floor, nor above the ceiling', () => {
    check(({ after, limits: { floor = 0, ceiling = Number.MAX_SAFE_INTEGER } }) => {
      expect(after >= BigInt(floor) && after <= BigInt(ceiling)).toBe(true);
    });
  });

  test('changes by no more than the maximum', () => {
    check(({ before, after, limits: { maxChangePercent } }) => {
      if (maxChangePercent === undefined) return;
      const change = after > before ? after - before : before - after;
      expect(change * 1_000_000n <= before * millionths(maxChangePercent)).toBe(true);
    });
  });

  test('leaves the least margin over the cost', () => {
    check(({ after, cost, limits: { minMarginPercent } }) => {
      if (minMarginPercent === undefined) return;
      expect((after - cost) * 1_000_000n >= cost * millionths(minMarginPercent)).toBe(true);
    });
  });

  test('is on the grid, unless a limit held it', () => {
    fc.assert(
      fc.property(ruleAndItem, ([written, given]) => {
        const rule = parse(written);
        const verdict = evaluateRule(rule, given);
        if (verdict.kind !== 'PRICED' || verdict.limit !== null || verdict.unitAmount === 0) return;
        expect(BigInt(verdict.unitAmount) % rule.round.step).toBe(rule.round.ending);
      }),
      { numRuns: 3000 },
    );
  });

  test('is held by a limit only when that limit is set', () => {
    const keys = {
      FLOOR: 'floor',
      CEILING: 'ceiling',
      MIN_MARGIN: 'minMarginPercent',
      MAX_CHANGE: 'maxChangePercent',
    };
    fc.assert(
      fc.property(ruleAndItem, ([written, given]) => {
        const verdict = evaluateRule(parse(written), given);
        if (verdict.kind !== 'PRICED' || verdict.limit === null) return;
        expect((written.limits as Record<string, unknown>)[keys[verdict.limit]]).toBeDefined();
      }),
      { numRuns: 2000 },
    );
  });
});

test('an item that was dearer is not cheaper afterwards', () => {
  fc.assert(
    fc.property(ruleAndItem, amount, ([written, given], other) => {
      const rule = parse(written);
      const [low, high] = [given.unitAmount, other].sort((a, b) => a - b) as [number, number];
      const cheap = evaluateRule(rule, { ...given, unitAmount: low });
      const dear = evaluateRule(rule, { ...given, unitAmount: high });
      if (cheap.kind !== 'PRICED' || dear.kind !== 'PRICED') return;
      expect(cheap.unitAmount).toBeLessThanOrEqual(dear.unitAmount);
    }),
    { numRuns: 5000 },
  );
});

test('a wider max change never takes the price further from where the rule wants it', () => {
  fc.assert(
    fc.property(ruleAndItem, percent(0, 200), percent(0, 200), ([written, given], one, two) => {
      const wanted = evaluateRule(parse({ ...written, limits: undefined, round: undefined }), given);
      const distance = (maxChangePercent: number) => {
        const verdict = evaluateRule(
          parse({ ...written, limits: { maxChangePercent }, round: undefined }),
          given,
        );
        if (verdict.kind !== 'PRICED' || wanted.kind !== 'PRICED') return null;
        return Math.abs(verdict.unitAmount - wanted.unitAmount);
      };
      const narrow = distance(Math.min(one, two));
      const wide = distance(Math.max(one, two));
      if (narrow !== null && wide !== null) expect(wide).toBeLessThanOrEqual(narrow);
    }),
  );
});

describe('rounding', () => {
  const grid: fc.Arbitrary<Grid> = round.map(({ mode, step, ending }) => ({
    mode: mode as Grid['mode'],
    step: BigInt(step),
    ending: BigInt(ending),
  }));
  const exact = fc.bigInt({ min: 0n, max: BigInt(Number.MAX_SAFE_INTEGER) * 1_000_000n });
  const both = (holds: (value: bigint, rounded: bigint, by: Grid) => void) =>
    fc.assert(
      fc.property(exact, grid, (value, by) => {
        holds(value, roundToGrid(value, by), by);
      }),
      {
        numRuns: 3000,
      },
    );

  test('twice is the same as once', () => {
    both((_value, rounded, by) => {
      expect(roundToGrid(rounded * 1_000_000n, by)).toBe(rounded);
    });
  });

  test('up is not lower, down is not higher unless the grid begins above', () => {
    both((value, rounded, by) => {
      if (by.mode === 'up') expect(rounded * 1_000_000n >= value).toBe(true);
      const first = by.ending > 0n ? by.ending : by.step;
      if (by.mode === 'down') expect(rounded * 1_000_000n <= value || rounded === first).toBe(true);
    });
  });

  test('nearest is nearest: no neighbour on the grid is closer, and halfway goes up', () => {
    both((value, rounded, by) => {
      if (by.mode !== 'nearest' || value === 0n) return;
      const off = rounded * 1_000_000n - value;
      const half = by.step * 1_000_000n;
      expect(off * 2n <= half || rounded <= by.step).toBe(true);
      expect(-off * 2n < half).toBe(true);
    });
  });

  test('keeps the order of amounts', () => {
    fc.assert(
      fc.property(exact, exact, grid, (a, b, by) => {
        const [low, high] = a < b ? [a, b] : [b, a];
        expect(roundToGrid(low, by) <= roundToGrid(high, by)).toBe(true);
      }),
      { numRuns: 3000 },
    );
  });
});
