// Asking for a rollback. It marks the run and the targets to set back; the runner does the rest, target by
// target, and the run becomes ROLLED_BACK when none of its prices stands any more. Asked again, it takes up
// what was left behind, under the newest rule for conflicts.

import { ruleRunMachine, type OnConflict } from '../domain/rule-run.js';
import type { Viewer } from '../domain/viewer.js';
import { concludeRun, FINAL_CODES } from './conclude.js';
import type { Connection, Database } from './db.js';
import { appendRunLines } from './ledger.js';
import { cancelLockedRun } from './rule-run-control.js';
import {
  actOnRuleRun,
  lockRuleRun,
  type LockedRuleRun,
  type RuleRunRow,
  type RunRequest,
} from './rule-run-row.js';
import { requireTargetsIn } from './target-choice.js';
import { requireNext } from './transition.js';

export interface RollBackRequest extends RunRequest {
  /** Null: whatever the run has applied, or still applies. */
  readonly targetIds: readonly string[] | null;
  readonly onConflict: OnConflict;
}

export function rollBackRuleRun(db: Database, viewer: Viewer, request: RollBackRequest): Promise<RuleRunRow> {
  return actOnRuleRun(db, viewer, 'rollBackRuleRun', request, (connection, run) =>
    askForRollBack(connection, run, request.targetIds, request.onConflict),
  );
}

async function askForRollBack(
  connection: Connection,
  run: LockedRuleRun,
  targetIds: readonly string[] | null,
  onConflict: OnConflict,
  leftCodes: readonly string[] = [],
): Promise<void> {
  requireNext(ruleRunMachine, run.status, 'roll_back', { field: ['input', 'runId'] });
  if (targetIds) await requireTargetsIn(connection, run.id, targetIds, 'roll_back');
  const count = await markTargets(connection, run.id, targetIds, leftCodes);
  await connection.query(
    `UPDATE rule_run SET rolling_back = true, rollback_asked_at = clock_timestamp(),
       rollback_all = (rolling_back AND rollback_all) OR $2, rollback_on_conflict = $3,
       next_claim_at = clock_timestamp(), error = NULL
     WHERE id = $1`,
    [run.id, targetIds === null, onConflict],
  );
  await appendRunLines(connection, 'RULE', run.id, [
    {
      type: 'rule_run.ask_roll_back',
      level: 'INFO',
      message: `${count} ${count === 1 ? 'target is' : 'targets are'} to be set back`,
      payload: { count, all: targetIds === null, onConflict },
    },
  ]);
  await concludeRun(connection, run.id, null);
}

// What a worker holds already stays with it, and what failed with one of `leftCodes` stays as it is.
async function markTargets(
  connection: Connection,
  runId: string,
  targetIds: readonly string[] | null,
  leftCodes: readonly string[],
): Promise<number> {
  const { rowCount } = await connection.query(
    `UPDATE rule_target
     SET next_attempt_at = clock_timestamp(), rollback_attempts = 0, error_code = NULL, error_message = NULL
     WHERE run_id = $1 AND status = 'APPLIED' AND lease_owner IS NULL AND ($2::bigint[] IS NULL OR id = ANY($2))
       AND (error_code = ANY($3)) IS NOT TRUE`,
    [runId, targetIds, leftCodes],
  );
  return rowCount ?? 0;
}

/**
 * Sets back the runs whose time for that has come; one that is still under way is stopped first. One that cannot
 * be asked keeps no other waiting, for sales end on time: it is thrown at the end.
 */
export async function revertDueRuns(db: Database): Promise<void> {
  const due = await db.query<{ id: string; tenantId: string }>(
    `SELECT id, tenant_id AS "tenantId" FROM rule_run WHERE ${IS_DUE} ORDER BY auto_revert_at LIMIT 100`,
  );
  const faults: unknown[] = [];
  for (const { id, tenantId } of due) {
    await revertRun(db, tenantId, id).catch((fault: unknown) => faults.push(fault));
  }
  if (faults.length > 0) throw new AggregateError(faults, 'Not every run could be set back when it was due.');
}

// A preview was never queued, and a failed run has nothing to set back unless it is tried again. The statement's
// time, since no index is read by a clock that moves on while it runs.
const IS_DUE = `auto_revert_at <= statement_timestamp() AND NOT auto_reverted
  AND (revert_again_at > statement_timestamp()) IS NOT TRUE
  AND (status IN ('QUEUED', 'APPLYING', 'APPLIED', 'PARTIAL') OR status = 'CANCELLED' AND applied_count + applying_count > 0)`;

async function revertRun(db: Database, tenantId: string, runId: string): Promise<void> {
  const viewer: Viewer = { tenantId, role: 'ADMIN', actor: 'system', keyId: null };
  await db.transaction(viewer.actor, async (connection) => {
    await lockRuleRun(connection, viewer, runId);
    const { rows } = await connection.query<{ wasAsked: boolean }>(
      `UPDATE rule_run SET auto_reverted = true WHERE id = $1 AND ${IS_DUE}
       RETURNING revert_again_at IS NOT NULL AS "wasAsked"`,
      [runId],
    );
    if (!rows[0]) return;
    const run = await lockRuleRun(connection, viewer, runId);
    const isOpen = run.status === 'QUEUED' || run.status === 'APPLYING';
    if (isOpen) await cancelLockedRun(connection, run);
    const now = isOpen ? await lockRuleRun(connection, viewer, runId) : run;
    await askForRollBack(connection, now, null, 'SKIP', rows[0].wasAsked ? FINAL_CODES : []);
  });
}
