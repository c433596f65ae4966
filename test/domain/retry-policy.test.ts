// When to try again: the documented delays, their bounds for any policy, and what ends the trying.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  DEFAULT_RETRY_POLICY,
  isExhausted,
  nextDelayMs,
  type RetryPolicy,
} from '../../src/domain/retry-policy.js';
import { settlementOf } from '../../src/domain/rule-target.js';

const middle = () => 0.5;

const policies: fc.Arbitrary<RetryPolicy> = fc
  .record({
    maxAttempts: fc.integer({ min: 1, max: 20 }),
    baseMs: fc.integer({ min: 1, max: 100_000 }),
    throttleBaseMs: fc.integer({ min: 1, max: 100_000 }),
    headroomMs: fc.integer({ min: 0, max: 86_400_000 }),
    multiplier: fc.double({ min: 1, max: 10, noNaN: true }),
    jitter: fc.double({ min: 0, max: 1, noNaN: true }),
  })
  .map(({ headroomMs, ...policy }) => ({
    ...policy,
    maxMs: Math.max(policy.baseMs, policy.throttleBaseMs) + headroomMs,
  }));
const attempts = fc.integer({ min: 1, max: 2000 });
const randoms = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe('delays', () => {
  test.each([
    [1, 2_000],
    [2, 4_000],
    [3, 8_000],
    [6, 64_000],
    [7, 64_000],
    [5_000, 64_000],
  ])('after attempt %i about %i ms', (attempt, delay) => {
    expect(nextDelayMs(DEFAULT_RETRY_POLICY, attempt, false, middle)).toBe(delay);
  });

  test.each([
    [1, 16_000],
    [2, 32_000],
    [3, 64_000],
    [4, 64_000],
  ])('after throttled attempt %i about %i ms', (attempt, delay) => {
    expect(nextDelayMs(DEFAULT_RETRY_POLICY, attempt, true, middle)).toBe(delay);
  });

  test('jitter spreads a delay over ± 20 %', () => {
    expect(nextDelayMs(DEFAULT_RETRY_POLICY, 1, false, () => 0)).toBe(1_600);
    expect(nextDelayMs(DEFAULT_RETRY_POLICY, 1, false, () => 0.999999)).toBe(2_399);
  });

  test('are whole, never negative and never above the cap and its jitter', () => {
    fc.assert(
      fc.property(policies, attempts, fc.boolean(), randoms, (policy, attempt, throttled, random) => {
        const delay = nextDelayMs(policy, attempt, throttled, () => random);
        expect(Number.isSafeInteger(delay)).toBe(true);
        expect(delay).toBeGreaterThanOrEqual(0);
        expect(delay).toBeLessThanOrEqual(Math.ceil(policy.maxMs * (1 + policy.jitter)));
      }),
    );
  });

  test('do not shrink from one attempt to the next', () => {
    fc.assert(
      fc.property(policies, attempts, fc.boolean(), randoms, (policy, attempt, throttled, random) => {
        const [now, next] = [attempt, attempt + 1].map((n) =>
          nextDelayMs(policy, n, throttled, () => random),
        );
        expect(next!).toBeGreaterThanOrEqual(now!);
      }),
    );
  });
});

describe('settlements', () => {
  test('an attempt ends in exactly one event, by its outcome and number', () => {
    const outcomes = fc.constantFrom('applied', 'retryable', 'permanent');
    fc.assert(
      fc.property(policies, attempts, outcomes, randoms, (policy, attempt, kind, random) => {
        const outcome =
          kind === 'applied' ? ({ kind } as const) : ({ kind, code: 'UPSTREAM', message: 'no' } as const);
        const settlement = settlementOf(outcome, attempt, policy, () => random);
        const event =
          kind === 'applied'
            ? 'succeed'
            : kind === 'permanent' || isExhausted(policy, attempt)
              ? 'exhaust'
              : 'retry';
        expect(settlement.event).toBe(event);
      }),
    );
  });

  test('a target is retried maxAttempts - 1 times and then exhausted', () => {
    fc.assert(
      fc.property(policies, (policy) => {
        const outcome = { kind: 'retryable', code: 'UPSTREAM', message: 'busy' } as const;
        let retries = 0;
        while (settlementOf(outcome, retries + 1, policy, middle).event === 'retry') retries += 1;
        expect(retries).toBe(policy.maxAttempts - 1);
      }),
    );
  });

  test('a delay that the channel named stands as it is', () => {
    const outcome = {
      kind: 'retryable',
      code: 'RATE_LIMITED',
      message: 'slow down',
      retryAfterMs: 7,
    } as const;
    expect(settlementOf(outcome, 1, DEFAULT_RETRY_POLICY, middle)).toEqual({
      event: 'retry',
      delayMs: 7,
      code: 'RATE_LIMITED',
      message: 'slow down',
    });
  });

  test('a throttled attempt waits from the higher base', () => {
    const throttled = { kind: 'retryable', code: 'RATE_LIMITED', message: '' } as const;
    expect(settlementOf(throttled, 1, DEFAULT_RETRY_POLICY, middle)).toMatchObject({ delayMs: 16_000 });
    expect(settlementOf({ ...throttled, code: 'UPSTREAM' }, 1, DEFAULT_RETRY_POLICY, middle)).toMatchObject({
      delayMs: 2_000,
    });
  });
});
