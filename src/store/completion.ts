// The completion of a consolidated run: what it did not see goes, then the run, its watermark and the source's move
// in one transaction. The lease on the run's row only keeps others from doing the same beside it: whoever has lost
// it does no harm, since every step looks whether the run still consolidates.

import { judgeUnseen, type UnseenVerdict } from '../domain/pipeline-run.js';
import type { Connection, Database } from './db.js';
import { appendRunLines } from './ledger.js';
import { NO_LEASE } from './partition-claim.js';
import { failRun, lockPipelineRun } from './pipeline-roll-up.js';
import { hasWaitingItems } from './raw-item.js';
import { deleteUnseen, readUnseenRun, type UnseenRun } from './unseen-item.js';

export interface Completion {
  readonly runId: string;
  readonly workerId: string;
  readonly leaseMs: number;
}

/** Ends the run if every item of its source is consolidated; false while some are not, or somebody is at it. */
export async function completeIfDone(db: Database, completion: Completion): Promise<boolean> {
  const { runId } = completion;
  // Asked again and again while others are at it: what costs more is asked only when they are done.
  const [asked] = await db.query<{ waiting: boolean }>(
    `SELECT EXISTS (SELECT 1 FROM raw_item WHERE source_id = run.source_id AND consolidated_at IS NULL) AS waiting
     FROM run_metadata run WHERE run_id = $1 AND status = 'CONSOLIDATING'`,
    [runId],
  );
  if (!asked) return true;
  if (asked.waiting) return false;
  const epoch = await claimCompletion(db, completion);
  if (epoch === null) return false;
  try {
    return await finish(db, completion, epoch);
  } finally {
    await db.query(`UPDATE run_metadata SET ${NO_LEASE} WHERE ${HELD}`, keyOf(completion, epoch));
  }
}

async function finish(db: Database, completion: Completion, epoch: number): Promise<boolean> {
  const { runId, workerId, leaseMs } = completion;
  const run = await readUnseenRun(db, runId);
  const verdict = judgeUnseen(run);
  if (verdict.kind === 'delete' && run.stale > 0) {
    await deleteUnseen(db, { runId, workerId, run }, () =>
      db.query(
        `UPDATE run_metadata SET lease_until = clock_timestamp() + $4 * interval '1 millisecond' WHERE ${HELD}`,
        [...keyOf(completion, epoch), leaseMs],
      ),
    );
  }
  return db.transaction(workerId, (connection) => complete(connection, runId, run, verdict));
}

/** The lease's epoch; null when somebody has it, or the run has ended. */
async function claimCompletion(
  db: Database,
  { runId, workerId, leaseMs }: Completion,
): Promise<number | null> {
  const [claimed] = await db.query<{ epoch: number }>(
    `UPDATE run_metadata SET claim_epoch = claim_epoch + 1, lease_epoch = claim_epoch + 1, lease_owner = $2,
       lease_until = clock_timestamp() + $3 * interval '1 millisecond'
     WHERE run_id = $1 AND status = 'CONSOLIDATING' AND lease_owner IS NULL RETURNING lease_epoch AS epoch`,
    [runId, workerId, leaseMs],
  );
  return claimed?.epoch ?? null;
}

/** Takes back leases that expired, and at once those of `deadWorkerIds`; answers how many. */
export async function recoverCompletions(db: Database, deadWorkerIds: readonly string[]): Promise<number> {
  const rows = await db.query(
    `UPDATE run_metadata SET ${NO_LEASE} WHERE run_id = ANY(ARRAY(
       SELECT run_id FROM run_metadata
       WHERE status = 'CONSOLIDATING' AND (lease_until <= clock_timestamp() OR lease_owner = ANY($1))
       ORDER BY run_id FOR NO KEY UPDATE SKIP LOCKED))
     RETURNING 1`,
    [deadWorkerIds],
  );
  return rows.length;
}

const HELD = `run_id = $1 AND lease_owner = $2 AND lease_epoch = $3 AND status = 'CONSOLIDATING'`;

function keyOf({ runId, workerId }: Completion, epoch: number): unknown[] {
  return [runId, workerId, epoch];
}

async function complete(
  connection: Connection,
  runId: string,
  run: UnseenRun,
  verdict: UnseenVerdict,
): Promise<boolean> {
  if ((await lockPipelineRun(connection, runId)) !== 'CONSOLIDATING') return true;
  if (await hasWaitingItems(connection, run.sourceId)) return false;
  if (verdict.kind !== 'delete' && run.unseen > 0) await keepUnseen(connection, runId, run, verdict.reason);
  if (verdict.kind === 'refuse') {
    await failRun(connection, runId, verdict.reason);
    return true;
  }
  if (run.recordsLacking > 0) await keepWatermark(connection, runId, run.recordsLacking);
  // The watermark is the instant at which the plan began, and it moves only when everything since was read.
  await connection.query(
    `WITH moved AS (
       UPDATE source SET watermark = greatest(source.watermark, run.plan_began_at), last_run_id = run.run_id
       FROM run_metadata run
       WHERE run.run_id = $1 AND source.id = run.source_id AND run.failed_workers = 0 AND $2
       RETURNING run.plan_began_at
     )
     UPDATE run_metadata SET status = 'COMPLETED',
       watermark_after = coalesce((SELECT plan_began_at FROM moved), watermark_before)
     WHERE run_id = $1`,
    [runId, run.recordsLacking === 0],
  );
  return true;
}

async function keepWatermark(connection: Connection, runId: string, lacking: number): Promise<void> {
  const message = `the watermark stays: ${lacking} records that were counted with the plan never came`;
  await appendRunLines(connection, 'PIPELINE', runId, [
    { type: 'pipeline_run.keep_watermark', level: 'WARN', message, payload: { records: lacking } },
  ]);
}

async function keepUnseen(
  connection: Connection,
  runId: string,
  { unseen }: UnseenRun,
  reason: string,
): Promise<void> {
  await connection.query('UPDATE run_metadata SET records_kept = $2, kept_reason = $3 WHERE run_id = $1', [
    runId,
    unseen,
    reason,
  ]);
  const message = `${unseen} items that it did not see stay in the catalog: ${reason}`;
  await appendRunLines(connection, 'PIPELINE', runId, [
    { type: 'pipeline_run.keep_unseen', level: 'WARN', message, payload: { reason, items: unseen } },
  ]);
}
