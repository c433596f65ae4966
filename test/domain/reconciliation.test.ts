import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { findMismatches, planReconciliation } from '../../src/domain/reconciliation.js';

describe('the comparison', () => {
  const applied = [
    { targetId: '1', externalId: 'same', expected: 100 },
    { targetId: '2', externalId: 'more', expected: 100 },
    { targetId: '3', externalId: 'less', expected: 100 },
    { targetId: '4', externalId: 'gone', expected: 100 },
    { targetId: '5', externalId: 'free', expected: 0 },
  ];

  test('finds what differs and what is missing, and nothing else', () => {
    const prices = new Map([
      ['same', 100],
      ['more', 130],
      ['less', 60],
      ['free', 0],
      ['stranger', 1],
    ]);
    expect(findMismatches(applied, prices)).toEqual([
      { targetId: '2', externalId: 'more', expected: 100, actual: 130, difference: 30 },
      { targetId: '3', externalId: 'less', expected: 100, actual: 60, difference: -40 },
      { targetId: '4', externalId: 'gone', expected: 100, actual: null, difference: null },
    ]);
  });
});

describe('the schedule', () => {
  const finishedAt = new Date('2026-11-18T12:00:00Z');
  const MINUTE = 60_000;
  const HOUR = 60 * MINUTE;
  const DAY = 24 * HOUR;
  const after = (ms: number) => new Date(finishedAt.getTime() + ms);
  const plan = (nowMs: number, lastMs: number, status: 'APPLIED' | 'PARTIAL' = 'APPLIED') =>
    planReconciliation({ status, finishedAt }, after(lastMs), after(nowMs));

  test.each<[string, number, number, string | null, number | null]>([
    ['right after the end nothing', 3_000, 0, null, MINUTE],
    ['within five minutes the first', MINUTE, MINUTE, 'immediate', HOUR],
    ['an hour later the second', HOUR, HOUR, 'delayed', DAY],
    ['then every day', DAY, DAY, 'periodic', 2 * DAY],
    ['for thirty days', 30 * DAY, 30 * DAY, 'periodic', null],
    ['of what was missed, the latest only', 3 * DAY + HOUR, MINUTE, 'periodic', 4 * DAY],
    ['what was done is not done again', 2 * HOUR, HOUR + 1, null, DAY],
  ])('%s', (_, now, last, due, next) => {
    expect(plan(now, last)).toEqual({ due, nextAt: next === null ? null : after(next) });
  });

  test('a run that was applied in part is looked at twice, not daily', () => {
    expect(plan(HOUR, HOUR, 'PARTIAL')).toEqual({ due: 'delayed', nextAt: null });
    expect(plan(3 * DAY, HOUR + 1, 'PARTIAL')).toEqual({ due: null, nextAt: null });
  });

  test('followed at any pace, every look is due at its time or later, and each is made once', () => {
    const paces = fc.array(fc.integer({ min: 1, max: 2 * DAY }), { minLength: 1, maxLength: 60 });
    const property = fc.property(paces, (steps) => {
      let now = 0;
      let at: Date | null = finishedAt;
      const made: string[] = [];
      for (const step of steps) {
        now += step;
        if (at === null || after(now) < at) continue;
        const { due, nextAt } = planReconciliation({ status: 'APPLIED', finishedAt }, at, after(now));
        if (due) made.push(due);
        if (nextAt) expect(nextAt.getTime()).toBeGreaterThan(after(now).getTime());
        at = nextAt;
      }
      expect(made.filter((trigger) => trigger === 'immediate').length).toBeLessThanOrEqual(1);
      expect(made.filter((trigger) => trigger === 'delayed').length).toBeLessThanOrEqual(1);
      expect(made.filter((trigger) => trigger === 'periodic').length).toBeLessThanOrEqual(30);
    });
    fc.assert(property);
  });
});
