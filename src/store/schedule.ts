// Schedules: saving and reading them, and taking their ticks. A tick is taken by moving the schedule's next
// time, and the run that it starts is made under a key of the tick: however many try, and wherever one of them
// is cut short, a tick starts one run.

import type { MissedPolicy, ScheduleKind, ScheduleRequest } from '../domain/schedule.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { faultOfTimes, nextTime, nextTimes, requireCron } from './cron.js';
import { translated, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import { checkLabel } from './input.js';
import type { Prisma, Schedule } from './prisma/client.js';
import { notFound } from './transition.js';

export type ScheduleRow = Omit<Schedule, 'kind' | 'missed' | 'request'> & {
  readonly kind: ScheduleKind;
  readonly missed: MissedPolicy;
  readonly request: ScheduleRequest;
};

export interface ScheduleInput {
  /** Null for a new one. */
  readonly id: string | null;
  readonly projectId: string;
  readonly name: string;
  readonly request: ScheduleRequest;
  readonly cron: string;
  readonly timeZone: string;
  readonly missed: MissedPolicy;
  readonly enabled: boolean;
}

/** A tick whose time has come. */
export interface DueTick {
  readonly schedule: ScheduleRow;
  readonly at: Date;
  readonly lateMs: number;
}

export async function listSchedules(db: Database, { tenantId }: Viewer): Promise<ScheduleRow[]> {
  const rows = await translated(
    db.prisma.schedule.findMany({ where: { tenantId }, orderBy: { name: 'asc' } }),
  );
  return rows.map(toRow);
}

/** Makes a schedule, or changes one. Its next tick lies in the future, whatever it was before. */
export async function saveSchedule(db: Database, viewer: Viewer, input: ScheduleInput): Promise<ScheduleRow> {
  checkLabel('name', input.name);
  checkLabel('projectId', input.projectId);
  requireCron(input.cron, input.timeZone);
  await requireSubject(db, viewer, input.request);
  const { id, request, ...fields } = input;
  const { kind, ...rest } = request;
  const nextAt = input.enabled ? nextTime(input.cron, input.timeZone, await readClock(db)) : null;
  const data = { ...fields, kind, request: rest, nextAt };
  if (id === null) {
    return toRow(
      await translated(
        db.prisma.schedule.create({ data: { ...data, id: newId(), tenantId: viewer.tenantId } }),
      ),
    );
  }
  const [saved] = isUuid(id)
    ? await translated(
        db.prisma.schedule.updateManyAndReturn({
          where: { id, tenantId: viewer.tenantId },
          data: { ...data, updatedAt: new Date() },
        }),
      )
    : [];
  if (!saved) throw notFound('Schedule', id, ['input', 'id']);
  return toRow(saved);
}

export async function deleteSchedule(db: Database, { tenantId }: Viewer, id: string): Promise<void> {
  const { count } = isUuid(id)
    ? await translated(db.prisma.schedule.deleteMany({ where: { id, tenantId } }))
    : { count: 0 };
  if (count === 0) throw notFound('Schedule', id, ['input', 'id']);
}

/** Its next ticks, as far as they can be known. */
export function upcomingTimes(
  { cron, timeZone, nextAt }: Pick<ScheduleRow, 'cron' | 'timeZone' | 'nextAt'>,
  count: number,
): Date[] {
  if (nextAt === null) return [];
  if (faultOfTimes(cron, timeZone) !== null) return [nextAt];
  return [nextAt, ...nextTimes(cron, timeZone, nextAt, count - 1)].slice(0, count);
}

/**
 * Every schedule's tick that is due, whoever's it is, if this server can tell which comes after it; by the database's
 * clock, which all replicas share.
 */
export async function listDueTicks(db: Database): Promise<DueTick[]> {
  const now = await readClock(db);
  const rows = await translated(
    db.prisma.schedule.findMany({ where: { nextAt: { lte: now } }, orderBy: { nextAt: 'asc' } }),
  );
  const readable = rows.filter(({ cron, timeZone }) => faultOfTimes(cron, timeZone) === null);
  return readable.map((row) => ({
    schedule: toRow(row),
    at: row.nextAt!,
    lateMs: now.getTime() - row.nextAt!.getTime(),
  }));
}

/** What came of a tick: a run, the reason why there is none or why it waits, or neither when it was passed over. */
export interface TickOutcome {
  readonly runId: string | null;
  readonly error: string | null;
}

/** Moves the schedule on, past every tick that has gone by meanwhile; false when somebody else has. */
export async function settleTick(
  db: Database,
  { schedule, at }: DueTick,
  outcome: TickOutcome,
): Promise<boolean> {
  const now = await readClock(db);
  const nextAt = nextTime(schedule.cron, schedule.timeZone, now > at ? now : at);
  const moved = await translated(
    db.prisma.schedule.updateMany({
      where: { id: schedule.id, nextAt: at },
      data: {
        nextAt,
        // A line whose last time has come is over.
        enabled: nextAt !== null,
        lastAt: at,
        lastError: outcome.error,
        ...(outcome.runId === null ? {} : { lastRunId: outcome.runId }),
      },
    }),
  );
  if (moved.count === 0) await keepRun(db, schedule.id, at, outcome);
  return moved.count === 1;
}

/** Somebody else took the tick for missed while its run was being made: there is a run all the same. */
async function keepRun(db: Database, id: string, at: Date, { runId, error }: TickOutcome): Promise<void> {
  if (runId === null) return;
  await translated(
    db.prisma.schedule.updateMany({
      where: { id, lastAt: at },
      data: { lastRunId: runId, lastError: error },
    }),
  );
}

export interface LookAhead {
  /** How many next times lay too far off, and were brought back. */
  readonly pulled: number;
  /** Whose times this server cannot tell, as of now: the ticks wait for one that can. */
  readonly unknown: readonly UnknownTimes[];
}

export interface UnknownTimes {
  readonly schedule: ScheduleRow;
  readonly reason: string;
}

/** After a clock that had run ahead was put right, next times lie too far off: brings them back. */
export async function pullBackNextTimes(db: Database): Promise<LookAhead> {
  const now = await readClock(db);
  const rows = await translated(db.prisma.schedule.findMany({ where: { nextAt: { not: null } } }));
  const unknown: UnknownTimes[] = [];
  let pulled = 0;
  for (const row of rows) {
    const { id, cron, timeZone, nextAt } = row;
    const reason = faultOfTimes(cron, timeZone);
    if (reason !== null) {
      if (await noteFault(db, row, reason)) unknown.push({ schedule: toRow(row), reason });
      continue;
    }
    const expected = nextAt! > now ? nextTime(cron, timeZone, now) : null;
    if (expected === null || expected >= nextAt!) continue;
    const { count } = await translated(
      db.prisma.schedule.updateMany({ where: { id, nextAt }, data: { nextAt: expected } }),
    );
    pulled += count;
  }
  return { pulled, unknown };
}

/** For people to see; false when it stands there already. */
async function noteFault(db: Database, { id, lastError }: Schedule, reason: string): Promise<boolean> {
  if (lastError === reason) return false;
  await translated(db.prisma.schedule.updateMany({ where: { id }, data: { lastError: reason } }));
  return true;
}

async function readClock(db: Database): Promise<Date> {
  const [row] = await db.query<{ now: Date }>('SELECT clock_timestamp() AS now');
  return row!.now;
}

/** What is to be started must be the tenant's own. */
async function requireSubject(db: Database, { tenantId }: Viewer, request: ScheduleRequest): Promise<void> {
  const require = async (table: string, what: string, id: string, field: string): Promise<void> => {
    const found = await db.query(`SELECT 1 FROM ${table} WHERE id = $1 AND tenant_id = $2`, [
      isUuid(id) ? id : null,
      tenantId,
    ]);
    if (found.length === 0) throw notFound(what, id, ['input', field]);
  };
  if (request.kind === 'PIPELINE') return require('source', 'Source', request.sourceId, 'sourceId');
  await require('pricing_rule', 'Pricing rule', request.ruleId, 'ruleId');
  await require('channel', 'Channel', request.channelId, 'channelId');
}

function toRow({ kind, missed, request, ...row }: Schedule): ScheduleRow {
  if (kind === 'OPS')
    throw new AppError('INTERNAL', `Schedule ${row.id} is of a kind that is not scheduled.`);
  return {
    ...row,
    kind,
    missed: missed as MissedPolicy,
    request: { kind, ...(request as Prisma.JsonObject) } as unknown as ScheduleRequest,
  };
}
