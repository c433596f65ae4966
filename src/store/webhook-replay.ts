// Which runs an endpoint has still to be sent, and sending it some of a run again.

import { MAX_PAGE } from '../domain/page.js';
import { publicRunId, type RunKind } from '../domain/run.js';
import type { Viewer } from '../domain/viewer.js';
import { wantsRun } from '../domain/webhook-endpoint.js';
import { AppError } from '../errors.js';
import type { Database } from './db.js';
import { isUuid } from './id.js';
import { checkFirst } from './page.js';
import { findRunHead } from './run.js';
import { notFound } from './transition.js';
import { requireEndpoint, type WebhookEndpointRow } from './webhook-endpoint.js';

export interface WaitingRunRow {
  readonly runId: string;
  readonly kind: RunKind;
  readonly deliveredSeq: number;
  readonly lastSeq: number;
  readonly failures: number;
  readonly error: string | null;
  readonly nextAttemptAt: Date;
  readonly waitingSince: Date;
}

/** Longest wait first. */
export async function listWaitingRuns(
  db: Database,
  { tenantId }: Viewer,
  endpointId: string,
  first: number,
): Promise<WaitingRunRow[]> {
  checkFirst(first, MAX_PAGE);
  const rows = await db.query<WaitingRunRow & Record<string, unknown>>(
    `SELECT run.id AS "runId", run.kind, coalesce(replay_after, delivered_seq) AS "deliveredSeq",
       run.last_seq AS "lastSeq", cursor.failures, cursor.error, cursor.next_attempt_at AS "nextAttemptAt",
       waiting_since AS "waitingSince"
     FROM webhook_endpoint endpoint JOIN webhook_cursor cursor ON cursor.endpoint_id = endpoint.id
       JOIN webhook_run run ON run.id = cursor.run_id
     WHERE endpoint.id = $1 AND endpoint.tenant_id = $2 AND cursor.next_attempt_at IS NOT NULL
     ORDER BY waiting_since, run.id LIMIT $3`,
    [isUuid(endpointId) ? endpointId : null, tenantId, first],
  );
  return rows.map((row) => ({ ...row, runId: publicRunId(row.kind, row.runId) }));
}

/** Has the lines of a run after `afterSeq` sent (again), whatever the cursor said; also past one that fails. */
export async function replayWebhook(
  db: Database,
  viewer: Viewer,
  { endpointId, runId, afterSeq }: { endpointId: string; runId: string; afterSeq: number },
): Promise<WebhookEndpointRow> {
  const endpoint = await requireEndpoint(db, viewer, endpointId, 'endpointId');
  const head = await findRunHead(db, viewer, runId);
  if (!head) throw notFound('Run', runId, ['input', 'runId']);
  if (afterSeq < 0 || afterSeq > head.seq) {
    const field = ['input', 'afterSeq'];
    throw new AppError('INVALID_INPUT', `afterSeq must be 0 to ${head.seq}, where the run is.`, { field });
  }
  const { prunedSeq = 0 } = head;
  if (afterSeq < prunedSeq) {
    throw new AppError(
      'CONFLICT',
      `The run's ledger was pruned: its lines up to ${prunedSeq} are deleted. Replay it with afterSeq: ${prunedSeq}.`,
      { field: ['input', 'afterSeq'], details: { prunedSeq, lastSeq: head.seq } },
    );
  }
  await refuseUnwanted(db, endpoint, head.kind, head.id);
  // One that is being sent right now ends first: the next claim goes back.
  await db.query(
    `INSERT INTO webhook_cursor AS cursor (endpoint_id, run_id, delivered_seq, replay_after, next_attempt_at, waiting_since)
     VALUES ($1, $2, $3, $3, clock_timestamp(), clock_timestamp())
     ON CONFLICT (run_id, endpoint_id) DO UPDATE SET replay_after = $3, failures = 0, error = NULL,
       next_attempt_at = clock_timestamp(), waiting_since = coalesce(cursor.waiting_since, clock_timestamp())`,
    [endpointId, head.id, afterSeq],
  );
  await db.query('UPDATE webhook_endpoint SET updated_at = clock_timestamp() WHERE id = $1', [endpointId]);
  return requireEndpoint(db, viewer, endpointId, 'endpointId');
}

async function refuseUnwanted(
  db: Database,
  endpoint: WebhookEndpointRow,
  kind: RunKind,
  id: string,
): Promise<void> {
  const [run] = await db.query<{ projectId: string }>(
    'SELECT project_id AS "projectId" FROM webhook_run WHERE id = $1 AND kind = $2',
    [id, kind],
  );
  if (run && wantsRun(endpoint, { kind, projectId: run.projectId })) return;
  throw new AppError('INVALID_INPUT', 'The endpoint is not sent runs of this kind or project.', {
    field: ['input', 'runId'],
  });
}
