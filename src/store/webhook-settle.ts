// What became of a delivery: the cursor moves on, or the run and the endpoint wait before the next try. An endpoint
// that has taken nothing for too long is switched off, and keeps its place. Every change is one statement on one
// row: a run, an endpoint and whoever saves it never wait for each other in a circle.

import type { Database } from './db.js';
import type { ClaimedEndpoint, ClaimedRun } from './webhook-cursor.js';

type Claim = Pick<ClaimedRun, 'id' | 'epoch'>;

/** The cursor is at `seq`; what came meanwhile is due at once. */
export async function settleTaken(db: Database, { id, epoch }: Claim, seq: number): Promise<void> {
  await db.query(
    `UPDATE webhook_cursor SET delivered_seq = greatest(delivered_seq, $3), sending_seq = NULL, failures = 0, error = NULL, lease_until = NULL,
       next_attempt_at = CASE WHEN run.last_seq > $3 OR replay_after IS NOT NULL THEN clock_timestamp() END,
       waiting_since = CASE WHEN run.last_seq > $3 OR replay_after IS NOT NULL THEN clock_timestamp() END
     FROM webhook_run run WHERE run.id = run_id AND webhook_cursor.id = $1 AND lease_epoch = $2`,
    [id, epoch, seq],
  );
}

/** The endpoint has taken something, of whatever run: it is well. */
export async function noteTaken(db: Database, endpointId: string): Promise<void> {
  await db.query(
    `UPDATE webhook_endpoint SET failures = 0, failing_since = NULL, next_attempt_at = NULL,
       last_delivered_at = clock_timestamp()
     WHERE id = $1 AND (failures > 0 OR next_attempt_at IS NOT NULL OR last_delivered_at IS NULL
       -- Once a second is often enough to say so.
       OR abs(extract(epoch FROM clock_timestamp() - last_delivered_at)) > 1)`,
    [endpointId],
  );
}

/** The run waits, with its cursor where it was. */
export async function settleRefused(
  db: Database,
  { id, epoch }: Claim,
  reason: string,
  delayMs: number,
): Promise<void> {
  await db.query(
    `UPDATE webhook_cursor SET failures = failures + 1, error = $3, lease_until = NULL,
       next_attempt_at = clock_timestamp() + $4 * interval '1 millisecond'
     WHERE id = $1 AND lease_epoch = $2`,
    [id, epoch, reason, delayMs],
  );
}

/** Not tried after all: it is due as before. */
export async function releaseRun(db: Database, { id, epoch }: Claim): Promise<void> {
  await db.query('UPDATE webhook_cursor SET lease_until = NULL WHERE id = $1 AND lease_epoch = $2', [
    id,
    epoch,
  ]);
}

/** Saved since it was claimed: what fails may be the address or the secret that it had then. */
export async function wasSavedSince(db: Database, { id, row }: ClaimedEndpoint): Promise<boolean> {
  const rows = await db.query(
    'SELECT FROM webhook_endpoint WHERE id = $1 AND secrets IS DISTINCT FROM $2::text',
    [id, row.secrets],
  );
  return rows.length > 0;
}

export interface EndpointFailure {
  readonly id: string;
  /** How many failures the endpoint had when this try began: several that fail at once count as one. */
  readonly failures: number;
  readonly reason: string;
  readonly delayMs: number;
  /** It said itself that it is gone for good. */
  readonly isGone: boolean;
}

/** The endpoint waits as well; answers whether that was one failure too many, and it was switched off. */
export async function noteRefused(db: Database, failure: EndpointFailure): Promise<boolean> {
  const { id, failures, reason, delayMs, isGone } = failure;
  await db.query(
    `UPDATE webhook_endpoint SET failures = greatest(failures, $2 + 1),
       failing_since = coalesce(failing_since, clock_timestamp()), last_error = $3, last_error_at = clock_timestamp(),
       next_attempt_at = clock_timestamp() + $4 * interval '1 millisecond'
     WHERE id = $1`,
    [id, failures, reason, delayMs],
  );
  // Both figures: by the time alone, a clock that jumps would end it at its first failure.
  const off = await db.query(
    `UPDATE webhook_endpoint SET enabled = false, disabled_at = clock_timestamp(),
       disabled_reason = CASE WHEN $2 THEN 'it answered 410 Gone'
         ELSE format('%s failures in a row since %s; the last: %s', failures,
           to_char(failing_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), last_error) END
     WHERE id = $1 AND enabled AND ($2 OR (failures >= dead_after_failures
       AND failing_since <= clock_timestamp() - dead_after_hours * interval '1 hour'))
     RETURNING 1`,
    [id, isGone],
  );
  return off.length > 0;
}
