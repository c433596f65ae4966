// How large a channel's batches become, by how long they take.
import { describe, expect, test } from 'vitest';
import { BatchSize, isOverdue } from '../../src/runner/batch-size.js';

const CALLS_AT_ONCE = 8;

/** What a batch takes of a channel with so many calls side by side, of so many items each; and its first outcome. */
function timesOf(items: number, callMs: number, perCall: number): [number, number] {
  const rounds = Math.ceil(items / perCall / CALLS_AT_ONCE);
  return [rounds * callMs, callMs];
}

function sizesOver(batches: number, most: number, callMs: number, perCall = 1): number[] {
  const size = new BatchSize(most);
  return Array.from({ length: batches }, () => {
    const { items } = size;
    size.learn(items, ...timesOf(items, callMs, perCall));
    return items;
  });
}

describe('the size', () => {
  test('grows at once where a channel is quick', () => {
    expect(sizesOver(5, 1_000, 0.1)).toEqual([16, 64, 256, 1_000, 1_000]);
  });

  test('is what a channel gets done in half a second', () => {
    for (const items of sizesOver(20, 500, 50).slice(5)) {
      expect(items).toBeGreaterThanOrEqual(70);
      expect(items).toBeLessThanOrEqual(90);
    }
  });

  test('is about as many as are under way at once where one call takes longer than that', () => {
    for (const items of sizesOver(20, 500, 2_000)) {
      expect(items).toBeGreaterThanOrEqual(CALLS_AT_ONCE);
      expect(items).toBeLessThanOrEqual(2 * CALLS_AT_ONCE);
    }
  });

  test('grows where a slow call takes many items', () => {
    expect(sizesOver(12, 500, 600, 250).at(-1)).toBe(500);
  });

  test('never passes what the channel takes, however little that is', () => {
    expect(sizesOver(3, 2, 10)).toEqual([2, 2, 2]);
    expect(sizesOver(3, 2, 5_000)).toEqual([2, 2, 2]);
  });

  test('is not moved by a small batch that was as quick as one call, and shrinks with one that was slower', () => {
    const size = new BatchSize(1_000);
    size.learn(16, 1, 1);
    size.learn(3, 600, 600);
    expect(size.items).toBe(64);
    size.learn(32, 1_000, 100);
    expect(size.items).toBe(16);
  });
});

test('a batch is overdue after a second, or after twice the time until its first outcome', () => {
  expect(isOverdue(1_000, 10)).toBe(false);
  expect(isOverdue(1_001, 10)).toBe(true);
  expect(isOverdue(3_000, 1_500)).toBe(false);
  expect(isOverdue(3_001, 1_500)).toBe(true);
});
