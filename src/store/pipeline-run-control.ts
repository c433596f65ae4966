// Pipeline runs, controlled: starting, stopping and repeating them. Every verb takes the viewer and sees that
// tenant alone. Locks: a run's row, then its source's, then its partitions'.

import { AppError } from '../errors.js';
import {
  EXTERNAL_SOURCE_KIND,
  pipelineRunMachine,
  type PipelineRunStatus,
  type PipelineRunType,
} from '../domain/pipeline-run.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { isUuid, newId } from './id.js';
import { reserveKey } from './idempotency.js';
import { checkLabel, requireObject } from './input.js';
import { NO_LEASE } from './partition-claim.js';
import { requirePipelineRun, type PipelineRunRow } from './pipeline-run.js';
import { requireWhole } from './pruned.js';
import { rememberTrace } from './trace.js';
import { fireEvent, notFound, requireNext } from './transition.js';

export interface NewPipelineRun {
  readonly projectId: string;
  readonly sourceId: string;
  /** Null: full when the source was never read to the end, else incremental. */
  readonly runType: PipelineRunType | null;
  /** Beside runs of the source that are active. */
  readonly allowConcurrent: boolean;
  readonly metadata: unknown;
  readonly idempotencyKey: string | null;
}

/** Where a request names its run. */
const RUN = ['input', 'runId'];

export interface PipelineRunRequest {
  readonly runId: string;
  readonly idempotencyKey: string | null;
}

export async function startPipelineRun(
  db: Database,
  viewer: Viewer,
  input: NewPipelineRun,
): Promise<PipelineRunRow> {
  checkLabel('projectId', input.projectId);
  const metadata = requireObject('metadata', input.metadata);
  const { idempotencyKey: key, ...request } = input;
  const { tenantId } = viewer;
  const id = newId();
  const runId = await db.transaction(viewer.actor, async (connection) => {
    const earlier = await reserveKey(
      connection,
      { tenantId, operation: 'startPipelineRun', key, request },
      id,
    );
    if (earlier !== null) return earlier;
    const source = await lockSource(connection, viewer, input.sourceId);
    if (!input.allowConcurrent) await refuseSecondRun(connection, input.sourceId, id);
    const runType = input.runType ?? (source.watermark === null ? 'full' : 'incremental');
    await connection.query(
      `INSERT INTO run_metadata (run_id, tenant_id, project_id, source_id, exclusive, run_type, expected_workers,
         watermark_before, actor, metadata, created_at, started_at)
       SELECT $1, $2, $3, $4, $5, $6, 0, watermark, $7, $8, clock_timestamp(), clock_timestamp()
       FROM source WHERE id = $4`,
      [
        id,
        tenantId,
        input.projectId,
        input.sourceId,
        !input.allowConcurrent,
        runType,
        viewer.actor,
        JSON.stringify(metadata),
      ],
    );
    await rememberTrace(connection, { kind: 'PIPELINE', runId: id, correlationId: id });
    return id;
  });
  return requirePipelineRun(db, viewer, runId);
}

export function cancelPipelineRun(
  db: Database,
  viewer: Viewer,
  request: PipelineRunRequest,
): Promise<PipelineRunRow> {
  return repeatOnce(db, viewer, 'cancelPipelineRun', request, async (connection) => {
    await fire(connection, viewer, request.runId, 'cancel');
    // Nobody looks for the lost leases of a run that has ended.
    await connection.query(
      `UPDATE worker_runs SET ${NO_LEASE} WHERE run_id = $1 AND lease_owner IS NOT NULL`,
      [request.runId],
    );
  });
}

/** Failed partitions go on from the page at which they failed. */
export function retryFailedPartitions(
  db: Database,
  viewer: Viewer,
  request: PipelineRunRequest,
): Promise<PipelineRunRow> {
  const { runId } = request;
  return repeatOnce(db, viewer, 'retryFailedPartitions', request, async (connection, run) => {
    requireNext(pipelineRunMachine, run.status, 'retry_partitions', { field: RUN });
    if (run.failed_workers === 0) {
      const instead = isPlanned(run) ? 'consolidate it again' : 'start another run';
      throw new AppError('INVALID_INPUT', `The run has no failed partitions: ${instead}.`, {
        field: RUN,
      });
    }
    if (run.exclusive) await refuseSecondRun(connection, run.source_id, runId);
    await fire(connection, viewer, runId, 'retry_partitions');
    await judgeAnew(connection, runId, false);
    await connection.query(
      `UPDATE worker_runs SET status = 'pending' WHERE id = ANY(ARRAY(
         SELECT id FROM worker_runs WHERE run_id = $1 AND status = 'failed' ORDER BY id FOR UPDATE))`,
      [runId],
    );
  });
}

/** Consolidates a failed run: what was read of it, if some partitions failed, and only when forced to. */
export function consolidatePipelineRun(
  db: Database,
  viewer: Viewer,
  request: PipelineRunRequest & { readonly force: boolean },
): Promise<PipelineRunRow> {
  const { runId, force } = request;
  return repeatOnce(db, viewer, 'consolidatePipelineRun', request, async (connection, run) => {
    requireNext(pipelineRunMachine, run.status, 'force_consolidate', { field: RUN });
    if (!isPlanned(run)) {
      throw new AppError('INVALID_INPUT', 'The run was never planned: start another run.', {
        field: RUN,
      });
    }
    if (run.expected_workers === 0 && run.run_type === 'full' && !force) {
      throw new AppError(
        'GUARDRAIL',
        'The source had no records at all: start another run, or pass force: true to take out all its items.',
        { field: ['input', 'force'] },
      );
    }
    if (run.failed_workers > 0 && !force) {
      throw new AppError(
        'GUARDRAIL',
        `${run.failed_workers} of ${run.expected_workers} partitions failed: retry them, or pass force: true.`,
        { field: ['input', 'force'], details: { failedWorkers: run.failed_workers } },
      );
    }
    if (run.exclusive) await refuseSecondRun(connection, run.source_id, runId);
    await fire(connection, viewer, runId, 'force_consolidate');
    await judgeAnew(connection, runId, force);
  });
}

/** What becomes of the items that it did not see is open again. */
async function judgeAnew(connection: Connection, runId: string, forced: boolean): Promise<void> {
  await connection.query(
    'UPDATE run_metadata SET forced = $2, records_kept = 0, kept_reason = NULL WHERE run_id = $1',
    [runId, forced],
  );
}

interface LockedRun {
  readonly status: PipelineRunStatus;
  readonly run_type: PipelineRunType;
  readonly source_id: string;
  readonly exclusive: boolean;
  readonly expected_workers: number;
  readonly failed_workers: number;
  readonly plan_began_at: Date | null;
  readonly prunedAt: Date | null;
}

/** A plan may have found nothing. Who drives a run by SQL says only how many partitions it has. */
function isPlanned(run: LockedRun): boolean {
  return run.expected_workers > 0 || run.plan_began_at !== null;
}

/** Takes the run's lock and does `work`, unless the key says that it was done. */
async function repeatOnce(
  db: Database,
  viewer: Viewer,
  operation: string,
  { idempotencyKey: key, ...request }: PipelineRunRequest,
  work: (connection: Connection, run: LockedRun) => Promise<unknown>,
): Promise<PipelineRunRow> {
  const { runId } = request;
  await db.transaction(viewer.actor, async (connection) => {
    const { rows } = await connection.query<LockedRun>(
      `SELECT status, run_type, source_id, exclusive, expected_workers, failed_workers, plan_began_at,
         pruned_at AS "prunedAt"
       FROM run_metadata WHERE run_id = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
      [isUuid(runId) ? runId : null, viewer.tenantId],
    );
    const run = rows[0];
    if (!run) throw notFound('Pipeline run', runId, RUN);
    const earlier = await reserveKey(
      connection,
      { tenantId: viewer.tenantId, operation, key, request },
      runId,
    );
    if (earlier !== null) return;
    requireWhole(run);
    await work(connection, run);
    await rememberTrace(connection, { kind: 'PIPELINE', runId, correlationId: runId });
  });
  return requirePipelineRun(db, viewer, runId);
}

function fire(
  connection: Connection,
  { tenantId }: Viewer,
  id: string,
  event: 'cancel' | 'retry_partitions' | 'force_consolidate',
): Promise<PipelineRunStatus> {
  return fireEvent(connection, { machine: pipelineRunMachine, tenantId, id, event });
}

async function lockSource(
  connection: Connection,
  viewer: Viewer,
  id: string,
): Promise<{ watermark: Date | null }> {
  const { rows } = await connection.query<{ watermark: Date | null; kind: string }>(
    'SELECT watermark, kind FROM source WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE',
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  const source = rows[0];
  if (!source) throw notFound('Source', id, ['input', 'sourceId']);
  if (source.kind !== EXTERNAL_SOURCE_KIND) return source;
  throw new AppError('INVALID_INPUT', 'The runs of this source are driven from outside, by SQL.', {
    field: ['input', 'sourceId'],
  });
}

async function refuseSecondRun(connection: Connection, sourceId: string, runId: string): Promise<void> {
  // Whoever starts one, or takes one up again, waits here for the others.
  await connection.query('SELECT 1 FROM source WHERE id = $1 FOR NO KEY UPDATE', [sourceId]);
  const { rows } = await connection.query<{ run_id: string; status: string }>(
    `SELECT run_id, status FROM run_metadata
     WHERE source_id = $1 AND run_id <> $2 AND status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') LIMIT 1`,
    [sourceId, runId],
  );
  const active = rows[0];
  if (!active) return;
  throw new AppError('CONFLICT', `Run ${active.run_id} of this source is still ${active.status}.`, {
    details: { runId: active.run_id },
  });
}
