// Partitions of pipeline runs, read: each joined with its progress, which is a table of its own.

import type { PartitionStatus } from '../domain/partition.js';
import type { Viewer } from '../domain/viewer.js';
import type { Database } from './db.js';
import { isUuid } from './id.js';

export interface PartitionRow {
  readonly runId: string;
  readonly partitionId: string;
  readonly status: PartitionStatus;
  readonly nextOffset: number;
  readonly completed: boolean;
  readonly recordsProcessed: number;
  readonly recordsDuplicated: number;
  readonly recordsRejected: number;
  readonly recordsMissing: number;
  readonly attempts: number;
  readonly errorMessage: string | null;
  readonly payload: Record<string, unknown>;
  readonly workerId: string;
  readonly startedAt: Date | null;
  readonly completedAt: Date | null;
  readonly updatedAt: Date;
  /** It is to be read, and nothing of it was for so long. */
  readonly stuck: boolean;
}

/** When anything came of a partition. */
const LAST_PROGRESS = 'coalesce(progress.updated_at, part.started_at, run.created_at)';

/**
 * Whether nothing has come for so many milliseconds of a partition that is to be read; one that was not begun only waits
 * its turn while something comes of others. For a statement that has all partitions of a run, as `part`, with `run`
 * and `progress`.
 */
export function stuckSql(ms: string): string {
  const since = `clock_timestamp() - ${ms} * interval '1 millisecond'`;
  return `(run.status = 'WORKERS_RUNNING' AND part.status IN ('pending', 'running') AND ${LAST_PROGRESS} < ${since}
    AND (part.status = 'running' OR coalesce(
      max(${LAST_PROGRESS}) FILTER (WHERE part.status <> 'pending') OVER (PARTITION BY part.run_id) < ${since}, true)))`;
}

/** The partitions of many runs in one read, each in order. */
export async function listPartitions(
  db: Database,
  viewer: Pick<Viewer, 'tenantId'>,
  runIds: readonly string[],
  stuckAfterMs: number,
): Promise<Map<string, PartitionRow[]>> {
  const rows = await db.query<PartitionRow & Record<string, unknown>>(
    `SELECT part.run_id AS "runId", part.partition_id AS "partitionId", part.status,
       coalesce(progress.next_offset, 0) AS "nextOffset", coalesce(progress.completed, false) AS completed,
       part.records_processed AS "recordsProcessed", part.records_duplicated AS "recordsDuplicated",
       part.records_rejected AS "recordsRejected", part.records_missing AS "recordsMissing", part.attempts,
       part.error_message AS "errorMessage", coalesce(part.work_item_payload, '{}') AS payload,
       part.worker_id AS "workerId", part.started_at AS "startedAt", part.completed_at AS "completedAt",
       ${LAST_PROGRESS} AS "updatedAt", ${stuckSql('$3')} AS stuck
     FROM worker_runs part JOIN run_metadata run USING (run_id)
       LEFT JOIN partition_progress progress USING (run_id, partition_id)
     WHERE part.run_id = ANY($1::uuid[]) AND run.tenant_id = $2
     ORDER BY part.run_id, length(part.partition_id), part.partition_id`,
    [runIds.filter(isUuid), viewer.tenantId, stuckAfterMs],
  );
  const byRun = new Map<string, PartitionRow[]>(runIds.map((id) => [id, []]));
  for (const row of rows) byRun.get(row.runId)?.push(row);
  return byRun;
}
