// Consolidation: raw items become catalog items, a batch a transaction. The rows themselves are the claim: a
// batch locks what nobody else has locked, so that replicas share the work, and a crash gives it back at once.
// Completion, the run's watermark and the source's are one transaction.

import type { NewCatalogItem } from '../domain/catalog-item.js';
import {
  CONSOLIDATION_BATCH,
  EXTERNAL_SOURCE_KIND,
  findBlindness,
  MAX_CONSOLIDATION_ATTEMPTS,
  type PipelineRunType,
} from '../domain/pipeline-run.js';
import { upsertCatalogItems } from './catalog-item.js';
import type { Connection, Database } from './db.js';
import { appendRunLines } from './ledger.js';
import { failRun, lockPipelineRun } from './pipeline-roll-up.js';
import { hasWaitingItems, lockWaitingItems, markConsolidated, type RawItem } from './raw-item.js';
import { writeRejected, type RejectedRecord } from './rejected-record.js';

export interface ConsolidatingRun {
  readonly runId: string;
  readonly tenantId: string;
  readonly projectId: string;
  readonly sourceId: string;
  readonly sourceVersion: string;
}

export interface MappedBatch {
  readonly items: readonly NewCatalogItem[];
  readonly rejected: readonly RejectedRecord[];
}

const DUE = `run.status = 'CONSOLIDATING' AND source.kind <> '${EXTERNAL_SOURCE_KIND}'`;

/** Milliseconds until some run can be consolidated; null when none waits. */
export async function nextConsolidationDelayMs(
  db: Database,
  except: readonly string[],
): Promise<number | null> {
  const rows = await db.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM min(coalesce(run.next_attempt_at, run.created_at)) - clock_timestamp()) * 1000)::float8 AS ms
     FROM run_metadata run JOIN source ON source.id = run.source_id WHERE ${DUE} AND run.run_id <> ALL($1::uuid[])`,
    [except],
  );
  return rows[0]?.ms ?? null;
}

export async function findConsolidatingRuns(
  db: Database,
  except: readonly string[],
): Promise<ConsolidatingRun[]> {
  return db.query<ConsolidatingRun & Record<string, unknown>>(
    `SELECT run.run_id AS "runId", run.tenant_id AS "tenantId", run.project_id AS "projectId",
       source.id AS "sourceId", source.updated_at::text AS "sourceVersion"
     FROM run_metadata run JOIN source ON source.id = run.source_id
     WHERE ${DUE} AND run.run_id <> ALL($1::uuid[]) AND coalesce(run.next_attempt_at, run.created_at) <= clock_timestamp()
     ORDER BY run.created_at`,
    [except],
  );
}

export interface BatchRequest {
  readonly workerId: string;
  /** Items up to here were taken before. */
  readonly after: string;
  /** Told as soon as the batch is locked, of the last of its items. */
  readonly onLocked: (last: string) => void;
  readonly map: (items: readonly RawItem[]) => MappedBatch;
}

/** Consolidates one batch; answers how many items it had. */
export function consolidateBatch(
  db: Database,
  run: ConsolidatingRun,
  request: BatchRequest,
): Promise<number> {
  const { sourceId, tenantId, runId } = run;
  return db.transaction(request.workerId, async (connection) => {
    const raw = await lockWaitingItems(connection, sourceId, request.after, CONSOLIDATION_BATCH);
    const last = raw.at(-1);
    if (!last) return 0;
    request.onLocked(last.externalId);
    const { items, rejected } = request.map(raw);
    await upsertCatalogItems(connection, { tenantId, sourceId }, items);
    await markConsolidated(
      connection,
      sourceId,
      raw.map(({ externalId }) => externalId),
    );
    await writeRejected(connection, run, null, rejected);
    // Last, because it takes the run's lock, which every batch needs for this moment.
    await connection.query(
      `WITH run AS (
         UPDATE run_metadata SET records_consolidated = records_consolidated + $2,
           records_rejected = records_rejected + $3, attempts = 0
         WHERE run_id = $1 RETURNING *
       ) SELECT ring_bell('PIPELINE', run_id, last_seq, tenant_id) FROM run`,
      [runId, items.length, rejected.length],
    );
    return raw.length;
  });
}

/** A batch broke: it is tried again after the delay, a few times. */
export function retryConsolidation(
  db: Database,
  {
    runId,
    workerId,
    message,
    delayMs,
  }: {
    readonly runId: string;
    readonly workerId: string;
    readonly message: string;
    readonly delayMs: number;
  },
): Promise<void> {
  return db.transaction(workerId, async (connection) => {
    if ((await lockPipelineRun(connection, runId)) !== 'CONSOLIDATING') return;
    const { rows } = await connection.query<{ attempts: number }>(
      `UPDATE run_metadata SET attempts = attempts + 1, error = $2,
         next_attempt_at = clock_timestamp() + $3 * interval '1 millisecond'
       WHERE run_id = $1 RETURNING attempts`,
      [runId, message, delayMs],
    );
    const { attempts } = rows[0]!;
    if (attempts >= MAX_CONSOLIDATION_ATTEMPTS) return failRun(connection, runId, message);
    return appendRunLines(connection, 'PIPELINE', runId, [
      {
        type: 'pipeline_run.retry_consolidation',
        level: 'WARN',
        message,
        payload: { attempt: attempts, delayMs, error: message },
      },
    ]);
  });
}

interface RunReading {
  readonly status: string;
  readonly sourceId: string;
  readonly tenantId: string;
  readonly runType: PipelineRunType;
  readonly failedWorkers: number;
  readonly recordsProcessed: number;
  readonly recordsMissing: number;
}

/** Ends the run if every item of its source is consolidated; false while some are not, or somebody has them. */
export async function completeIfDone(db: Database, runId: string, workerId: string): Promise<boolean> {
  const run = await readRun(db, runId);
  if (run?.status !== 'CONSOLIDATING') return true;
  if (await db.transaction(workerId, (connection) => hasWaitingItems(connection, run.sourceId))) return false;
  const blindness = findBlindness(run);
  if (blindness === null) await deleteUnseen(db, runId, workerId, run);
  return db.transaction(workerId, (connection) => complete(connection, runId, run, blindness));
}

async function readRun(db: Database, runId: string): Promise<RunReading | undefined> {
  const rows = await db.query<RunReading & Record<string, unknown>>(
    `SELECT status, source_id AS "sourceId", tenant_id AS "tenantId", run_type AS "runType",
       failed_workers AS "failedWorkers",
       part.processed AS "recordsProcessed", part.missing AS "recordsMissing"
     FROM run_metadata run CROSS JOIN LATERAL (
       SELECT coalesce(sum(records_processed), 0)::integer AS processed,
         coalesce(sum(records_missing), 0)::integer AS missing
       FROM worker_runs WHERE run_id = run.run_id) part
     WHERE run_id = $1`,
    [runId],
  );
  return rows[0];
}

// What this run did not see, and no other saw since it began. In batches: it may be the whole catalog.
async function deleteUnseen(db: Database, runId: string, workerId: string, run: RunReading): Promise<void> {
  for (let after: string | null = ''; after !== null;) {
    after = await db.transaction(workerId, (connection) => deleteUnseenBatch(connection, runId, run, after!));
  }
}

/** Answers the last raw item that it looked at; null when there are no more. */
async function deleteUnseenBatch(
  connection: Connection,
  runId: string,
  { sourceId, tenantId }: RunReading,
  after: string,
): Promise<string | null> {
  const { rows } = await connection.query<{ last: string | null }>(
    `WITH unseen AS (
       SELECT raw.external_id FROM raw_item raw
       WHERE raw.source_id = $1 AND raw.external_id > $4
         AND raw.fetched_at < (SELECT started_at FROM run_metadata WHERE run_id = $3)
       ORDER BY raw.external_id LIMIT ${CONSOLIDATION_BATCH}
     ), deleted AS (
       UPDATE catalog_item SET deleted_at = clock_timestamp(), updated_at = clock_timestamp()
       WHERE id = ANY(ARRAY(
         SELECT item.id FROM catalog_item item JOIN unseen USING (external_id)
         WHERE item.tenant_id = $2 AND item.source_id = $1 AND item.deleted_at IS NULL
         ORDER BY item.external_id FOR UPDATE OF item))
       RETURNING 1
     ), counted AS (
       UPDATE run_metadata SET records_deleted = records_deleted + (SELECT count(*) FROM deleted)
       WHERE run_id = $3 AND EXISTS (SELECT 1 FROM deleted)
     )
     SELECT max(external_id) AS last FROM unseen HAVING count(*) = ${CONSOLIDATION_BATCH}`,
    [sourceId, tenantId, runId, after],
  );
  return rows[0]?.last ?? null;
}

async function complete(
  connection: Connection,
  runId: string,
  run: RunReading,
  blindness: string | null,
): Promise<boolean> {
  if ((await lockPipelineRun(connection, runId)) !== 'CONSOLIDATING') return true;
  if (await hasWaitingItems(connection, run.sourceId)) return false;
  if (blindness !== null && run.runType === 'full') {
    const message = `nothing is taken out of the catalog: ${blindness}`;
    await appendRunLines(connection, 'PIPELINE', runId, [
      { type: 'pipeline_run.keep_unseen', level: 'WARN', message, payload: { reason: blindness } },
    ]);
  }
  // The watermark is the instant at which the plan began, and it moves only when everything since was read.
  await connection.query(
    `WITH moved AS (
       UPDATE source SET watermark = greatest(source.watermark, run.plan_began_at), last_run_id = run.run_id
       FROM run_metadata run
       WHERE run.run_id = $1 AND source.id = run.source_id AND run.failed_workers = 0
       RETURNING run.plan_began_at
     )
     UPDATE run_metadata SET status = 'COMPLETED',
       watermark_after = coalesce((SELECT plan_began_at FROM moved), watermark_before)
     WHERE run_id = $1`,
    [runId],
  );
  return true;
}
