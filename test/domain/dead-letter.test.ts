import { expect, test } from 'vitest';
import { adviseOn } from '../../src/domain/dead-letter.js';

test('every reason that a target fails for has advice of its own, the most frequent first', () => {
  const codes = [
    'RATE_LIMITED',
    'TIMEOUT',
    'AUTH',
    'INVALID',
    'CONFLICT',
    'UPSTREAM',
    'LEASE_EXPIRED',
    'UNKNOWN',
  ];
  const counts = Object.fromEntries(codes.map((code, index) => [code, index + 1]));
  const advice = adviseOn(counts);
  expect(advice.map((line) => line.split(':')[0])).toEqual(
    codes.map((code) => `${code} (${counts[code]})`).reverse(),
  );
  expect(new Set(advice.map((line) => line.split(': ')[1])).size).toBe(codes.length);
});

test('a reason of which nothing is known has some, and no dead letters need none', () => {
  expect(adviseOn({ STRANGE: 2 })).toEqual([expect.stringMatching(/^STRANGE \(2\): .*history/)]);
  expect(adviseOn({})).toEqual([]);
});
