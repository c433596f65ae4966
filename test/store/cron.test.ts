// Times by cron, in a zone: over the changes of the clock, and what is refused.
import { describe, expect, test } from 'vitest';
import { nextTime, nextTimes, requireCron } from '../../src/store/cron.js';
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

  test.each([
    ['30 2 * * *', ['29T01:00', '30T00:30']],
    ['0 2,14 * * *', ['29T01:00', '29T12:00', '30T00:00', '30T12:00']],
    ['0,30 2 * * *', ['29T01:00', '30T00:00', '30T00:30']],
    ['*/30 2 * * *', ['29T01:00', '30T00:00', '30T00:30']],
    ['0,30 2-3 * * *', ['29T01:00', '29T01:30', '30T00:00']],
    ['30 1-4 * * *', ['29T00:30', '29T01:00', '29T01:30', '29T02:30', '29T23:30']],
    ['0 */2 * * *', ['28T23:00', '29T01:00', '29T02:00', '29T04:00']],
    ['0 2 * 3 SUN', ['29T01:00']],
  ])(
    'of %j on a day on which the clock is put forward come once, at the change if need be',
    (cron, expected) => {
      const found = times(cron, 'Europe/Berlin', '2026-03-28T22:00:00Z', expected.length);
      expect(found).toEqual(expected.map((time) => `2026-03-${time}`));
    },
  );

  test.each([
    ['30 2 * * *', ['25T00:30', '26T01:30']],
    ['0 2,14 * * *', ['25T00:00', '25T13:00', '26T01:00', '26T13:00']],
    ['0,30 2 * * *', ['25T00:00', '25T00:30', '26T01:00', '26T01:30']],
    ['*/30 2 * * *', ['25T00:00', '25T00:30', '26T01:00', '26T01:30']],
    ['30 1-4 * * *', ['24T23:30', '25T00:30', '25T02:30', '25T03:30', '26T00:30']],
    ['0 */2 * * *', ['24T22:00', '25T00:00', '25T03:00', '25T05:00']],
  ])('of %j on a day on which the clock is put back come once', (cron, expected) => {
    const found = times(cron, 'Europe/Berlin', '2026-10-24T21:00:00Z', expected.length);
    expect(found).toEqual(expected.map((time) => `2026-10-${time}`));
  });

  test('of the hour that comes twice have gone by the second time', () => {
    const next = (after: string) => times('0,30 2,3 * * *', 'Europe/Berlin', after, 2);
    expect(next('2026-10-25T00:10:00Z')).toEqual(['2026-10-25T00:30', '2026-10-25T02:00']);
    expect(next('2026-10-25T00:59:59.999Z')).toEqual(['2026-10-25T02:00', '2026-10-25T02:30']);
    expect(next('2026-10-25T01:10:00Z')).toEqual(['2026-10-25T02:00', '2026-10-25T02:30']);
    expect(nextTime('10 2 * * *', 'Europe/Berlin', new Date('2026-10-25T01:05:00Z'))).toEqual(
      new Date('2026-10-26T01:10:00Z'),
    );
  });

  test('are told one by one as they are told together', () => {
    for (const day of ['2026-03-28', '2026-10-24']) {
      const after = `${day}T12:00:00Z`;
      const oneByOne: string[] = [];
      for (let last: string = after; oneByOne.length < 12; last = `${oneByOne.at(-1)}:00Z`)
        oneByOne.push(...times('*/20 1-3 * * *', 'Europe/Berlin', last, 1));
      expect(oneByOne).toEqual(times('*/20 1-3 * * *', 'Europe/Berlin', after, 12));
    }
  });

  test.each([
    ['0,30 0 * * *', 'Africa/Cairo', '2027-04-29T12:00:00Z', ['04-29T22:00', '04-30T21:00', '04-30T21:30']],
    ['0,30 23 * * *', 'Africa/Cairo', '2026-10-29T12:00:00Z', ['10-29T20:00', '10-29T20:30', '10-30T21:00']],
    [
      '0 2,4 * * *',
      'Australia/Lord_Howe',
      '2026-10-03T12:00:00Z',
      ['10-03T15:30', '10-03T17:00', '10-04T15:00'],
    ],
  ])('of %j in %s, where the clock is changed otherwise', (cron, zone, after, expected) => {
    expect(times(cron, zone, after, expected.length)).toEqual(
      expected.map((time) => `${after.slice(0, 4)}-${time}`),
    );
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
  ['* * * * * *', 'UTC', 'cron', 'it has 6'],
  ['@daily', 'UTC', 'cron', 'five fields'],
  ['2026-12-01T00:00:00', 'UTC', 'cron', 'five fields'],
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
