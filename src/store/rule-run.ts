// Rule runs: making, queueing and reading them. Every verb takes the viewer and sees that tenant alone.

import { AppError } from '../errors.js';
import { allowedEvents } from '../domain/machine.js';
import { MAX_PAGE } from '../domain/page.js';
import { ruleRunMachine, type RuleRunStatus, type TargetCounts } from '../domain/rule-run.js';
import type { TargetInput } from '../domain/rule-target.js';
import type { Viewer } from '../domain/viewer.js';
import { translated, type Connection, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import { reserveKey } from './idempotency.js';
import { checkLabel, requireObject } from './input.js';
import { checkFirst, decodeCursor, encodeCursor, toPage, type Page } from './page.js';
import type { Prisma, RuleRun } from './prisma/client.js';
import { insertTargets, requireTargets } from './rule-target.js';
import { fireEvent, notFound } from './transition.js';

export type RuleRunRow = Omit<RuleRun, 'status' | 'metadata'> & {
  readonly status: RuleRunStatus;
  readonly metadata: Record<string, unknown>;
};

export interface NewRuleRun {
  readonly projectId: string;
  readonly channelId: string;
  readonly targets: readonly TargetInput[];
  readonly metadata: unknown;
  readonly correlationId: string | null;
  readonly idempotencyKey: string | null;
}

export interface RuleRunFilter {
  readonly status?: readonly RuleRunStatus[] | null;
  readonly projectId?: string | null;
  readonly channelId?: string | null;
  readonly createdAfter?: Date | null;
  readonly createdBefore?: Date | null;
  readonly correlationId?: string | null;
}

export async function createRuleRun(db: Database, viewer: Viewer, input: NewRuleRun): Promise<RuleRunRow> {
  checkLabel('projectId', input.projectId);
  if (input.correlationId !== null) checkLabel('correlationId', input.correlationId);
  const metadata = requireObject('metadata', input.metadata);
  const { idempotencyKey, ...request } = input;
  const checked = requireTargets(input.targets, null);
  const id = newId();
  const runId = await db.transaction(viewer.actor, async (connection) => {
    const earlier = await reserveKey(
      connection,
      { tenantId: viewer.tenantId, operation: 'createRuleRun', key: idempotencyKey, request },
      id,
    );
    if (earlier !== null) return earlier;
    await requireChannel(connection, viewer, input.channelId);
    await connection.query(
      `INSERT INTO rule_run (id, tenant_id, project_id, channel_id, currency, actor, correlation_id, metadata)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [
        id,
        viewer.tenantId,
        input.projectId,
        input.channelId,
        checked.currency,
        viewer.actor,
        input.correlationId ?? id,
        JSON.stringify(metadata),
      ],
    );
    await insertTargets(connection, { id, tenantId: viewer.tenantId }, checked);
    return id;
  });
  return requireRuleRun(db, viewer, runId);
}

export async function addRuleTargets(
  db: Database,
  viewer: Viewer,
  input: { readonly runId: string; readonly targets: readonly TargetInput[] },
): Promise<RuleRunRow> {
  await db.transaction(viewer.actor, async (connection) => {
    const run = await lockRuleRun(connection, viewer, input.runId);
    if (run.status !== 'PREVIEW') {
      throw new AppError(
        'ILLEGAL_TRANSITION',
        `Only a PREVIEW run takes targets; this one is ${run.status}.`,
        {
          field: ['input', 'runId'],
          details: {
            machine: ruleRunMachine.name,
            event: 'add_targets',
            from: run.status,
            allowed: allowedEvents(ruleRunMachine, run.status),
          },
        },
      );
    }
    const checked = requireTargets(input.targets, run.currency);
    await connection.query('UPDATE rule_run SET currency = $2 WHERE id = $1', [
      input.runId,
      checked.currency,
    ]);
    await insertTargets(connection, { id: input.runId, tenantId: viewer.tenantId }, checked);
  });
  return requireRuleRun(db, viewer, input.runId);
}

export async function queueRuleRun(
  db: Database,
  viewer: Viewer,
  input: { readonly runId: string; readonly idempotencyKey: string | null },
): Promise<RuleRunRow> {
  const { runId } = input;
  await db.transaction(viewer.actor, async (connection) => {
    const run = await lockRuleRun(connection, viewer, runId);
    const earlier = await reserveKey(
      connection,
      {
        tenantId: viewer.tenantId,
        operation: 'queueRuleRun',
        key: input.idempotencyKey,
        request: { runId },
      },
      runId,
    );
    if (earlier !== null) return;
    if (run.status === 'PREVIEW' && run.total_count === 0) {
      throw new AppError('INVALID_INPUT', 'The run has no targets: add some before it is queued.', {
        field: ['input', 'runId'],
      });
    }
    await fireEvent(connection, {
      machine: ruleRunMachine,
      tenantId: viewer.tenantId,
      id: runId,
      event: 'queue',
    });
    await connection.query(
      `UPDATE rule_target SET status = 'QUEUED' WHERE run_id = $1 AND status = 'PREVIEW'`,
      [runId],
    );
  });
  return requireRuleRun(db, viewer, runId);
}

export async function findRuleRun(db: Database, viewer: Viewer, id: string): Promise<RuleRunRow | null> {
  return (await findRuleRuns(db, viewer, [id])).get(id) ?? null;
}

export async function findRuleRuns(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, RuleRunRow>> {
  const rows = await translated(
    db.prisma.ruleRun.findMany({ where: { id: { in: ids.filter(isUuid) }, tenantId: viewer.tenantId } }),
  );
  return new Map(rows.map((row) => [row.id, toRow(row)]));
}

export async function listRuleRuns(
  db: Database,
  viewer: Viewer,
  request: { readonly first: number; readonly after: string | null; readonly filter: RuleRunFilter },
): Promise<Page<RuleRunRow>> {
  checkFirst(request.first, MAX_PAGE);
  const where = toWhere(viewer, request.filter);
  if (request.after !== null) where.id = { lt: decodeRunCursor(request.after) };
  const rows = await translated(
    // Ids grow with time: newest first.
    db.prisma.ruleRun.findMany({ where, orderBy: { id: 'desc' }, take: request.first + 1 }),
  );
  return toPage(rows.map(toRow), request.first, request.after);
}

export function countRuleRuns(db: Database, viewer: Viewer, filter: RuleRunFilter): Promise<number> {
  return translated(db.prisma.ruleRun.count({ where: toWhere(viewer, filter) }));
}

/** How far back the rate of a run is measured: in time, and in lines of its ledger. */
const RATE_WINDOW = '30 seconds';
const RATE_LINES = 2_000;

/** Targets settled per second of late, of those of the runs that are being applied. */
export async function measureSettleRates(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, number>> {
  // Lines are found by seq, their primary key. Under a second of history tells little: it counts as one.
  const rows = await db.query<{ id: string; rate: number }>(
    `SELECT run.id, line.settled / greatest(line.seconds, 1) AS rate
     FROM rule_run AS run CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE type IN ('rule_target.succeed', 'rule_target.exhaust')) AS settled,
         extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS seconds
       FROM run_event
       WHERE run_id = run.id AND seq > run.last_seq - ${RATE_LINES}
         AND created_at > clock_timestamp() - interval '${RATE_WINDOW}') AS line
     WHERE run.id = ANY($1::uuid[]) AND run.tenant_id = $2 AND run.status = 'APPLYING'`,
    [ids.filter(isUuid), viewer.tenantId],
  );
  return new Map(rows.map(({ id, rate }) => [id, rate]));
}

export function runCursor(run: { readonly id: string }): string {
  return encodeCursor(run.id);
}

export function countsOf(run: RuleRunRow): TargetCounts {
  return {
    total: run.totalCount,
    preview: run.previewCount,
    queued: run.queuedCount,
    applying: run.applyingCount,
    applied: run.appliedCount,
    failed: run.failedCount,
    rolledBack: run.rolledBackCount,
    cancelled: run.cancelledCount,
  };
}

async function requireRuleRun(db: Database, viewer: Viewer, id: string): Promise<RuleRunRow> {
  const run = await findRuleRun(db, viewer, id);
  if (!run) throw notFound('Rule run', id);
  return run;
}

async function lockRuleRun(
  connection: Connection,
  viewer: Viewer,
  id: string,
): Promise<{ status: RuleRunStatus; currency: string | null; total_count: number }> {
  const { rows } = await connection.query<{
    status: RuleRunStatus;
    currency: string | null;
    total_count: number;
  }>(
    'SELECT status, currency, total_count FROM rule_run WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE',
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  if (!rows[0]) throw notFound('Rule run', id, ['input', 'runId']);
  return rows[0];
}

async function requireChannel(connection: Connection, viewer: Viewer, id: string): Promise<void> {
  const { rowCount } = await connection.query('SELECT 1 FROM channel WHERE id = $1 AND tenant_id = $2', [
    isUuid(id) ? id : null,
    viewer.tenantId,
  ]);
  if (rowCount !== 1) throw notFound('Channel', id, ['input', 'channelId']);
}

function toRow(row: RuleRun): RuleRunRow {
  return { ...row, status: row.status as RuleRunStatus, metadata: row.metadata as Record<string, unknown> };
}

function toWhere(viewer: Viewer, filter: RuleRunFilter): Prisma.RuleRunWhereInput {
  const { status, projectId, channelId, correlationId, createdAfter, createdBefore } = filter;
  const where: Prisma.RuleRunWhereInput = { tenantId: viewer.tenantId };
  if (status) where.status = { in: [...status] };
  if (isGiven(projectId)) where.projectId = projectId;
  if (isGiven(channelId)) where.channelId = isUuid(channelId) ? channelId : { in: [] };
  if (isGiven(correlationId)) where.correlationId = correlationId;
  if (createdAfter || createdBefore) {
    where.createdAt = {
      // Rows have microseconds, clients see milliseconds: a run is not after the time that it shows.
      ...(createdAfter ? { gte: new Date(createdAfter.getTime() + 1) } : {}),
      ...(createdBefore ? { lt: createdBefore } : {}),
    };
  }
  return where;
}

function isGiven<T>(value: T | null | undefined): value is T {
  return value !== null && value !== undefined;
}

function decodeRunCursor(cursor: string): string {
  const id = decodeCursor(cursor, 1)[0]!;
  if (!isUuid(id))
    throw new AppError('BAD_USER_INPUT', 'The cursor is not one of a run.', { field: ['after'] });
  return id;
}
