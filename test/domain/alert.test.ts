// When an alert fires and resolves: the documented thresholds, at their very edge, and never twice.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  ALERT_POLICIES,
  defaultSettings,
  describeAlert,
  isBreached,
  nextAlertEvent,
  noticeDelaySeconds,
  POLICY_RULES,
} from '../../src/domain/alert.js';

/** What they are about has a name, and there is nothing to count. */
const NAMED: ReadonlySet<string> = new Set(['CIRCUIT_OPEN', 'PIPELINE_FAILED']);

describe('policies', () => {
  test.each([
    ['LOW_SUCCESS_RATE', 'WARNING', 97, 96.99],
    ['CRITICAL_SUCCESS_RATE', 'CRITICAL', 90, 89.99],
    ['DLQ_BACKLOG', 'WARNING', 50, 51],
    ['DLQ_CRITICAL', 'CRITICAL', 100, 101],
    ['THROTTLE_BURST', 'WARNING', 3, 4],
    ['CIRCUIT_OPEN', 'WARNING', 0, 1],
    ['PIPELINE_FAILED', 'CRITICAL', 0, 1],
    ['OLD_TRANSACTION', 'WARNING', 600, 601],
  ] as const)('%s is a %s: %d is well, %d is not', (policy, severity, well, breached) => {
    const settings = defaultSettings(policy);
    expect(POLICY_RULES[policy].severity).toBe(severity);
    expect(isBreached(policy, settings, well)).toBe(false);
    expect(isBreached(policy, settings, breached)).toBe(true);
    expect(isBreached(policy, { ...settings, enabled: false }, breached)).toBe(false);
  });

  test('429s are counted over five minutes', () => {
    expect(defaultSettings('THROTTLE_BURST').windowSeconds).toBe(300);
  });

  test.each(ALERT_POLICIES)('%s says what is wrong', (policy) => {
    const text = describeAlert(policy, 42, defaultSettings(policy), 'the feed');
    expect(text).toMatch(NAMED.has(policy) ? /the feed/ : /42/);
  });
});

describe('an alert', () => {
  const quiet = { isFiring: false, resolvedSecondsAgo: null };
  const firing = { isFiring: true, resolvedSecondsAgo: null };

  test('fires on a breach, once, and resolves when it is over, once', () => {
    expect(nextAlertEvent(true, quiet, 300)).toBe('fire');
    expect(nextAlertEvent(true, firing, 300)).toBeNull();
    expect(nextAlertEvent(false, firing, 300)).toBe('resolve');
    expect(nextAlertEvent(false, quiet, 300)).toBeNull();
  });

  test('rests after it has resolved, and fires again if it is still so', () => {
    expect(nextAlertEvent(true, { isFiring: false, resolvedSecondsAgo: 299.9 }, 300)).toBeNull();
    expect(nextAlertEvent(true, { isFiring: false, resolvedSecondsAgo: 300 }, 300)).toBe('fire');
    // A clock that went back: it has resolved in the future, and rests.
    expect(nextAlertEvent(true, { isFiring: false, resolvedSecondsAgo: -50 }, 300)).toBeNull();
    // One that had run ahead by a year: it does not rest for a year.
    expect(nextAlertEvent(true, { isFiring: false, resolvedSecondsAgo: -31_536_000 }, 300)).toBe('fire');
  });

  test('whatever is measured, fire and resolve take turns', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ breached: fc.boolean(), seconds: fc.nat(400) })),
        fc.nat(400),
        (ticks, cooldown) => {
          let [isFiring, resolvedAt, now, last] = [false, null as number | null, 0, 'resolve'];
          for (const { breached, seconds } of ticks) {
            now += seconds;
            const resolvedSecondsAgo = resolvedAt === null ? null : now - resolvedAt;
            const event = nextAlertEvent(breached, { isFiring, resolvedSecondsAgo }, cooldown);
            if (!event) continue;
            expect(event).not.toBe(last);
            if (event === 'fire' && resolvedAt !== null)
              expect(now - resolvedAt).toBeGreaterThanOrEqual(cooldown);
            if (event === 'resolve') resolvedAt = now;
            [isFiring, last] = [event === 'fire', event];
          }
        },
      ),
    );
  });
});

test('a sink that does not answer is tried ever less often, and at least every quarter of an hour', () => {
  const delays = Array.from({ length: 12 }, (_, index) => noticeDelaySeconds(index + 1, null));
  expect(delays.slice(0, 4)).toEqual([5, 10, 20, 40]);
  expect(Math.max(...delays)).toBe(900);
});

test('a sink that asks for patience is given it, up to a quarter of an hour', () => {
  expect(noticeDelaySeconds(1, 120_000)).toBe(120);
  expect(noticeDelaySeconds(6, 1_000)).toBe(160);
  expect(noticeDelaySeconds(1, 86_400_000)).toBe(900);
});
