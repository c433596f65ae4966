// The planning of pipeline runs, as work under a lease on the run's own row: claim → heartbeat → settle or
// release → expire. A settle names the claim it belongs to; one that came too late changes nothing.

import { failureText, MAX_DELIVERIES } from '../domain/partition.js';
import { EXTERNAL_SOURCE_KIND, type PipelineRunType } from '../domain/pipeline-run.js';
import type { Connection, Database } from './db.js';
import { appendRunLines } from './ledger.js';
import { failRun } from './pipeline-roll-up.js';

export interface PlanClaim {
  readonly workerId: string;
  readonly runId: string;
  readonly tenantId: string;
  readonly sourceId: string;
  /** Differs when the source's configuration does. */
  readonly sourceVersion: string;
  readonly runType: PipelineRunType;
  readonly since: Date | null;
  readonly attempts: number;
  readonly epoch: number;
}

export interface PlannedPartition {
  readonly partitionId: string;
  /** What its pages are asked for with: the range, its size, the length of a page. */
  readonly payload: Readonly<Record<string, unknown>>;
}

const DUE = `run.status = 'CREATED' AND run.lease_owner IS NULL AND source.kind <> '${EXTERNAL_SOURCE_KIND}'`;

/** Milliseconds until a run waits to be planned; null when none does. */
export async function nextPlanDelayMs(db: Database): Promise<number | null> {
  const rows = await db.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM min(coalesce(run.next_attempt_at, run.created_at)) - clock_timestamp()) * 1000)::float8 AS ms
     FROM run_metadata run JOIN source ON source.id = run.source_id WHERE ${DUE}`,
  );
  return rows[0]?.ms ?? null;
}

export async function claimPlan(
  db: Database,
  { workerId, leaseMs }: { readonly workerId: string; readonly leaseMs: number },
): Promise<PlanClaim | null> {
  const rows = await db.query<Omit<PlanClaim, 'workerId'> & Record<string, unknown>>(
    `UPDATE run_metadata AS run
     SET lease_owner = $1, lease_until = clock_timestamp() + $2 * interval '1 millisecond',
       claim_epoch = claim_epoch + 1, lease_epoch = claim_epoch + 1, attempts = attempts + 1, next_attempt_at = NULL
     FROM source
     WHERE source.id = run.source_id AND run.run_id = ANY(ARRAY(
       SELECT run.run_id FROM run_metadata run JOIN source ON source.id = run.source_id
       WHERE ${DUE} AND coalesce(run.next_attempt_at, run.created_at) <= clock_timestamp()
       ORDER BY run.created_at LIMIT 1 FOR UPDATE OF run SKIP LOCKED))
     RETURNING run.run_id AS "runId", run.tenant_id AS "tenantId", source.id AS "sourceId",
       source.updated_at::text AS "sourceVersion", run.run_type AS "runType", run.attempts, run.lease_epoch AS epoch,
       CASE WHEN run.run_type = 'incremental' THEN run.watermark_before END AS since`,
    [workerId, leaseMs],
  );
  return rows[0] ? { ...rows[0], workerId } : null;
}

export async function extendPlanLease(db: Database, claim: PlanClaim, leaseMs: number): Promise<void> {
  await db.query(
    `UPDATE run_metadata SET lease_until = clock_timestamp() + $4 * interval '1 millisecond' WHERE ${HELD}`,
    [...keyOf(claim), leaseMs],
  );
}

/** Lays out the partitions and starts the run; false when the claim was lost. */
export function settlePlan(
  db: Database,
  claim: PlanClaim,
  plan: { readonly beganAt: Date; readonly partitions: readonly PlannedPartition[] },
): Promise<boolean> {
  return db.transaction(claim.workerId, async (connection) => {
    if (!(await lockIfHeld(connection, claim))) return false;
    const { runId } = claim;
    const { partitions } = plan;
    if (partitions.length === 0 && (await wouldEmpty(connection, claim))) {
      // It was planned: a person who knows better may consolidate it.
      await connection.query('UPDATE run_metadata SET plan_began_at = $2 WHERE run_id = $1', [
        runId,
        plan.beganAt,
      ]);
      await failRun(
        connection,
        runId,
        'the source has no records at all any more, which is taken for a fault: if it is none, consolidate it with force',
      );
      return true;
    }
    await insertPartitions(connection, claim, partitions);
    await connection.query(
      `UPDATE run_metadata SET status = 'WORKERS_RUNNING', expected_workers = $2, plan_began_at = $3 WHERE run_id = $1`,
      [runId, partitions.length, plan.beganAt],
    );
    if (partitions.length === 0) {
      await connection.query(`UPDATE run_metadata SET status = 'CONSOLIDATING' WHERE run_id = $1`, [runId]);
    }
    return true;
  });
}

// A full run takes what it does not see out of the catalog: one that sees nothing would take out all of it.
async function wouldEmpty(connection: Connection, { runType, sourceId }: PlanClaim): Promise<boolean> {
  if (runType !== 'full') return false;
  const { rowCount } = await connection.query('SELECT 1 FROM raw_item WHERE source_id = $1 LIMIT 1', [
    sourceId,
  ]);
  return rowCount === 1;
}

async function insertPartitions(
  connection: Connection,
  { runId, tenantId }: PlanClaim,
  partitions: readonly PlannedPartition[],
): Promise<void> {
  const ids = partitions.map(({ partitionId }) => partitionId);
  await connection.query(
    `INSERT INTO worker_runs (run_id, tenant_id, partition_id, work_item_payload, started_at)
     SELECT $1, $2, part.id, part.payload, NULL FROM unnest($3::text[], $4::jsonb[]) AS part (id, payload)`,
    [runId, tenantId, ids, partitions.map(({ payload }) => JSON.stringify(payload))],
  );
  await connection.query(
    'INSERT INTO partition_progress (run_id, tenant_id, partition_id) SELECT $1, $2, id FROM unnest($3::text[]) AS id',
    [runId, tenantId, ids],
  );
}

/** The plan is tried again after the delay. */
export function retryPlan(
  db: Database,
  claim: PlanClaim,
  { message, delayMs }: { readonly message: string; readonly delayMs: number },
): Promise<boolean> {
  const error = failureText(message);
  return db.transaction(claim.workerId, async (connection) => {
    if (!(await lockIfHeld(connection, claim))) return false;
    await connection.query(
      `UPDATE run_metadata SET lease_owner = NULL, lease_until = NULL, lease_epoch = NULL, error = $2,
         next_attempt_at = clock_timestamp() + $3 * interval '1 millisecond' WHERE run_id = $1`,
      [claim.runId, error, delayMs],
    );
    const payload = { attempt: claim.attempts, delayMs, error };
    await appendRunLines(connection, 'PIPELINE', claim.runId, [
      { type: 'pipeline_run.retry_plan', level: 'WARN', message: error, payload },
    ]);
    return true;
  });
}

export function failPlan(db: Database, claim: PlanClaim, message: string): Promise<boolean> {
  return db.transaction(claim.workerId, async (connection) => {
    if (!(await lockIfHeld(connection, claim))) return false;
    await failRun(connection, claim.runId, message);
    return true;
  });
}

/** Hands the lease back, as on shutdown: what was not tried to the end costs no attempt. */
export async function releasePlan(db: Database, claim: PlanClaim): Promise<void> {
  await db.query(
    `UPDATE run_metadata SET lease_owner = NULL, lease_until = NULL, lease_epoch = NULL, attempts = attempts - 1
     WHERE ${HELD}`,
    keyOf(claim),
  );
}

/** Takes back leases that expired, and at once those of `deadWorkerIds`; answers how many. */
export async function recoverPlans(db: Database, deadWorkerIds: readonly string[]): Promise<number> {
  return db.transaction('system', async (connection) => {
    const { rows } = await connection.query<{ run_id: string; attempts: number; lease_owner: string }>(
      `SELECT run_id, attempts, lease_owner FROM run_metadata
       WHERE status = 'CREATED' AND (lease_until <= clock_timestamp() OR lease_owner = ANY($1))
       ORDER BY run_id FOR NO KEY UPDATE SKIP LOCKED`,
      [deadWorkerIds],
    );
    for (const { run_id, attempts, lease_owner } of rows) {
      const message = `the lease of ${lease_owner} expired`;
      if (attempts >= MAX_DELIVERIES) await failRun(connection, run_id, message);
      else {
        await connection.query(
          `UPDATE run_metadata SET lease_owner = NULL, lease_until = NULL, lease_epoch = NULL, error = $2
           WHERE run_id = $1`,
          [run_id, message],
        );
      }
    }
    return rows.length;
  });
}

const HELD = `run_id = $1 AND lease_owner = $2 AND lease_epoch = $3 AND status = 'CREATED'`;

function keyOf({ runId, workerId, epoch }: PlanClaim): unknown[] {
  return [runId, workerId, epoch];
}

async function lockIfHeld(connection: Connection, claim: PlanClaim): Promise<boolean> {
  const { rowCount } = await connection.query(
    `SELECT 1 FROM run_metadata WHERE ${HELD} FOR NO KEY UPDATE`,
    keyOf(claim),
  );
  return rowCount === 1;
}
