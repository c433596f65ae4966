import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  comparePrices,
  findWholeFailure,
  planReconciliation,
  windowPauseMs,
} from '../../src/domain/reconciliation.js';

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
    const mismatches = [
      { targetId: '2', externalId: 'more', expected: 100, actual: 130, difference: 30 },
      { targetId: '3', externalId: 'less', expected: 100, actual: 60, difference: -40 },
      { targetId: '4', externalId: 'gone', expected: 100, actual: null, difference: null },
    ];
    expect(comparePrices(applied, { prices, failures: new Map() }, false)).toEqual({
      checked: 5,
      mismatches,
      unread: [],
      again: [],
    });
  });

  test('tells what cannot be read from what may be read later, and compares neither', () => {
    const failures = new Map([
      ['more', { kind: 'permanent', code: 'INVALID', message: 'no\0' }],
      ['less', { kind: 'retryable', code: 'UPSTREAM', message: 'later' }],
    ] as const);
    const read = { prices: new Map([['same', 100]]), failures };
    expect(comparePrices(applied.slice(0, 3), read, false)).toEqual({
      checked: 1,
      mismatches: [],
      unread: [{ targetId: '2', externalId: 'more', code: 'INVALID', message: 'no\ufffd' }],
      again: ['3'],
    });
    expect(findWholeFailure(applied.slice(0, 3), read)).toBeNull();
    expect(findWholeFailure(applied.slice(1, 3), read)).toMatchObject({ code: 'UPSTREAM' });
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

  test.each([
    ['immediate', 3.9 * MINUTE, true],
    ['immediate', 4 * MINUTE, false],
    ['delayed', 59 * MINUTE, true],
    ['periodic', HOUR, false],
    ['manual', 0, false],
  ] as const)('a comparison that is %s goes on for its time', (trigger, ageMs, goesOn) => {
    expect(windowPauseMs(trigger, ageMs) !== null).toBe(goesOn);
  });
});
