// What becomes of a pipeline run when its parts have come to an end. Called under the run's row lock, in the
// transaction that ended the last of them.

import type { PipelineRunStatus } from '../domain/pipeline-run.js';
import { failureText } from '../domain/partition.js';
import type { Connection } from './db.js';
import { appendRunLines } from './ledger.js';

export async function lockPipelineRun(connection: Connection, runId: string): Promise<PipelineRunStatus> {
  const { rows } = await connection.query<{ status: PipelineRunStatus }>(
    'SELECT status FROM run_metadata WHERE run_id = $1 FOR NO KEY UPDATE',
    [runId],
  );
  return rows[0]!.status;
}

// The counters are the database's own: they already include what this transaction changed.
export async function rollUpPartitions(connection: Connection, runId: string): Promise<void> {
  const { rows } = await connection.query<{
    status: PipelineRunStatus;
    open: number;
    failed: number;
    all: number;
  }>(
    `SELECT status, expected_workers - completed_workers - failed_workers AS open, failed_workers AS failed,
       expected_workers AS all
     FROM run_metadata WHERE run_id = $1`,
    [runId],
  );
  const { status, open, failed, all } = rows[0]!;
  if (status !== 'WORKERS_RUNNING' || open > 0) return;
  if (failed === 0) {
    await connection.query(`UPDATE run_metadata SET status = 'CONSOLIDATING' WHERE run_id = $1`, [runId]);
    return;
  }
  const message = `${failed} of ${all} partitions failed: consolidation is skipped`;
  await connection.query(
    `UPDATE run_metadata SET status = 'CONSOLIDATION_SKIPPED', error = $2 WHERE run_id = $1`,
    [runId, message],
  );
  await failRun(connection, runId, message);
}

/** The run fails, the watermark stays where it is, and whoever is on call is told. */
export async function failRun(connection: Connection, runId: string, reason: string): Promise<void> {
  const message = failureText(reason);
  const { rows } = await connection.query<{ name: string; watermark: Date | null; run_type: string }>(
    `UPDATE run_metadata AS run SET status = 'FAILED', error = $2 FROM source
     WHERE run.run_id = $1 AND source.id = run.source_id
     RETURNING source.name, source.watermark, run.run_type`,
    [runId, message],
  );
  const { name, watermark, run_type } = rows[0]!;
  const place =
    watermark === null ? 'it has no watermark yet' : `its watermark stays at ${watermark.toISOString()}`;
  await appendRunLines(connection, 'PIPELINE', runId, [
    {
      type: 'pipeline_run.alert',
      level: 'ERROR',
      message: `The ${run_type} run of ${name} failed: ${message}; ${place}`,
      payload: { source: name, error: message, watermark: watermark?.toISOString() ?? null },
    },
  ]);
}
