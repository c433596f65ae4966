// Reconciliations: asking for one, and reading the reports.

import { allowedEvents } from '../domain/machine.js';
import {
  MAX_FINDINGS_LISTED,
  type Mismatch,
  type ReconciliationTrigger,
  type Unread,
} from '../domain/reconciliation.js';
import { ruleRunMachine, type RuleRunStatus } from '../domain/rule-run.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Connection, Database } from './db.js';
import { isUuid, newId } from './id.js';
import { reserveKey } from './idempotency.js';
import { appendRunLines } from './ledger.js';
import { checkFirst, toPage, type Page } from './page.js';
import { requireWhole } from './pruned.js';
import { notFound } from './transition.js';

export interface ReconciliationRow {
  readonly id: string;
  readonly runId: string;
  readonly trigger: ReconciliationTrigger;
  readonly totalChecked: number;
  readonly mismatches: number;
  readonly unread: number;
  readonly repairRunId: string | null;
  readonly createdAt: Date;
}

export interface ReconcileRequest {
  readonly runId: string;
  /** Whether the mismatches are to be pushed again, by a run of their own. */
  readonly repair: boolean;
  readonly idempotencyKey: string | null;
}

export interface AskedReconciliation {
  /** The id that the report will have. */
  readonly id: string;
  /** Its end is told in the run's ledger after this line, if it is not there already. */
  readonly seq: number;
  readonly isUnderWay: boolean;
}

/** Asks for a comparison, which is the runner's to do; one that was asked for and is not done yet is joined. */
export function askToReconcile(
  db: Database,
  viewer: Viewer,
  { runId, repair, idempotencyKey }: ReconcileRequest,
): Promise<AskedReconciliation> {
  return db.transaction(viewer.actor, async (connection) => {
    const run = await lockAppliedRun(connection, viewer, runId);
    const underWay = await findUnderWay(connection, runId);
    const id = underWay ?? newId();
    const earlier = await reserveKey(
      connection,
      {
        tenantId: viewer.tenantId,
        operation: 'reconcileRuleRun',
        key: idempotencyKey,
        request: { runId, repair },
      },
      id,
    );
    if (earlier !== null) return { id: earlier, seq: run.lastSeq, isUnderWay: earlier === underWay };
    requireWhole(run);
    if (run.appliedCount === 0) throw nothingApplied(run.status);
    await connection.query(
      `INSERT INTO reconciliation AS asked (id, tenant_id, run_id, trigger, actor, repair)
       VALUES ($1, $2, $3, 'manual', $4, $5)
       ON CONFLICT (id) DO UPDATE SET repair = asked.repair OR excluded.repair`,
      [id, viewer.tenantId, runId, viewer.actor, repair],
    );
    await appendRunLines(connection, 'RULE', runId, [
      {
        type: 'automation.reconciliation.ask',
        level: 'INFO',
        message: 'a comparison with the channel was asked for',
        payload: { reconciliationId: id, repair },
      },
    ]);
    return { id, seq: run.lastSeq, isUnderWay: true };
  });
}

interface LockedRun {
  readonly status: RuleRunStatus;
  readonly appliedCount: number;
  readonly lastSeq: number;
  readonly prunedAt: Date | null;
}

async function lockAppliedRun(connection: Connection, viewer: Viewer, id: string): Promise<LockedRun> {
  const { rows } = await connection.query<LockedRun>(
    `SELECT status, applied_count AS "appliedCount", last_seq AS "lastSeq", pruned_at AS "prunedAt" FROM rule_run
     WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  if (!rows[0]) throw notFound('Rule run', id, ['input', 'runId']);
  return rows[0];
}

async function findUnderWay(connection: Connection, runId: string): Promise<string | null> {
  const { rows } = await connection.query<{ id: string }>(
    `SELECT id FROM reconciliation WHERE run_id = $1 AND trigger = 'manual'`,
    [runId],
  );
  return rows[0]?.id ?? null;
}

function nothingApplied(from: RuleRunStatus): AppError {
  const allowed = allowedEvents(ruleRunMachine, from);
  return new AppError(
    'ILLEGAL_TRANSITION',
    'None of its prices stands in the channel: there is nothing to compare.',
    {
      field: ['input', 'runId'],
      details: { machine: ruleRunMachine.name, event: 'reconcile', from, allowed },
    },
  );
}

/** Of one run in one answer: as many as the schedule makes. */
export const MAX_REPORTS = 32;

// Not what was found: a report may list thousands, and few who list reports ask for them.
const REPORT = `id, run_id AS "runId", trigger, total_checked AS "totalChecked", mismatches, unread,
  repair_run_id AS "repairRunId", created_at AS "createdAt"`;

/** The newest reports of many runs in one read, newest first. */
export async function listReconciliations(
  db: Database,
  viewer: Viewer,
  runIds: readonly string[],
): Promise<Map<string, ReconciliationRow[]>> {
  const reports = new Map<string, ReconciliationRow[]>(runIds.map((id) => [id, []]));
  const rows = await db.query<ReconciliationRow>(
    `SELECT report.* FROM unnest($1::uuid[]) AS run (id) CROSS JOIN LATERAL (
       SELECT ${REPORT} FROM reconciliation_report
       WHERE run_id = run.id AND tenant_id = $2 ORDER BY reconciliation_report.id DESC LIMIT ${MAX_REPORTS}) AS report`,
    [runIds.filter(isUuid), viewer.tenantId],
  );
  for (const row of rows) reports.get(row.runId)?.push(row);
  return reports;
}

/** A report by its id; null while it is not there. */
export async function findReconciliation(
  db: Database,
  viewer: Viewer,
  id: string,
): Promise<ReconciliationRow | null> {
  const rows = await db.query<ReconciliationRow>(
    `SELECT ${REPORT} FROM reconciliation_report WHERE id = $1 AND tenant_id = $2`,
    [id, viewer.tenantId],
  );
  return rows[0] ?? null;
}

export interface FindingsRequest {
  /** Only a mismatch says what was expected; only what could not be read has a code. */
  readonly kind: 'expected' | 'code';
  readonly first: number;
}

/** The beginning of what many reports have found, in one read. */
export async function listFindings<Finding extends Mismatch | Unread>(
  db: Database,
  viewer: Viewer,
  reportIds: readonly string[],
  { kind, first }: FindingsRequest,
): Promise<Map<string, Page<Finding>>> {
  checkFirst(first, MAX_FINDINGS_LISTED);
  const rows = await db.query<{ id: string; found: Finding[] }>(
    `SELECT report.id, coalesce((
       SELECT jsonb_agg(finding ORDER BY place) FROM (
         SELECT finding, place FROM jsonb_array_elements(report.details) WITH ORDINALITY AS each (finding, place)
         WHERE finding ? $3 ORDER BY place LIMIT $4) AS listed), '[]') AS found
     FROM reconciliation_report AS report WHERE report.id = ANY($1::uuid[]) AND report.tenant_id = $2`,
    [reportIds.filter(isUuid), viewer.tenantId, kind, first + 1],
  );
  return new Map(rows.map(({ id, found }) => [id, toPage(found, first, null)]));
}
