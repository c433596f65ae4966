// Recovery: taking back the leases of workers that are gone. It locks the run first, and passes over targets that
// somebody holds, since whoever settles locks them the other way round. An expired lease costs no attempt, since
// nothing is known of the call; but not without end.

import { concludeRun, lockRun } from './conclude.js';
import type { Connection, Database } from './db.js';
import { cancelReturned } from './settle.js';

/** A target that loses its worker this often is given up: it may be what ends them. */
export const MAX_LOST_LEASES = 5;

/** What came of a run of which leases were taken back. */
export interface RecoveredRun {
  readonly runId: string;
  /** Targets that had lost their workers too often. */
  readonly givenUp: number;
  /** How long the run took, when this brought it to its end. */
  readonly runMs: number | null;
}

/** Takes back leases that expired, and at once those of `deadWorkerIds`; answers how many. */
export async function recoverLeases(
  db: Database,
  deadWorkerIds: readonly string[],
  tell: (run: RecoveredRun) => void = () => {},
): Promise<number> {
  let recovered = 0;
  for (const runId of await listRunsToLookAt(db, deadWorkerIds)) {
    const { returned, ...run } = await recoverRun(db, runId, deadWorkerIds);
    if (returned > 0) tell(run);
    recovered += returned;
  }
  if (deadWorkerIds.length > 0) recovered += await recoverRollBacks(db, deadWorkerIds);
  return recovered;
}

async function listRunsToLookAt(db: Database, deadWorkerIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ id: string }>(
    `SELECT id FROM rule_run
     WHERE lease_floor IS NOT NULL AND (lease_floor <= clock_timestamp() OR $1) ORDER BY id`,
    [deadWorkerIds.length > 0],
  );
  return rows.map(({ id }) => id);
}

function recoverRun(
  db: Database,
  runId: string,
  deadWorkerIds: readonly string[],
): Promise<RecoveredRun & { readonly returned: number }> {
  return db.transaction('system', async (connection) => {
    const run = await lockRun(connection, runId);
    const returned = await returnTargets(connection, runId, deadWorkerIds);
    await cancelReturned(
      connection,
      run,
      returned.map(({ id }) => id),
    );
    await connection.query(
      `UPDATE rule_run SET lease_floor = CASE WHEN applying_count > 0 THEN
         (SELECT min(lease_until) FROM rule_target WHERE run_id = $1 AND status = 'APPLYING') END
       WHERE id = $1`,
      [runId],
    );
    const runMs = await concludeRun(connection, runId, 'the lease of its worker expired');
    const givenUp = returned.filter(({ isGivenUp }) => isGivenUp).length;
    return { runId, givenUp, runMs, returned: returned.length };
  });
}

interface ReturnedTarget {
  readonly id: string;
  readonly isGivenUp: boolean;
}

async function returnTargets(
  connection: Connection,
  runId: string,
  deadWorkerIds: readonly string[],
): Promise<readonly ReturnedTarget[]> {
  // A run without a target in flight need not be searched for one.
  const { rows } = await connection.query<ReturnedTarget>(
    `UPDATE rule_target SET
       status = CASE WHEN lost_leases + 1 < $2 THEN 'QUEUED' ELSE 'FAILED' END,
       attempts = CASE WHEN lost_leases + 1 < $2 THEN attempts - 1 ELSE attempts END,
       lost_leases = lost_leases + 1,
       error_code = 'LEASE_EXPIRED',
       error_message = format('the lease of %s expired', lease_owner)
     WHERE id = ANY(ARRAY(
       SELECT target.id FROM rule_run run JOIN rule_target target ON target.run_id = run.id
       WHERE run.id = $1 AND run.applying_count > 0 AND target.status = 'APPLYING'
         AND (target.lease_until <= clock_timestamp() OR target.lease_owner = ANY($3))
       ORDER BY target.id FOR UPDATE OF target SKIP LOCKED))
     RETURNING id::text AS id, status = 'FAILED' AS "isGivenUp"`,
    [runId, MAX_LOST_LEASES, deadWorkerIds],
  );
  return rows;
}

// Leases for setting back run out by themselves; those of the dead need not be waited for.
async function recoverRollBacks(db: Database, deadWorkerIds: readonly string[]): Promise<number> {
  const runs = await db.query<{ id: string }>('SELECT id FROM rule_run WHERE rolling_back ORDER BY id');
  let recovered = 0;
  for (const { id } of runs) {
    recovered += await db.transaction('system', async (connection) => {
      await lockRun(connection, id);
      const { rowCount } = await connection.query(
        `UPDATE rule_target SET rollback_attempts = rollback_attempts - 1, next_attempt_at = clock_timestamp(),
           lease_owner = NULL, lease_until = NULL, lease_epoch = NULL
         WHERE id = ANY(ARRAY(
           SELECT id FROM rule_target WHERE run_id = $1 AND next_attempt_at IS NOT NULL AND lease_owner = ANY($2)
           FOR UPDATE SKIP LOCKED))`,
        [id, deadWorkerIds],
      );
      if (rowCount) {
        await connection.query('UPDATE rule_run SET next_claim_at = clock_timestamp() WHERE id = $1', [id]);
      }
      return rowCount ?? 0;
    });
  }
  return recovered;
}
