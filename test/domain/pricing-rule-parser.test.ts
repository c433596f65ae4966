import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseRule } from '../../src/domain/pricing-rule-parser.js';

/** 'path message' of each fault in a definition that is otherwise sound. */
function faultsIn(part: unknown): string[] {
  const definition =
    typeof part === 'object' && part !== null && !Array.isArray(part)
      ? { currency: 'EUR', adjust: { percent: 5 }, ...part }
      : part;
  return parseRule(definition).faults.map(({ path, message }) => `${path.join('.')} ${message}`);
}

test('the least there is to say', () => {
  expect(parseRule({ adjust: { percent: 5 } })).toEqual({
    rule: {
      currency: null,
      match: { kind: 'all', of: [] },
      adjust: { kind: 'percent', percent: 50_000n },
      round: { mode: 'nearest', step: 1n, ending: 0n },
      limits: { floor: null, ceiling: null, minMargin: null, maxChange: null },
    },
    faults: [],
  });
});

test('null is as good as nothing', () => {
  const absent = { match: null, round: null, limits: { floor: null, maxChangePercent: null } };
  expect(faultsIn(absent)).toEqual([]);
});

test('every fault is named at once, each with its path', () => {
  const definition = {
    curency: 'EUR',
    match: {
      all: [
        { field: 'price', gt: 'much' },
        { field: 'colour', eq: 'red' },
      ],
    },
    adjust: { percent: 5, set: 100 },
    round: { mode: 'sideways', step: 0.5 },
    limits: { floor: 500, ceiling: 100, maxChange: 5 },
  };
  expect(parseRule(definition).faults.map(({ path }) => path.join('.'))).toEqual([
    'curency',
    'match.all.0.gt',
    'match.all.1.field',
    'adjust',
    'round.mode',
    'round.step',
    'limits.maxChange',
    'limits.ceiling',
    'currency',
  ]);
});

describe('refused', () => {
  test.each([null, [], 'text', 7, undefined])('a definition that is %j', (definition) => {
    expect(faultsIn(definition)).toEqual([' must be an object of currency, match, adjust, round, limits']);
  });

  test.each([
    [{ adjust: undefined }, 'adjust must be an object of percent, amount, set, marginPercent'],
    [{ adjust: {} }, 'adjust must have exactly one of percent, amount, set, marginPercent'],
    [{ adjust: { percent: 1, amount: 1 } }, 'adjust must have exactly one of'],
    [{ adjust: { percent: '5' } }, 'adjust.percent must be a number from -100 to 1000000'],
    [{ adjust: { percent: -100.5 } }, 'adjust.percent must be a number from -100'],
    [{ adjust: { percent: 1.23456 } }, 'adjust.percent must be a number'],
    [{ adjust: { percent: 1e21 } }, 'adjust.percent must be a number'],
    [{ adjust: { percent: 1e-9 } }, 'adjust.percent must be a number'],
    [{ adjust: { amount: 1.5 } }, 'adjust.amount must be a whole number of minor units'],
    [{ adjust: { set: -1 } }, 'adjust.set must be a whole number of minor units, zero or more'],
    [{ adjust: { set: 2 ** 53 } }, 'adjust.set must be a whole number'],
    [{ round: {} }, 'round.step must be a whole number'],
    [{ round: { step: 0 } }, 'round.step must be 1 or more'],
    [{ round: { step: 100, ending: 100 } }, 'round.ending must be less than the step, 100'],
    [{ round: 5 }, 'round must be an object of mode, step, ending'],
    [{ limits: { floor: -1 } }, 'limits.floor must be a whole number'],
    [{ limits: { floor: 2, ceiling: 1 } }, 'limits.ceiling must not be less than the floor, 2'],
    [{ limits: { maxChangePercent: -1 } }, 'limits.maxChangePercent must be a number from 0'],
    [{ limits: { minMargin: 1 } }, 'limits.minMargin is not known here; there are floor,'],
    [{ currency: 'eur' }, 'currency must be an ISO 4217 currency code such as EUR'],
    [{ currency: null, limits: { floor: 5 } }, 'currency is needed, because limits.floor is an amount'],
    [{ currency: null, adjust: { amount: 5 } }, 'currency is needed, because adjust.amount is an amount'],
    [{ match: [] }, 'match must be an object'],
    [{ match: { price: { gt: 5 } } }, 'match.price is not known here; there are all, any, not, field'],
    [{ match: { all: {} } }, 'match.all must be a list of conditions'],
    [{ match: { any: [] } }, 'match.any is empty: no item would match'],
    [{ match: { all: [], any: [{}] } }, 'match must have exactly one of all, any, not, field'],
    [{ match: { not: null } }, 'match must have exactly one of all, any, not, field'],
    [{ match: { not: [] } }, 'match.not must be an object'],
    [{ match: { field: 'price' } }, 'match needs one of eq, in, gt, gte, lt, lte'],
    [{ match: { field: 'price', exists: true } }, 'match.exists is not known here'],
    [{ match: { field: 'price', eq: 5, all: [] } }, 'match.all is not known here'],
    [{ match: { field: 'price', gt: 5.5 } }, 'match.gt must be a whole number of minor units'],
    [{ match: { field: 'title', gt: 5 } }, 'match.gt is not known here'],
    [{ match: { field: 'title', contains: '' } }, 'match.contains must not be empty'],
    [{ match: { field: 'title', eq: 5 } }, 'match.eq must be a text'],
    [{ match: { field: 'cost', exists: 'yes' } }, 'match.exists must be true or false'],
    [{ match: { field: 'currency', in: ['EUR', 'Euro'] } }, 'match.in.1 must be an ISO 4217 currency code'],
    [{ match: { field: 'title', in: [] } }, 'match.in must be a list of 1 to 1000 values'],
    [{ match: { field: 'title', in: 'a' } }, 'match.in must be a list of 1 to 1000 values'],
    [{ match: { field: 'attributes', eq: 1 } }, 'match.field must be externalId, title,'],
    [{ match: { field: 'attributes.', eq: 1 } }, 'match.field must be'],
    [{ match: { field: 'attributes.a', eq: {} } }, 'match.eq must be a text, a number, true or false'],
    [{ match: { field: 'attributes.a', gt: '5' } }, 'match.gt must be a number'],
    [{ match: { field: 'price.amount', eq: 1 } }, 'match.field must be'],
    [{ match: { field: 'constructor', eq: 1 } }, 'match.field must be'],
    [{ match: { field: ['price'], eq: 1 } }, 'match.field must be'],
  ])('%j', (part, expected) => {
    const faults = faultsIn(part);
    expect(faults.find((fault) => fault.startsWith(expected))).toBeDefined();
  });

  test('conditions nested without end', () => {
    let match: object = { field: 'price', gt: 5 };
    for (let depth = 0; depth < 10_000; depth += 1) match = { not: match };
    expect(faultsIn({ match })).toHaveLength(1);
  });

  test('more conditions in a list than anybody reads', () => {
    const all = Array.from({ length: 201 }, () => ({ field: 'price', gt: 5 }));
    expect(faultsIn({ match: { all } })).toEqual(['match.all has more than 200 conditions']);
  });
});

test('whatever is given, it answers with a rule or with faults, and never throws', () => {
  const keys = [
    'currency',
    'match',
    'adjust',
    'round',
    'limits',
    'all',
    'any',
    'not',
    'field',
    'eq',
    'in',
    'step',
  ];
  const noise = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom('EUR', 'price', 'attributes.a', null, true, 5, -1, 0.1),
      fc.jsonValue(),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom(...keys), tie('value'), { maxKeys: 4 }),
    ),
  })).value;
  fc.assert(
    fc.property(noise, (definition) => {
      const { rule, faults } = parseRule(definition);
      expect(rule === null).toBe(faults.length > 0);
    }),
    { numRuns: 3000 },
  );
});
