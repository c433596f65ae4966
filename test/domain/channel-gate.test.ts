// The gate before a channel: what it lets through, whatever the state and the limits, and how it reads a
// batch's answers.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { admitBatch, countStreaks, PROBE_ITEMS, type GateState } from '../../src/domain/channel-gate.js';

const OPEN_GATE: GateState = { circuit: 'CLOSED', waitIsOver: true, tokens: null, capacity: null, busy: 0 };
const perItem =
  (price: number, base = 0) =>
  (items: number) =>
    base + items * price;
const NO_LIMITS = { concurrency: null, costOf: () => 0 };

describe('admitBatch', () => {
  test('without limits all of it goes', () => {
    expect(admitBatch(OPEN_GATE, NO_LIMITS, 500)).toEqual({ items: 500, cost: 0, isProbe: false });
  });

  test.each([
    { circuit: 'OPEN', waitIsOver: false, items: null },
    { circuit: 'HALF_OPEN', waitIsOver: false, items: null },
    { circuit: 'OPEN', waitIsOver: true, items: PROBE_ITEMS },
    { circuit: 'HALF_OPEN', waitIsOver: true, items: PROBE_ITEMS },
  ] as const)('$circuit, wait over $waitIsOver: $items', ({ circuit, waitIsOver, items }) => {
    const admission = admitBatch({ ...OPEN_GATE, circuit, waitIsOver }, NO_LIMITS, 500);
    expect(admission).toEqual(items === null ? null : { items, cost: 0, isProbe: true });
  });

  test('no more batches than may be under way', () => {
    const limits = { ...NO_LIMITS, concurrency: 2 };
    expect(admitBatch({ ...OPEN_GATE, busy: 1 }, limits, 5)).toMatchObject({ items: 5 });
    expect(admitBatch({ ...OPEN_GATE, busy: 2 }, limits, 5)).toBeNull();
  });

  test('as many items as the tokens pay for, and not one more', () => {
    const figures = {
      tokens: fc.double({ min: 0, max: 50_000, noNaN: true }),
      capacity: fc.double({ min: 1, max: 50_000, noNaN: true }),
      price: fc.double({ min: 0.01, max: 20, noNaN: true }),
      base: fc.integer({ min: 0, max: 50 }),
      wanted: fc.integer({ min: 1, max: 1_000 }),
    };
    fc.assert(
      fc.property(fc.record(figures), ({ tokens, capacity, price, base, wanted }) => {
        const costOf = perItem(price, base);
        const admission = admitBatch(
          { ...OPEN_GATE, tokens, capacity },
          { concurrency: null, costOf },
          wanted,
        );
        if (admission === null) {
          expect(costOf(1)).toBeGreaterThan(tokens);
          expect(tokens).toBeLessThan(capacity);
          return;
        }
        const { items, cost } = admission;
        expect(items).toBeGreaterThanOrEqual(1);
        expect(items).toBeLessThanOrEqual(wanted);
        // A full bucket serves one item whatever it costs.
        expect(cost).toBeLessThanOrEqual(Math.max(tokens, capacity));
        if (costOf(1) <= tokens && items < wanted) expect(costOf(items + 1)).toBeGreaterThan(tokens);
      }),
    );
  });
});

test('countStreaks finds what a reader of the answers finds', () => {
  fc.assert(
    fc.property(fc.array(fc.boolean(), { maxLength: 40 }), (isThrottled) => {
      const runs = isThrottled.map((throttled) => (throttled ? 'x' : ' ')).join('');
      expect(countStreaks(isThrottled)).toEqual({
        leading: /^x*/.exec(runs)![0].length,
        trailing: /x*$/.exec(runs)![0].length,
        longest: Math.max(0, ...runs.split(' ').map((run) => run.length)),
        throttled: runs.split('x').length - 1,
        sawOther: runs.includes(' '),
      });
    }),
  );
});
