// Times by cron: five fields, in a time zone. On the day that a clock is put forward, a time that does not
// exist comes at the moment of the change; on the day that it is put back, a time that exists twice comes once.
// A line for every hour goes on hour by hour through either.

import { Cron } from 'croner';
import { WallClock } from '../domain/wall-clock.js';
import { AppError } from '../errors.js';

const FIELDS = 5;
const EVERY_HOUR: ReadonlySet<string> = new Set(['*', '*/1', '?']);

/** The next times after `after`, at most `count`; fewer when there are no more. */
export function nextTimes(cron: string, timeZone: string, after: Date, count: number): Date[] {
  const [, hours = '*'] = fieldsOf(cron);
  if (EVERY_HOUR.has(hours)) return openCron(cron, timeZone).nextRuns(count, after);
  return nextShown(openCron(cron, 'UTC'), new WallClock(timeZone), after, count);
}

export function nextTime(cron: string, timeZone: string, after: Date): Date | null {
  return nextTimes(cron, timeZone, after, 1)[0] ?? null;
}

function openCron(cron: string, timezone: string): Cron {
  return new Cron(cron, { timezone, mode: '5-part', paused: true });
}

function fieldsOf(cron: string): string[] {
  return cron.split(/\s+/).filter(Boolean);
}

/** `cron` says what the clock shows when a time comes; the clock says when that is. */
function nextShown(cron: Cron, clock: WallClock, after: Date, count: number): Date[] {
  const times: Date[] = [];
  let last = after.getTime();
  let shown = cron.nextRun(new Date(clock.shownAt(last)));
  while (shown && times.length < count) {
    const time = clock.firstTimeOf(shown.getTime());
    // All that do not exist come at one moment, and of one that exists twice the first may have gone by.
    if (time > last) {
      times.push(new Date(time));
      last = time;
    }
    shown = cron.nextRun(shown);
  }
  return times;
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
  const refuseUnreadable = (reason: string, cause?: unknown) =>
    refuse(`cron must have five fields (minute, hour, day, month, weekday): ${reason}`, cause);
  const { length } = fieldsOf(cron);
  if (length !== FIELDS) throw refuseUnreadable(`it has ${length}`);
  let next: Date | null;
  try {
    next = nextTime(cron, timeZone, new Date());
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/^CronPattern: /, '') : String(error);
    throw refuseUnreadable(reason, error);
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
