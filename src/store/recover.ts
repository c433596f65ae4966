// Recovery: taking back the leases of workers that are gone, by the same lock order as every claim. An
// expired lease costs no attempt, since nothing is known of the call; but not without end.

import { lockRun, rollUpRun } from './claim.js';
import type { Database } from './db.js';

/** A target that loses its worker this often is given up: it may be what ends them. */
export const MAX_LOST_LEASES = 5;

/** Takes back leases that expired, and at once those of `deadWorkerIds`; answers how many. */
export async function recoverLeases(db: Database, deadWorkerIds: readonly string[]): Promise<number> {
  const runs = await db.query<{ id: string }>(
    `SELECT id FROM rule_run
     WHERE lease_floor IS NOT NULL AND (lease_floor <= clock_timestamp() OR $1) ORDER BY id`,
    [deadWorkerIds.length > 0],
  );
  let recovered = 0;
  for (const { id } of runs) recovered += await recoverRun(db, id, deadWorkerIds);
  return recovered;
}

function recoverRun(db: Database, runId: string, deadWorkerIds: readonly string[]): Promise<number> {
  return db.transaction('system', async (connection) => {
    await lockRun(connection, runId);
    const { rowCount } = await connection.query(
      `UPDATE rule_target SET
         status = CASE WHEN lost_leases + 1 < $2 THEN 'QUEUED' ELSE 'FAILED' END,
         attempts = CASE WHEN lost_leases + 1 < $2 THEN attempts - 1 ELSE attempts END,
         lost_leases = lost_leases + 1,
         error_code = 'LEASE_EXPIRED',
         error_message = format('the lease of %s expired', lease_owner)
       WHERE id = ANY(ARRAY(
         SELECT id FROM rule_target
         WHERE run_id = $1 AND status = 'APPLYING' AND (lease_until <= clock_timestamp() OR lease_owner = ANY($3))
         ORDER BY id FOR UPDATE SKIP LOCKED))`,
      [runId, MAX_LOST_LEASES, deadWorkerIds],
    );
    await connection.query(
      `UPDATE rule_run SET lease_floor =
         (SELECT min(lease_until) FROM rule_target WHERE run_id = $1 AND status = 'APPLYING')
       WHERE id = $1`,
      [runId],
    );
    await rollUpRun(connection, runId);
    return rowCount ?? 0;
  });
}
