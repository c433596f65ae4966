// Consolidation: raw items become catalog items, a batch a transaction. The rows themselves are the claim: a
// batch locks what nobody else has locked, so that replicas share the work, and a crash gives it back at once.

import type { NewCatalogItem } from '../domain/catalog-item.js';
import { failureText } from '../domain/partition.js';
import {
  CONSOLIDATION_BATCH,
  CONSOLIDATION_BYTES,
  EXTERNAL_SOURCE_KIND,
  MAX_CONSOLIDATION_ATTEMPTS,
} from '../domain/pipeline-run.js';
import { upsertCatalogItems } from './catalog-item.js';
import { countIfConsolidating, unlessEnded } from './consolidation-count.js';
import type { Database } from './db.js';
import { appendRunLines } from './ledger.js';
import { failRun, lockPipelineRun } from './pipeline-roll-up.js';
import { lockWaitingItems, markConsolidated, type RawItem } from './raw-item.js';
import { writeRejected, type RejectedRecord } from './rejected-record.js';

export interface ConsolidatingRun {
  readonly runId: string;
  readonly tenantId: string;
  readonly projectId: string;
  readonly sourceId: string;
  readonly sourceVersion: string;
  /** Rounds in a row that broke before this one. */
  readonly attempts: number;
}

export interface MappedBatch {
  readonly items: readonly NewCatalogItem[];
  readonly rejected: readonly RejectedRecord[];
}

// Whoever has its lease completes it.
const DUE = `run.status = 'CONSOLIDATING' AND run.lease_owner IS NULL AND source.kind <> '${EXTERNAL_SOURCE_KIND}'`;

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
       source.id AS "sourceId", source.updated_at::text AS "sourceVersion", run.attempts
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

/** Consolidates one batch; answers how many items it had, none when the run has ended. */
export async function consolidateBatch(
  db: Database,
  run: ConsolidatingRun,
  request: BatchRequest,
): Promise<number> {
  const { sourceId, tenantId, runId } = run;
  const batch = db.transaction(request.workerId, async (connection) => {
    const place = { sourceId, after: request.after };
    const most = { limit: CONSOLIDATION_BATCH, bytes: CONSOLIDATION_BYTES };
    const raw = await lockWaitingItems(connection, place, most);
    const last = raw.at(-1);
    if (!last) return 0;
    request.onLocked(last.externalId);
    const ids = raw.map(({ externalId }) => externalId);
    const { items, rejected } = request.map(raw);
    // Most of a batch's life is spent waiting for the writes: without the payloads it weighs half as much.
    raw.length = 0;
    await upsertCatalogItems(connection, { tenantId, sourceId }, items);
    await markConsolidated(connection, sourceId, ids);
    await writeRejected(connection, run, null, rejected);
    await countIfConsolidating(connection, runId, {
      consolidated: items.length,
      rejected: rejected.length,
    });
    return ids.length;
  });
  return (await unlessEnded(batch)) ?? 0;
}

export interface BrokenBatch {
  /** As it was when the batch began. */
  readonly run: Pick<ConsolidatingRun, 'runId' | 'attempts'>;
  readonly workerId: string;
  readonly message: string;
  readonly delayMs: number;
}

/** A batch broke: it is tried again after the delay, a few times. What breaks beside it is of the same round. */
export function retryConsolidation(db: Database, broken: BrokenBatch): Promise<void> {
  const { run, workerId, message, delayMs } = broken;
  const { runId } = run;
  const error = failureText(message);
  return db.transaction(workerId, async (connection) => {
    if ((await lockPipelineRun(connection, runId)) !== 'CONSOLIDATING') return;
    const attempts = run.attempts + 1;
    const { rowCount } = await connection.query(
      // One short failure breaks every batch that is under way, and is one failure.
      `UPDATE run_metadata SET attempts = $2, error = $3,
         next_attempt_at = clock_timestamp() + $4 * interval '1 millisecond'
       WHERE run_id = $1 AND attempts = $2 - 1`,
      [runId, attempts, error, delayMs],
    );
    if (rowCount === 0) return;
    if (attempts >= MAX_CONSOLIDATION_ATTEMPTS) return failRun(connection, runId, error);
    return appendRunLines(connection, 'PIPELINE', runId, [
      {
        type: 'pipeline_run.retry_consolidation',
        level: 'WARN',
        message: error,
        payload: { attempt: attempts, delayMs, error },
      },
    ]);
  });
}
