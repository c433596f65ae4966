// Times by cron: five fields, in a time zone. On the day that a clock is put forward, a time that does not
// exist comes at the moment of the change; on the day that it is put back, a time that exists twice comes once.

import { Cron } from 'croner';
import { AppError } from '../errors.js';

/** The next times after `after`, at most `count`; fewer when there are no more. */
export function nextTimes(cron: string, timeZone: string, after: Date, count: number): Date[] {
  return new Cron(cron, { timezone: timeZone, mode: '5-part', paused: true }).nextRuns(count, after);
}

export function nextTime(cron: string, timeZone: string, after: Date): Date | null {
  return nextTimes(cron, timeZone, after, 1)[0] ?? null;
}

/** Why this server cannot tell the times of a line that another took; null when it can. */
export function faultOfTimes(cron: string, timeZone: string): string | null {
  try {
    nextTime(cron, timeZone, new Date());
    return null;
  } catch (error) {
    return isTimeZone(timeZone) ? String(error) : `this server does not know the time zone ${timeZone}`;
  }
}

/** Refuses what cannot be read, a zone that there is not, and a line that never comes true. */
export function requireCron(cron: string, timeZone: string): void {
  if (!isTimeZone(timeZone)) {
    throw new AppError(
      'INVALID_INPUT',
      `${JSON.stringify(timeZone)} is no time zone, such as Europe/Berlin or UTC.`,
      {
        field: ['input', 'timeZone'],
      },
    );
  }
  const refuse = (message: string, cause?: unknown) =>
    new AppError('INVALID_INPUT', message, { field: ['input', 'cron'], cause });
  let next: Date | null;
  try {
    next = nextTime(cron, timeZone, new Date());
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/^CronPattern: /, '') : String(error);
    throw refuse(`cron must have five fields (minute, hour, day, month, weekday): ${reason}`, error);
  }
  if (next === null) throw refuse(`${JSON.stringify(cron)} never comes true.`);
}

function isTimeZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name });
    return true;
  } catch {
    return false;
  }
}
