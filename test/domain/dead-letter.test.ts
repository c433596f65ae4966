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
    'UNRECORDED',
    'UNKNOWN',
  ];
  const advice = adviseOn(codes.map((code, index) => ({ code, count: index + 1, beyondRetry: 0 })));
  expect(advice.map((line) => line.split(':')[0])).toEqual(
    codes.map((code, index) => `${code} (${index + 1})`).reverse(),
  );
  expect(new Set(advice.map((line) => line.split(': ')[1])).size).toBe(codes.length);
});

test('a reason of which nothing is known has some, and no dead letters need none', () => {
  expect(adviseOn([{ code: 'STRANGE', count: 2, beyondRetry: 0 }])).toEqual([
    expect.stringMatching(/^STRANGE \(2\): .*history/),
  ]);
  expect(adviseOn([])).toEqual([]);
});

test('what can no longer be retried is not advised to be', () => {
  const counts = [
    { code: 'AUTH', count: 5, beyondRetry: 3 },
    { code: 'TIMEOUT', count: 4, beyondRetry: 4 },
  ];
  expect(adviseOn(counts)).toEqual([
    expect.stringMatching(/^AUTH \(2\): .*then retry/),
    expect.stringMatching(/^7 of them cannot be retried: .*new run/),
  ]);
});
