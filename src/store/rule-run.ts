// Rule runs: making, queueing and reading them. Every verb takes the viewer and sees that tenant alone.

import { AppError } from '../errors.js';
import { allowedEvents } from '../domain/machine.js';
import { ruleRunMachine, type RuleRunStatus, type TargetCounts } from '../domain/rule-run.js';
import type { TargetInput } from '../domain/rule-target.js';
import type { Viewer } from '../domain/viewer.js';
import { translated, type Connection, type Database } from './db.js';
import { requireWithinGuardrails } from './guardrail.js';
import { isUuid, newId } from './id.js';
import { reserveKey } from './idempotency.js';
import { checkLabel, requireObject } from './input.js';
import type { RuleRun } from './prisma/client.js';
import { addTargetsByRule, requireUsableRule } from './rule-preview.js';
import { insertTargets, requireTargets } from './rule-target.js';
import { fireEvent, notFound } from './transition.js';

export type RuleRunRow = Omit<RuleRun, 'status' | 'metadata'> & {
  readonly status: RuleRunStatus;
  readonly metadata: Record<string, unknown>;
};

export interface NewRuleRun {
  readonly projectId: string;
  readonly channelId: string;
  /** Either this rule makes the targets, or they are given. */
  readonly ruleId?: string | null;
  readonly targets?: readonly TargetInput[] | null;
  readonly metadata: unknown;
  readonly correlationId: string | null;
  readonly idempotencyKey: string | null;
}

export interface QueueRequest {
  readonly runId: string;
  readonly idempotencyKey: string | null;
  /** The hash of the preview, from somebody who means it although it is beyond the guardrails. */
  readonly confirm?: string | null;
}

export async function createRuleRun(db: Database, viewer: Viewer, input: NewRuleRun): Promise<RuleRunRow> {
  checkLabel('projectId', input.projectId);
  if (input.correlationId !== null) checkLabel('correlationId', input.correlationId);
  const metadata = requireObject('metadata', input.metadata);
  const { idempotencyKey, ...request } = input;
  const ruleId = requireOneOrigin(input);
  const checked = requireTargets(input.targets ?? [], null);
  const id = newId();
  const run = { id, tenantId: viewer.tenantId };
  const runId = await db.transaction(
    viewer.actor,
    async (connection) => {
      const earlier = await reserveKey(
        connection,
        { tenantId: viewer.tenantId, operation: 'createRuleRun', key: idempotencyKey, request },
        id,
      );
      if (earlier !== null) return earlier;
      await requireChannel(connection, viewer, input.channelId);
      const rule = ruleId === null ? null : await requireUsableRule(connection, viewer, ruleId);
      await connection.query(
        `INSERT INTO rule_run
           (id, tenant_id, project_id, channel_id, rule_id, rule_snapshot, priority, currency, actor, correlation_id, metadata)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
        [
          id,
          viewer.tenantId,
          input.projectId,
          input.channelId,
          ruleId,
          rule === null ? null : JSON.stringify(rule),
          rule?.priority ?? 0,
          checked.currency,
          viewer.actor,
          input.correlationId ?? id,
          JSON.stringify(metadata),
        ],
      );
      if (rule === null) await insertTargets(connection, run, checked);
      else await addTargetsByRule(connection, run, rule);
      return id;
    },
    // A preview and its hash are of one state of the catalog.
    ruleId === null ? 'READ COMMITTED' : 'REPEATABLE READ',
  );
  return requireRuleRun(db, viewer, runId);
}

function requireOneOrigin({ ruleId = null, targets = null }: NewRuleRun): string | null {
  if ((ruleId === null) !== (targets === null)) return ruleId;
  throw new AppError('INVALID_INPUT', 'Give either ruleId or targets: a run comes of one of them.', {
    field: ['input', ruleId === null ? 'targets' : 'ruleId'],
  });
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
    if (run.rule_id !== null) {
      throw new AppError('INVALID_INPUT', 'The targets of this run come from its rule alone.', {
        field: ['input', 'runId'],
      });
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

export async function queueRuleRun(db: Database, viewer: Viewer, input: QueueRequest): Promise<RuleRunRow> {
  const { runId, confirm = null } = input;
  await db.transaction(viewer.actor, async (connection) => {
    const run = await lockRuleRun(connection, viewer, runId);
    const earlier = await reserveKey(
      connection,
      {
        tenantId: viewer.tenantId,
        operation: 'queueRuleRun',
        key: input.idempotencyKey,
        request: { runId, confirm: confirm ?? undefined },
      },
      runId,
    );
    if (earlier !== null) return;
    if (run.status === 'PREVIEW') await requireQueueable(connection, viewer, run, confirm);
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

/** Leaves the preview that the run goes ahead with in its row. */
async function requireQueueable(
  connection: Connection,
  { tenantId }: Viewer,
  { id, total_count: targets, kept_hash: keptHash }: LockedRun,
  confirm: string | null,
): Promise<void> {
  if (targets === 0) {
    throw new AppError('INVALID_INPUT', 'The run has no targets: add some before it is queued.', {
      field: ['input', 'runId'],
    });
  }
  const preview = await requireWithinGuardrails(connection, { id, tenantId, keptHash }, confirm);
  if (preview === null) return;
  await connection.query('UPDATE rule_run SET preview = $2 WHERE id = $1', [id, JSON.stringify(preview)]);
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

interface LockedRun {
  readonly id: string;
  readonly status: RuleRunStatus;
  readonly rule_id: string | null;
  readonly kept_hash: string | null;
  readonly currency: string | null;
  readonly total_count: number;
}

async function lockRuleRun(connection: Connection, viewer: Viewer, id: string): Promise<LockedRun> {
  const { rows } = await connection.query<LockedRun>(
    `SELECT id, status, rule_id, preview ->> 'hash' AS kept_hash, currency, total_count
     FROM rule_run WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
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

export function toRow(row: RuleRun): RuleRunRow {
  return { ...row, status: row.status as RuleRunStatus, metadata: row.metadata as Record<string, unknown> };
}
