// The end of a run's work. Whoever changed its targets asks here, under the run's lock, whether that was the
// last of it: an APPLYING run rolls up into its final state, and one that is being rolled back becomes
// ROLLED_BACK when no applied target is left. A rollback that had to leave some behind ends too, but the run
// keeps its state, since prices of its making still stand: its `error` says how many, and why. One that the clock
// asked for is asked for again where the reason may pass: nobody may be there to do it.

import { rollUp, ruleRunMachine, type RuleRunStatus, type TargetCounts } from '../domain/rule-run.js';
import type { Connection } from './db.js';
import { appendRunLines } from './ledger.js';
import { bind, prepared } from './prepared.js';

export interface LockedRun extends TargetCounts {
  readonly id: string;
  readonly status: RuleRunStatus;
  readonly rolling_back: boolean;
  readonly rollback_all: boolean;
}

const LOCK_RUN = prepared(
  'lock_rule_run',
  `SELECT id, status, rolling_back, rollback_all, total_count AS total, preview_count AS preview,
     queued_count AS queued, applying_count AS applying, applied_count AS applied, failed_count AS failed,
     rolled_back_count AS "rolledBack", cancelled_count AS cancelled
   FROM rule_run WHERE id = $1 FOR NO KEY UPDATE`,
);

/** The run, locked, with its counters as they are by now. */
export async function lockRun(connection: Connection, runId: string): Promise<LockedRun> {
  const { rows } = await connection.query<LockedRun>(bind(LOCK_RUN, [runId]));
  return rows[0]!;
}

/**
 * Ends what has nothing left to do; answers how long the run took then, else null. The counters are the
 * database's own: they already include what this transaction changed.
 */
export async function concludeRun(
  connection: Connection,
  runId: string,
  lastError: string | null,
): Promise<number | null> {
  return concludeLockedRun(connection, await lockRun(connection, runId), lastError);
}

/** The same for a run of which nothing has changed since it was locked. */
export async function concludeLockedRun(
  connection: Connection,
  run: LockedRun,
  lastError: string | null,
): Promise<number | null> {
  if (run.rolling_back) await concludeRollBack(connection, run);
  const event = run.status === 'APPLYING' ? rollUp(run) : null;
  if (!event) return null;
  const error =
    event === 'fail' ? `Every target failed${lastError ? `, the last one with: ${lastError}` : ''}` : null;
  const ended = await connection.query<{ ms: number }>(
    `UPDATE rule_run SET status = $2, error = $3 WHERE id = $1
     RETURNING (extract(epoch FROM finished_at - started_at) * 1000)::float8 AS ms`,
    [run.id, ruleRunMachine.events[event].to, error],
  );
  return ended.rows[0]!.ms;
}

async function concludeRollBack(connection: Connection, run: LockedRun): Promise<void> {
  if (run.applying > 0 && run.rollback_all) return;
  if (run.applied + run.applying === 0) {
    await connection.query(`UPDATE rule_run SET status = 'ROLLED_BACK', error = NULL WHERE id = $1`, [
      run.id,
    ]);
    return;
  }
  const { rows } = await connection.query<{ waits: boolean }>(
    `SELECT EXISTS (
       SELECT 1 FROM rule_target WHERE run_id = $1 AND next_attempt_at IS NOT NULL AND status = 'APPLIED') AS waits`,
    [run.id],
  );
  if (!rows[0]!.waits) await endRollBack(connection, run.id);
}

/** Why a target was not set back although the channel was asked and answered: asking again would not help. */
export const FINAL_CODES: readonly string[] = ['CONFLICT', 'INVALID'];

// Of the applied targets that are left, those with an error are the ones that could not be set back.
async function endRollBack(connection: Connection, runId: string): Promise<void> {
  const { rows } = await connection.query<{ code: string; count: number }>(
    `SELECT error_code AS code, count(*)::int AS count FROM rule_target
     WHERE run_id = $1 AND status = 'APPLIED' AND error_code IS NOT NULL GROUP BY error_code ORDER BY error_code`,
    [runId],
  );
  const left = rows.reduce((sum, { count }) => sum + count, 0);
  const byCode = rows.map(({ code, count }) => `${count} ${code}`).join(', ');
  const mayPass = rows.some(({ code }) => !FINAL_CODES.includes(code));
  const againAt = mayPass ? await armRevertAgain(connection, runId) : null;
  const subject = left === 1 ? '1 target was' : `${left} targets were`;
  const outlook = againAt === null ? '' : `; they are asked for again at ${againAt.toISOString()}`;
  const error = left === 0 ? null : `${subject} not set back: ${byCode}${outlook}`;
  await connection.query(
    'UPDATE rule_run SET rolling_back = false, paused = false, next_claim_at = NULL, error = $2 WHERE id = $1',
    [runId, error],
  );
  await appendRunLines(connection, 'RULE', runId, [
    {
      type: 'rule_run.end_roll_back',
      level: error === null ? 'INFO' : 'WARN',
      message: error ?? 'The targets asked for are set back',
      payload: { left, byCode: Object.fromEntries(rows.map(({ code, count }) => [code, count])), againAt },
    },
  ]);
}

/** A run that was to set itself back asks once more in a while, for a day; when, or null. */
async function armRevertAgain(connection: Connection, runId: string): Promise<Date | null> {
  const { rows } = await connection.query<{ at: Date }>(
    `UPDATE rule_run SET auto_reverted = false, revert_again_at = clock_timestamp() + interval '5 minutes'
     WHERE id = $1 AND auto_reverted AND auto_revert_at > clock_timestamp() - interval '1 day'
     RETURNING revert_again_at AS at`,
    [runId],
  );
  return rows[0]?.at ?? null;
}
