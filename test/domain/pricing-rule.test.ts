import { describe, expect, test } from 'vitest';
import { evaluateRule, type Verdict } from '../../src/domain/pricing-rule.js';
import type { RuledItem } from '../../src/domain/pricing-rule-match.js';
import { parseRule } from '../../src/domain/pricing-rule-parser.js';

const SHIRT: RuledItem = {
  externalId: 'sku-1',
  title: 'Linen Shirt, blue',
  unitAmount: 2000,
  costAmount: 800,
  currency: 'EUR',
  attributes: { brand: 'Acme', stock: 12, sale: false, tags: ['summer', 'linen'], size: { width: 40.5 } },
};

function evaluate(definition: object, item: Partial<RuledItem> = {}): Verdict {
  const { rule, faults } = parseRule({ currency: 'EUR', ...definition });
  expect(faults).toEqual([]);
  return evaluateRule(rule!, { ...SHIRT, ...item });
}

const priced = (unitAmount: number, limit: string | null = null) => ({ kind: 'PRICED', unitAmount, limit });
const skipped = (reason: string) => ({ kind: 'SKIPPED', reason });

describe('adjust', () => {
  test.each([
    [{ percent: 10 }, 2000, 2200],
    [{ percent: -12.5 }, 2000, 1750],
    [{ percent: 0 }, 2000, 2000],
    [{ percent: -100 }, 2000, 0],
    [{ percent: 8.3333 }, 2000, 2167],
    [{ percent: 0.0001 }, 500_000, 500_001],
    [{ percent: 0.0001 }, 499_999, 499_999],
    [{ amount: 250 }, 2000, 2250],
    [{ amount: -250 }, 2000, 1750],
    [{ set: 1 }, 2000, 1],
    [{ set: 0 }, 2000, 0],
    [{ marginPercent: 50 }, 2000, 1200],
    [{ marginPercent: 0 }, 2000, 800],
  ])('%j of %d is %d', (adjust, unitAmount, expected) => {
    expect(evaluate({ adjust }, { unitAmount })).toEqual(priced(expected));
  });

  test('a percentage is exact where a float is not', () => {
    // 1.1 × 45035996273704.95 in floats is off; here the halfway cent is seen for what it is.
    expect(evaluate({ adjust: { percent: 10 } }, { unitAmount: 4_503_599_627_370_495 })).toEqual(
      priced(4_953_959_590_107_545),
    );
    expect(evaluate({ adjust: { percent: 15 } }, { unitAmount: 10 })).toEqual(priced(12));
  });

  test('a price above zero does not round to nothing', () => {
    expect(evaluate({ adjust: { percent: -60 } }, { unitAmount: 1 })).toEqual(priced(1));
  });

  test.each([
    ['below zero', { amount: -2001 }],
    ['past what a number holds', { amount: Number.MAX_SAFE_INTEGER }],
  ])('%s: the item is left alone', (_, adjust) => {
    expect(evaluate({ adjust })).toEqual(skipped('OUT_OF_RANGE'));
  });

  test('without a cost there is no margin over it', () => {
    expect(evaluate({ adjust: { marginPercent: 50 } }, { costAmount: null })).toEqual(skipped('NO_COST'));
  });
});

describe('round', () => {
  test.each([
    [{ step: 5 }, 1012, 1010],
    [{ step: 5 }, 1013, 1015],
    [{ step: 10 }, 1015, 1020],
    [{ mode: 'up', step: 100 }, 1001, 1100],
    [{ mode: 'up', step: 100 }, 1100, 1100],
    [{ mode: 'down', step: 100 }, 1099, 1000],
    [{ step: 100, ending: 99 }, 1049, 1099],
    [{ step: 100, ending: 99 }, 1048, 999],
    [{ mode: 'down', step: 100, ending: 99 }, 1098, 999],
    [{ mode: 'up', step: 1000, ending: 990 }, 991, 1990],
    // Nothing on the grid is lower: the first price is it.
    [{ mode: 'down', step: 100, ending: 99 }, 50, 99],
    [{ mode: 'down', step: 100 }, 50, 100],
    [{ step: 100 }, 0, 0],
  ])('%j takes %d to %d', (round, set, expected) => {
    expect(evaluate({ adjust: { set }, round })).toEqual(priced(expected));
  });

  test('it sees the exact amount, not one that was rounded before', () => {
    // 4 % more than 1445 is 1502.8, and 3.8 % more 1499.91: whole units first would make that 1500.
    const round = { mode: 'down', step: 500 };
    expect(evaluate({ adjust: { percent: 3.8 }, round }, { unitAmount: 1445 })).toEqual(priced(1000));
    expect(evaluate({ adjust: { percent: 4 }, round }, { unitAmount: 1445 })).toEqual(priced(1500));
  });
});

describe('limits', () => {
  test.each([
    [{ floor: 1500 }, -50, priced(1500, 'FLOOR')],
    [{ floor: 1000 }, -50, priced(1000)],
    [{ ceiling: 2100 }, 50, priced(2100, 'CEILING')],
    [{ minMarginPercent: 50 }, -50, priced(1200, 'MIN_MARGIN')],
    [{ maxChangePercent: 5 }, 50, priced(2100, 'MAX_CHANGE')],
    [{ maxChangePercent: 5 }, -50, priced(1900, 'MAX_CHANGE')],
    [{ maxChangePercent: 0 }, 50, priced(2000, 'MAX_CHANGE')],
    // The tightest one is named.
    [{ floor: 1100, minMarginPercent: 50, maxChangePercent: 90 }, -50, priced(1200, 'MIN_MARGIN')],
    [{ ceiling: 2500, maxChangePercent: 10 }, 50, priced(2200, 'MAX_CHANGE')],
  ])('%j at %d %%', (limits, percent, expected) => {
    expect(evaluate({ adjust: { percent }, limits })).toEqual(expected);
  });

  test('bounds that fall between two units lie inside the limit', () => {
    const limits = { maxChangePercent: 5 };
    expect(evaluate({ adjust: { percent: 50 }, limits }, { unitAmount: 1999 })).toEqual(
      priced(2098, 'MAX_CHANGE'),
    );
    expect(evaluate({ adjust: { percent: -50 }, limits }, { unitAmount: 1999 })).toEqual(
      priced(1900, 'MAX_CHANGE'),
    );
  });

  test('a limit beats the grid, but keeps to it where it can', () => {
    const round = { step: 100, ending: 99 };
    expect(evaluate({ adjust: { percent: -50 }, round, limits: { floor: 1500 } })).toEqual(
      priced(1599, 'FLOOR'),
    );
    expect(evaluate({ adjust: { percent: 50 }, round, limits: { ceiling: 2500 } })).toEqual(
      priced(2499, 'CEILING'),
    );
    expect(evaluate({ adjust: { percent: -50 }, round, limits: { floor: 1500, ceiling: 1520 } })).toEqual(
      priced(1500, 'FLOOR'),
    );
  });

  test('a price that rounding carries past a limit comes back inside', () => {
    const definition = { adjust: { percent: 4 }, round: { mode: 'up', step: 500 } };
    expect(evaluate({ ...definition, limits: { maxChangePercent: 5 } })).toEqual(priced(2000, 'MAX_CHANGE'));
  });

  test.each([
    ['floor and max change', { floor: 3000, maxChangePercent: 10 }, {}],
    ['ceiling and min margin', { ceiling: 900, minMarginPercent: 50 }, {}],
    ['ceiling and max change', { ceiling: 1000, maxChangePercent: 10 }, {}],
    ['min margin and max change', { minMarginPercent: 50, maxChangePercent: 10 }, { costAmount: 3000 }],
  ])('where %s leave no price, the item is left alone', (_, limits, item) => {
    expect(evaluate({ adjust: { percent: 5 }, limits }, item)).toEqual(skipped('LIMITS_CONTRADICT'));
  });

  test('a floor catches what would fall below zero, even a floor of zero', () => {
    expect(evaluate({ adjust: { amount: -9000 }, limits: { floor: 100 } })).toEqual(priced(100, 'FLOOR'));
    expect(evaluate({ adjust: { amount: -9000 }, limits: { floor: 0 } })).toEqual(priced(0, 'FLOOR'));
  });

  test('a margin limit without a cost cannot be kept, so the item is left alone', () => {
    const definition = { adjust: { percent: 5 }, limits: { minMarginPercent: 0 } };
    expect(evaluate(definition, { costAmount: null })).toEqual(skipped('NO_COST'));
  });
});

describe('match', () => {
  const isMatched = (match: object, item: Partial<RuledItem> = {}) =>
    evaluate({ match, adjust: { percent: 5 } }, item).kind === 'PRICED';

  test.each([
    [{}, true],
    [{ all: [] }, true],
    [{ field: 'externalId', eq: 'sku-1' }, true],
    [{ field: 'title', contains: 'SHIRT' }, true],
    [{ field: 'title', contains: 'trousers' }, false],
    [{ field: 'title', eq: 'linen shirt, blue' }, false],
    [{ field: 'title', in: ['Hat', 'Linen Shirt, blue'] }, true],
    [{ field: 'price', eq: 2000 }, true],
    [{ field: 'price', in: [1999, 2000] }, true],
    [{ field: 'price', gt: 2000 }, false],
    [{ field: 'price', gte: 2000 }, true],
    [{ field: 'price', lt: 2000 }, false],
    [{ field: 'price', lte: 2000 }, true],
    [{ field: 'price', gte: 1000, lt: 2000 }, false],
    [{ field: 'cost', lt: 801 }, true],
    [{ field: 'cost', exists: true }, true],
    [{ field: 'currency', eq: 'EUR' }, true],
    [{ field: 'currency', in: ['USD', 'EUR'] }, true],
    [{ field: 'attributes.brand', eq: 'Acme' }, true],
    [{ field: 'attributes.brand', contains: 'cm' }, true],
    [{ field: 'attributes.stock', gt: 11.5 }, true],
    [{ field: 'attributes.stock', eq: '12' }, false],
    [{ field: 'attributes.stock', contains: '1' }, false],
    [{ field: 'attributes.sale', eq: false }, true],
    [{ field: 'attributes.tags', contains: 'linen' }, true],
    [{ field: 'attributes.tags', contains: 'lin' }, false],
    [{ field: 'attributes.tags', eq: 'linen' }, false],
    [{ field: 'attributes.size.width', lte: 40.5 }, true],
    [{ field: 'attributes.size', exists: true }, true],
    [{ field: 'attributes.colour', exists: false }, true],
    [{ field: 'attributes.colour', lt: 5 }, false],
    [{ not: { field: 'attributes.colour', lt: 5 } }, true],
    [{ field: 'attributes.constructor', exists: true }, false],
    [{ field: 'attributes.__proto__.toString', exists: true }, false],
    [{ field: 'attributes.tags.length', exists: true }, false],
    [
      {
        all: [
          { field: 'price', gt: 1 },
          { field: 'cost', gt: 1 },
        ],
      },
      true,
    ],
    [
      {
        all: [
          { field: 'price', gt: 1 },
          { field: 'cost', gt: 801 },
        ],
      },
      false,
    ],
    [
      {
        any: [
          { field: 'price', lt: 1 },
          { field: 'cost', gt: 1 },
        ],
      },
      true,
    ],
    [
      {
        not: {
          any: [
            { field: 'price', lt: 1 },
            { field: 'cost', gt: 1 },
          ],
        },
      },
      false,
    ],
  ])('%j: %s', (match, expected) => {
    expect(isMatched(match)).toBe(expected);
  });

  test('a missing cost fails every test but its absence', () => {
    const item = { costAmount: null };
    expect(isMatched({ field: 'cost', exists: false }, item)).toBe(true);
    expect(isMatched({ field: 'cost', gte: 0 }, item)).toBe(false);
    expect(isMatched({ field: 'cost', lt: 5 }, item)).toBe(false);
  });

  test("an item in another currency is not the rule's", () => {
    expect(evaluate({ adjust: { set: 500 } }, { currency: 'JPY' })).toEqual({ kind: 'UNMATCHED' });
    expect(evaluate({ currency: null, adjust: { percent: 5 } }, { currency: 'JPY' })).toEqual(priced(2100));
  });

  test.each([null, [], 'text', 7])('attributes that are %j have nothing in them', (attributes) => {
    expect(isMatched({ field: 'attributes.brand', exists: true }, { attributes })).toBe(false);
  });
});
