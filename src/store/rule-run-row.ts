// A rule run as it is: reading it, and taking its lock for a request about it. Every verb takes the viewer
// and sees that tenant alone.

import { isRevertDue, type RuleRunStatus, type TargetCounts } from '../domain/rule-run.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { translated, type Connection, type Database } from './db.js';
import { isUuid } from './id.js';
import { reserveKey } from './idempotency.js';
import type { RuleRun } from './prisma/client.js';
import { requireWhole } from './pruned.js';
import { rememberTrace } from './trace.js';
import { notFound } from './transition.js';

export type RuleRunRow = Omit<RuleRun, 'status' | 'metadata'> & {
  readonly status: RuleRunStatus;
  readonly metadata: Record<string, unknown>;
};

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

/** How far back the rate of a run is measured: in time, and in lines of its ledger. */
const RATE_WINDOW = '30 seconds';
const RATE_LINES = 2_000;

/** SQL: targets of `run` to be set back. However many these are, it has counted them; those that were named are few. */
export const TO_SET_BACK = `CASE WHEN NOT run.rolling_back THEN 0 WHEN run.rollback_all THEN run.applied_count
  ELSE (SELECT count(*) FROM rule_target WHERE run_id = run.id AND next_attempt_at IS NOT NULL) END`;

export interface Pace {
  /** Targets settled per second of late. */
  readonly rate: number;
  /** Targets that are still to be. */
  readonly left: number;
}

/** Of those of the runs that are being applied or set back. */
export async function measurePaces(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, Pace>> {
  // Lines are found by seq, their primary key. Under a second of history tells little: it counts as one.
  const rows = await db.query<Pace & { readonly id: string }>(
    `SELECT run.id, line.settled / greatest(line.seconds, 1) AS rate,
       (run.applying_count + CASE WHEN run.rolling_back THEN ${TO_SET_BACK} ELSE run.queued_count END)::float8 AS left
     FROM rule_run AS run CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE type = ANY(CASE WHEN run.rolling_back
           THEN ARRAY['rule_target.roll_back', 'rule_target.roll_back_conflict', 'rule_target.roll_back_fail']
           ELSE ARRAY['rule_target.succeed', 'rule_target.exhaust'] END)) AS settled,
         extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS seconds
       FROM run_event
       WHERE run_id = run.id AND seq > run.last_seq - ${RATE_LINES}
         AND created_at > clock_timestamp() - interval '${RATE_WINDOW}'
         -- What was applied before says nothing of how fast it is set back.
         AND (NOT run.rolling_back OR created_at >= run.rollback_asked_at)) AS line
     WHERE run.id = ANY($1::uuid[]) AND run.tenant_id = $2 AND (run.status = 'APPLYING' OR run.rolling_back)`,
    [ids.filter(isUuid), viewer.tenantId],
  );
  return new Map(rows.map(({ id, ...pace }) => [id, pace]));
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

export async function requireRuleRun(db: Database, viewer: Viewer, id: string): Promise<RuleRunRow> {
  const run = await findRuleRun(db, viewer, id);
  if (!run) throw notFound('Rule run', id);
  return run;
}

function toRow(row: RuleRun): RuleRunRow {
  return { ...row, status: row.status as RuleRunStatus, metadata: row.metadata as Record<string, unknown> };
}

/** What a person asks of one run. */
export interface RunRequest {
  readonly runId: string;
  readonly idempotencyKey: string | null;
}

export interface LockedRuleRun {
  readonly id: string;
  readonly tenantId: string;
  readonly correlationId: string;
  readonly status: RuleRunStatus;
  readonly paused: boolean;
  readonly rollingBack: boolean;
  readonly ruleId: string | null;
  /** Of the preview that the run was made with. */
  readonly keptHash: string | null;
  readonly currency: string | null;
  readonly total: number;
  readonly autoRevertAt: Date | null;
  readonly prunedAt: Date | null;
}

/**
 * Carries out a request about one run under its lock, once per idempotency key, and answers the run as it is
 * then. All of the request but its key is what a repeat must have in common with the first.
 */
export async function actOnRuleRun<Request extends RunRequest>(
  db: Database,
  viewer: Viewer,
  operation: string,
  { idempotencyKey: key, ...request }: Request,
  act: (connection: Connection, run: LockedRuleRun) => Promise<void>,
): Promise<RuleRunRow> {
  const { tenantId } = viewer;
  await db.transaction(viewer.actor, async (connection) => {
    const run = await lockRuleRun(connection, viewer, request.runId);
    const earlier = await reserveKey(connection, { tenantId, operation, key, request }, run.id);
    if (earlier !== null) return;
    requireWhole(run);
    await act(connection, run);
    await rememberTrace(connection, { kind: 'RULE', runId: run.id, correlationId: run.correlationId });
  });
  return requireRuleRun(db, viewer, request.runId);
}

/** Refuses to set off what was to be over by now: nothing would set it back. */
export function refuseAfterRevert({ autoRevertAt }: LockedRuleRun): void {
  if (autoRevertAt === null || !isRevertDue({ autoRevertAt }, new Date())) return;
  const message = `The run was to set itself back at ${autoRevertAt.toISOString()}, which is over.`;
  throw new AppError('INVALID_INPUT', message, { field: ['input', 'runId'] });
}

/** Locks a run for a verb that may move its targets: no claim of it is under way until the transaction ends. */
export async function lockRuleRun(
  connection: Connection,
  viewer: Viewer,
  id: string,
): Promise<LockedRuleRun> {
  const runId = isUuid(id) ? id : null;
  const held = connection.query('SELECT hold_claims($1)', [runId]);
  const locked = connection.query<LockedRuleRun>(
    `SELECT id, tenant_id AS "tenantId", correlation_id AS "correlationId", status, paused,
       rolling_back AS "rollingBack", rule_id AS "ruleId",
       preview ->> 'hash' AS "keptHash", currency, total_count AS total, auto_revert_at AS "autoRevertAt",
       pruned_at AS "prunedAt"
     FROM rule_run WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
    [runId, viewer.tenantId],
  );
  const [, { rows }] = await Promise.all([held, locked]);
  if (!rows[0]) throw notFound('Rule run', id, ['input', 'runId']);
  return rows[0];
}
