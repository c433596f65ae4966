// Times by cron, in a zone: over the changes of the clock, and what is refused.
import { describe, expect, test } from 'vitest';
import { nextTimes, requireCron } from '../../src/store/cron.js';
import { AppError } from '../../src/errors.js';

const times = (cron: string, zone: string, after: string, count = 3) =>
  nextTimes(cron, zone, new Date(after), count).map((time) => time.toISOString().slice(0, 16));

describe('next times', () => {
  test('are in the zone of the schedule', () => {
    expect(times('0 9 * * MON-FRI', 'America/New_York', '2026-07-03T12:00:00Z')).toEqual([
      '2026-07-03T13:00',
      '2026-07-06T13:00',
      '2026-07-07T13:00',
    ]);
  });

  test('of a day on which the clock is put forward come once', () => {
    expect(times('30 2 * * *', 'Europe/Berlin', '2026-03-28T12:00:00Z', 2)).toEqual([
      '2026-03-29T01:00',
      '2026-03-30T00:30',
    ]);
  });

  test('of a day on which the clock is put back come once', () => {
    expect(times('30 2 * * *', 'Europe/Berlin', '2026-10-24T12:00:00Z', 2)).toEqual([
      '2026-10-25T00:30',
      '2026-10-26T01:30',
    ]);
  });

  test('every quarter of an hour goes on through either change', () => {
    for (const day of ['2026-03-29', '2026-10-25']) {
      const quarters = nextTimes('*/15 * * * *', 'Europe/Berlin', new Date(`${day}T00:00:00Z`), 16);
      const gaps = quarters.slice(1).map((time, index) => time.getTime() - quarters[index]!.getTime());
      expect(new Set(gaps)).toEqual(new Set([15 * 60_000]));
    }
  });
});

test.each([
  ['0 0 30 2 *', 'UTC', 'cron', 'never comes true'],
  ['', 'UTC', 'cron', 'five fields'],
  ['* * * *', 'UTC', 'cron', 'five fields'],
  ['* * * * * *', 'UTC', 'cron', '5 parts'],
  ['61 * * * *', 'UTC', 'cron', 'five fields'],
  ['0 0 * * *; DROP TABLE', 'UTC', 'cron', 'five fields'],
  ['0 0 * * *', 'Mars/Olympus', 'timeZone', 'no time zone'],
  ['0 0 * * *', '', 'timeZone', 'no time zone'],
])('%j in %j is refused', (cron, zone, field, message) => {
  try {
    requireCron(cron, zone);
    expect.unreachable();
  } catch (error) {
    expect(error).toBeInstanceOf(AppError);
    expect(error).toMatchObject({ code: 'INVALID_INPUT', field: ['input', field] });
    expect((error as Error).message).toContain(message);
  }
});
