// Pipeline runs, read. Every verb takes the viewer and sees that tenant alone.

import { AppError } from '../errors.js';
import { MAX_PAGE } from '../domain/page.js';
import type { PipelineRunStatus, PipelineRunType } from '../domain/pipeline-run.js';
import type { Viewer } from '../domain/viewer.js';
import type { Database } from './db.js';
import { isUuid } from './id.js';
import { checkFirst, decodeCursor, encodeCursor, toPage, type Page } from './page.js';
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
  readonly watermarkBefore: Date | null;
  readonly watermarkAfter: Date | null;
  readonly actor: string;
  readonly error: string | null;
  readonly metadata: Record<string, unknown>;
  readonly lastSeq: number;
  readonly createdAt: Date;
  /** In microseconds since 1970, as the database keeps it: for the cursor. */
  readonly createdAtMicros: string;
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
  watermark_before AS "watermarkBefore", watermark_after AS "watermarkAfter", actor, error, metadata,
  last_seq AS "lastSeq", created_at AS "createdAt", (extract(epoch FROM created_at) * 1000000)::bigint::text AS "createdAtMicros",
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

const BEFORE_CURSOR = `AND (created_at, run.run_id)
  < (timestamptz 'epoch' + $3::bigint * interval '1 microsecond', $4::uuid)`;

export async function listPipelineRuns(
  db: Database,
  viewer: Viewer,
  request: { readonly first: number; readonly after: string | null },
): Promise<Page<PipelineRunRow>> {
  checkFirst(request.first, MAX_PAGE);
  const after = request.after === null ? null : decodeRunCursor(request.after);
  const rows = await db.query<PipelineRunRow & Record<string, unknown>>(
    // Runs that were inserted by SQL have ids that do not grow with time.
    `SELECT ${COLUMNS} FROM ${TABLES}
     WHERE run.tenant_id = $1 ${after ? BEFORE_CURSOR : ''}
     ORDER BY created_at DESC, run.run_id DESC LIMIT $2`,
    [viewer.tenantId, request.first + 1, ...(after ?? [])],
  );
  return toPage(rows, request.first, request.after);
}

export async function countPipelineRuns(db: Database, viewer: Viewer): Promise<number> {
  const [row] = await db.query<{ count: number }>(
    'SELECT count(*)::integer AS count FROM run_metadata WHERE tenant_id = $1',
    [viewer.tenantId],
  );
  return row!.count;
}

export function pipelineRunCursor({ createdAtMicros, id }: PipelineRunRow): string {
  return encodeCursor(createdAtMicros, id);
}

function decodeRunCursor(cursor: string): [string, string] {
  const [micros = '', id = ''] = decodeCursor(cursor, 2);
  if (isUuid(id) && /^\d{1,16}$/.test(micros)) return [micros, id];
  throw new AppError('BAD_USER_INPUT', 'The cursor is not one of a run.', { field: ['after'] });
}

export async function requirePipelineRun(db: Database, viewer: Viewer, id: string): Promise<PipelineRunRow> {
  const run = (await findPipelineRuns(db, viewer, [id])).get(id);
  if (!run) throw notFound('Pipeline run', id);
  return run;
}
