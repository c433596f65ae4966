// Ops runs whose worker fell silent: claimed and not a word since, or running without a sign of life. They
// are cancelled, or queued again where they were queued to be. Called by maintenance.

import { RETRY_BASE_MS, RETRY_MAX_MS } from '../domain/ops-run.js';
import type { Database } from './db.js';

export interface Patience {
  /** From the claim to the first event. */
  readonly claimMs: number;
  /** From one sign of life to the next. */
  readonly silenceMs: number;
}

export interface StaleOutcome {
  readonly cancelled: number;
  readonly requeued: number;
  /** Nobody is taken for silent before. */
  readonly heldUntil?: Date;
}

/** At a time: a pass ends when nothing is left. */
const BATCH = 500;

const AGAIN = `on_stale = 'requeue' AND attempts < max_attempts`;

const FACTS = `jsonb_build_object(
  'reason', CASE status
    WHEN 'claimed' THEN format('no event from %s within %s s of its claim', claimed_by, $1::float8 / 1000)
    ELSE format('no sign of life from %s for %s s', claimed_by, $2::float8 / 1000)
  END,
  'original_worker', claimed_by, 'claimed_at', started_at, 'timestamp', clock_timestamp())`;

// A run that somebody holds locked is not silent. One that was claimed by a clock that ran ahead has its start in the
// future for good, but its sign of life was brought back.
const END_BATCH = `
  UPDATE ops_run SET
    status = CASE WHEN ${AGAIN} THEN 'queued' ELSE 'cancelled' END,
    metadata = metadata || CASE
      WHEN ${AGAIN} THEN jsonb_build_object('retry_count', attempts, 'stale', ${FACTS})
      ELSE ${FACTS} || '{"cancelled_by": "system"}'
    END,
    available_at = CASE WHEN ${AGAIN} THEN
      clock_timestamp() + least($3::float8 * 2 ^ least(attempts - 1, 20), $4::float8) * interval '1 millisecond'
    END
  WHERE id = ANY(ARRAY(
    SELECT id FROM ops_run
    WHERE status = 'claimed' AND least(started_at, heartbeat_at) < clock_timestamp() - $1::float8 * interval '1 millisecond'
      OR status = 'running'
        AND coalesce(heartbeat_at, started_at) < clock_timestamp() - $2::float8 * interval '1 millisecond'
    ORDER BY id LIMIT ${BATCH} FOR NO KEY UPDATE SKIP LOCKED))
  RETURNING status`;

/** Looks come every minute. After one that comes so much later, nobody knows who was silent for how long. */
const LATE = '2 minutes';

// A clock that leaps makes whoever works look silent; and while no server was there, nobody could give a sign of life.
const LOOK = `
  UPDATE clock_mark SET silence_looked_at = clock_timestamp(), silence_held_until = CASE
    WHEN clock_timestamp() > silence_looked_at + interval '${LATE}'
      THEN clock_timestamp() + $1::float8 * interval '1 millisecond'
    -- Later than anybody sets it: the clock had run ahead and was put right.
    WHEN silence_held_until BETWEEN clock_timestamp() AND clock_timestamp() + $1::float8 * interval '1 millisecond'
      THEN silence_held_until
  END
  RETURNING silence_held_until AS "heldUntil"`;

export async function endStaleOpsRuns(db: Database, patience: Patience): Promise<StaleOutcome> {
  const longest = Math.max(patience.claimMs, patience.silenceMs);
  const [look] = await db.query<{ heldUntil: Date | null }>(LOOK, [longest]);
  if (look?.heldUntil) return { cancelled: 0, requeued: 0, heldUntil: look.heldUntil };
  const values = [patience.claimMs, patience.silenceMs, RETRY_BASE_MS, RETRY_MAX_MS];
  const statuses: string[] = [];
  for (let found = BATCH; found === BATCH;) {
    const { rows } = await db.transaction('system', (connection) =>
      connection.query<{ status: string }>(END_BATCH, values),
    );
    found = rows.length;
    statuses.push(...rows.map(({ status }) => status));
  }
  const requeued = statuses.filter((status) => status === 'queued').length;
  return { requeued, cancelled: statuses.length - requeued };
}
