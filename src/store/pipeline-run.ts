// Pipeline runs, read. Every verb takes the viewer and sees that tenant alone.

import { MAX_PAGE } from '../domain/page.js';
import type { PipelineRunStatus, PipelineRunType } from '../domain/pipeline-run.js';
import type { Viewer } from '../domain/viewer.js';
import { Conditions } from './conditions.js';
import type { Database } from './db.js';
import { isUuid } from './id.js';
import { checkFirst, countUpTo, encodeCursor, toPage, type CappedCount, type Page } from './page.js';
import { notFound } from './transition.js';

export interface PipelineRunRow {
  readonly id: string;
  readonly tenantId: string;
  readonly projectId: string;
  readonly sourceId: string;
  readonly status: PipelineRunStatus;
  readonly runType: PipelineRunType;
  readonly expectedWorkers: number;
  readonly completedWorkers: number;
  readonly failedWorkers: number;
  readonly recordsProcessed: number;
  /** How far its partitions were read: whoever watches is shown every step of that. */
  readonly reached: string;
  readonly recordsConsolidated: number;
  readonly recordsDuplicated: number;
  readonly recordsRejected: number;
  readonly recordsMissing: number;
  readonly recordsDeleted: number;
  readonly recordsKept: number;
  readonly keptReason: string | null;
  readonly planBeganAt: Date | null;
  readonly watermarkBefore: Date | null;
  readonly watermarkAfter: Date | null;
  readonly actor: string;
  readonly error: string | null;
  readonly metadata: Record<string, unknown>;
  readonly lastSeq: number;
  readonly createdAt: Date;
  /** `createdAt` with all its digits, for the cursor. */
  readonly createdKey: string;
  readonly startedAt: Date | null;
  readonly finishedAt: Date | null;
  readonly prunedAt: Date | null;
  readonly prunedSeq: number | null;
}

// What partitions count is summed when it is asked for: their pages then need no lock on the run. Of those that
// retention has deleted, the run itself has the sum.
const COLUMNS = `run.run_id AS id, run.tenant_id AS "tenantId", project_id AS "projectId", source_id AS "sourceId",
  run.status, run_type AS "runType", expected_workers AS "expectedWorkers",
  completed_workers AS "completedWorkers", failed_workers AS "failedWorkers",
  records_consolidated AS "recordsConsolidated", records_deleted AS "recordsDeleted",
  records_kept AS "recordsKept", kept_reason AS "keptReason",
  part.processed + pruned_processed AS "recordsProcessed", part.duplicated + pruned_duplicated AS "recordsDuplicated",
  part.rejected + pruned_rejected + run.records_rejected AS "recordsRejected",
  part.missing + pruned_missing AS "recordsMissing", progress.reached,
  plan_began_at AS "planBeganAt", watermark_before AS "watermarkBefore", watermark_after AS "watermarkAfter",
  actor, error, metadata,
  last_seq AS "lastSeq", created_at AS "createdAt", created_at::text AS "createdKey",
  run.started_at AS "startedAt", finished_at AS "finishedAt",
  pruned_at AS "prunedAt", pruned_seq AS "prunedSeq"`;

const TABLES = `run_metadata run CROSS JOIN LATERAL (
    SELECT coalesce(sum(records_processed), 0)::integer AS processed,
      coalesce(sum(records_duplicated), 0)::integer AS duplicated,
      coalesce(sum(records_rejected), 0)::integer AS rejected,
      coalesce(sum(records_missing), 0)::integer AS missing
    FROM worker_runs WHERE run_id = run.run_id
  ) part CROSS JOIN LATERAL (
    SELECT coalesce(sum(next_offset), 0) || ' ' || count(*) FILTER (WHERE completed) AS reached
    FROM partition_progress WHERE run_id = run.run_id
  ) progress`;

export async function findPipelineRuns(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, PipelineRunRow>> {
  const rows = await db.query<PipelineRunRow & Record<string, unknown>>(
    `SELECT ${COLUMNS} FROM ${TABLES} WHERE run.run_id = ANY($1::uuid[]) AND run.tenant_id = $2`,
    [ids.filter(isUuid), viewer.tenantId],
  );
  return new Map(rows.map((row) => [row.id, row]));
}

export async function listPipelineRuns(
  db: Database,
  viewer: Viewer,
  request: { readonly first: number; readonly after: string | null },
): Promise<Page<PipelineRunRow>> {
  checkFirst(request.first, MAX_PAGE);
  const where = new Conditions();
  where.add('run.tenant_id = ?', viewer.tenantId);
  if (request.after !== null) where.addAfterRun(request.after, 'run.run_id');
  const rows = await db.query<PipelineRunRow & Record<string, unknown>>(
    // Runs that were inserted by SQL have ids that do not grow with time.
    `SELECT ${COLUMNS} FROM ${TABLES} WHERE ${where.sql}
     ORDER BY created_at DESC, run.run_id DESC LIMIT ${request.first + 1}`,
    where.values,
  );
  return toPage(rows, request.first, request.after);
}

export function countPipelineRuns(db: Database, viewer: Viewer): Promise<CappedCount> {
  return countUpTo(db, 'run_metadata WHERE tenant_id = $1', [viewer.tenantId]);
}

export function pipelineRunCursor({ createdKey, id }: PipelineRunRow): string {
  return encodeCursor(createdKey, id);
}

export async function requirePipelineRun(db: Database, viewer: Viewer, id: string): Promise<PipelineRunRow> {
  const run = (await findPipelineRuns(db, viewer, [id])).get(id);
  if (!run) throw notFound('Pipeline run', id);
  return run;
}
