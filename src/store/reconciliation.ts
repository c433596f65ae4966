// Reconciliations: asking for one, and reading the reports.

import { allowedEvents } from '../domain/machine.js';
import type { Mismatch } from '../domain/reconciliation.js';
import { ruleRunMachine, type RuleRunStatus } from '../domain/rule-run.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { translated, type Connection, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import { reserveKey } from './idempotency.js';
import { appendRunLines } from './ledger.js';
import type { ReconciliationReport } from './prisma/client.js';
import { notFound } from './transition.js';

export type ReconciliationRow = Omit<ReconciliationReport, 'details'> & {
  readonly details: readonly Mismatch[];
};

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
}

async function lockAppliedRun(connection: Connection, viewer: Viewer, id: string): Promise<LockedRun> {
  const { rows } = await connection.query<LockedRun>(
    `SELECT status, applied_count AS "appliedCount", last_seq AS "lastSeq" FROM rule_run
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

/** The reports of many runs in one read, newest first. */
export async function listReconciliations(
  db: Database,
  viewer: Viewer,
  runIds: readonly string[],
): Promise<Map<string, ReconciliationRow[]>> {
  const reports = new Map<string, ReconciliationRow[]>(runIds.map((id) => [id, []]));
  const rows = await translated(
    db.prisma.reconciliationReport.findMany({
      where: { tenantId: viewer.tenantId, runId: { in: runIds.filter(isUuid) } },
      orderBy: { id: 'desc' },
    }),
  );
  for (const row of rows) reports.get(row.runId)?.push(toRow(row));
  return reports;
}

/** A report by its id; null while it is not there. */
export async function findReconciliation(
  db: Database,
  viewer: Viewer,
  id: string,
): Promise<ReconciliationRow | null> {
  const row = await translated(
    db.prisma.reconciliationReport.findFirst({ where: { id, tenantId: viewer.tenantId } }),
  );
  return row && toRow(row);
}

function toRow(row: ReconciliationReport): ReconciliationRow {
  return { ...row, details: row.details as unknown as readonly Mismatch[] };
}
