import fc from 'fast-check';
import { expect, test } from 'vitest';
import { planRanges, type CountedRange, type PriceRange } from '../../src/connectors/heatmap.js';

function counterOf(prices: readonly number[]) {
  const asked: PriceRange[] = [];
  const count = async (range: PriceRange): Promise<number> => {
    asked.push(range);
    return prices.filter((price) => price >= range.min && price <= (range.max ?? Infinity)).length;
  };
  return { asked, count };
}

function expectCover(ranges: readonly CountedRange[]): void {
  expect(ranges[0]!.min).toBe(0);
  expect(ranges.at(-1)!.max).toBeNull();
  ranges.slice(1).forEach(({ min }, index) => expect(min).toBe(ranges[index]!.max! + 1));
}

test('no records, no ranges', async () => {
  expect(await planRanges({ ...counterOf([]), partitions: 30, smallest: 60 })).toEqual([]);
});

test('a crowded low end is split, an empty stretch is not', async () => {
  // 30,000 records, most of them cheap, as in a real stock.
  const prices = Array.from({ length: 30_000 }, (_, i) => Math.floor(15_000 * 400 ** ((i / 30_000) ** 2)));
  const { asked, count } = counterOf(prices);
  const ranges = await planRanges({ count, partitions: 30, smallest: 60 });
  expectCover(ranges);
  expect(ranges).toHaveLength(30);
  for (const range of ranges) {
    expect(range.count).toBe(await count(range));
    expect(range.count).toBeGreaterThan(1_000 * 0.5);
    expect(range.count).toBeLessThan(1_000 * 2);
  }
  expect(asked.length).toBeLessThan(250);
});

test('records of one price cannot be split and do not stop the plan', async () => {
  const ranges = await planRanges({ ...counterOf(Array(5_000).fill(999)), partitions: 10, smallest: 60 });
  expectCover(ranges);
  expect(ranges.map((range) => range.count).filter((count) => count > 0)).toEqual([5_000]);
});

test('few records are one range', async () => {
  const ranges = await planRanges({ ...counterOf([1, 50, 9_000]), partitions: 30, smallest: 60 });
  expect(ranges).toEqual([{ min: 0, max: null, count: 3 }]);
});

test('a feed that changes while it is counted still gives a whole plan', async () => {
  let calls = 0;
  const count = async ({ min, max }: PriceRange): Promise<number> => {
    calls += 1;
    return (max ?? 10 ** 6) - min > 0 ? Math.max(0, 1_000 - calls * 10) : 5;
  };
  const ranges = await planRanges({ count, partitions: 8, smallest: 10 });
  expectCover(ranges);
  expect(calls).toBeLessThan(200);
});

test('whatever the prices: no gap, no overlap, every record in exactly one range', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.nat(10 ** 7), { maxLength: 300 }),
      fc.integer({ min: 1, max: 20 }),
      async (prices, partitions) => {
        const ranges = await planRanges({ ...counterOf(prices), partitions, smallest: 5 });
        if (prices.length > 0) expectCover(ranges);
        expect(ranges.length).toBeLessThanOrEqual(partitions);
        expect(ranges.reduce((sum, { count }) => sum + count, 0)).toBe(prices.length);
      },
    ),
    { numRuns: 60 },
  );
});
