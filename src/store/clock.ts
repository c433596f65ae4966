// A clock that was put back. While it ran ahead, times were set for what is to come: a retry, the end of a lease, a
// circuit's rest. By the right time they are as far off as the clock had run ahead, and whatever waits for them would
// wait so long. They are brought back by as much as the clock was. Called by maintenance.

import { lockRun } from './conclude.js';
import type { Connection, Database } from './db.js';

/** Steps like those of NTP are not worth it: what waits may wait so much longer. */
const MIN_SETBACK_MS = 5_000;

/** By how much the clock was put back since the last look, in milliseconds; null when it was not. */
export async function findSetback(db: Database): Promise<number | null> {
  const [row] = await db.query<{ ms: number }>(
    'SELECT (extract(epoch FROM seen_at - clock_timestamp()) * 1000)::float8 AS ms FROM clock_mark',
  );
  return row && row.ms >= MIN_SETBACK_MS ? row.ms : null;
}

/** Ends the look: only now is what was found about the clock forgotten. */
export async function noteTime(db: Database): Promise<void> {
  await db.query(
    `INSERT INTO clock_mark (seen_at) VALUES (clock_timestamp())
     ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at`,
  );
}

/** What is further off than this was set while the clock ran ahead; $1 is how far. */
const EDGE = `clock_timestamp() + $1::float8 / 2 * interval '1 millisecond'`;
const back = (time: string): string =>
  `CASE WHEN ${time} > ${EDGE} THEN greatest(clock_timestamp(), ${time} - $1::float8 * interval '1 millisecond')
   ELSE ${time} END`;
const isOff = (times: readonly string[]): string => times.map((time) => `${time} > ${EDGE}`).join(' OR ');
const bringBack = (times: readonly string[]): string =>
  times.map((time) => `${time} = ${back(time)}`).join(', ');

/** What people have chosen (when a run may start, when it is to be set back) is none of these. */
const WAITING: Readonly<Record<string, readonly string[]>> = {
  alert_notice: ['next_attempt_at'],
  channel: ['bucket_at', 'circuit_open_until'],
  ops_run: ['available_at', 'heartbeat_at'],
  reconciliation: ['next_attempt_at', 'lease_until'],
  run_metadata: ['next_attempt_at', 'lease_until'],
  webhook_cursor: ['next_attempt_at', 'lease_until'],
  webhook_endpoint: ['next_attempt_at', 'ping_at'],
  worker_runs: ['next_attempt_at', 'lease_until'],
  worker: ['heartbeat_at'],
};

/** Repeating it does no harm: what was brought back is not as far off any more. */
export async function bringTimesBack(db: Database, setbackMs: number): Promise<number> {
  let count = 0;
  for (const [table, times] of Object.entries(WAITING)) {
    const sql = `UPDATE ${table} SET ${bringBack(times)} WHERE ${isOff(times)} RETURNING 1`;
    count += (await db.query(sql, [setbackMs])).length;
  }
  await db.query(
    `UPDATE channel SET slots = (
       SELECT jsonb_object_agg(slot.key, ${back('slot.value::timestamptz')}) FROM jsonb_each_text(slots) AS slot)
     WHERE slots <> '{}'`,
    [setbackMs],
  );
  const runs = await db.query<{ id: string }>(
    `SELECT id FROM rule_run
     WHERE status IN ('QUEUED', 'APPLYING') OR rolling_back OR reconcile_at > clock_timestamp()
       OR revert_again_at > clock_timestamp() ORDER BY id`,
  );
  for (const { id } of runs) {
    count += await db.transaction('system', (connection) => bringRunBack(connection, id, setbackMs));
  }
  return count;
}

/** The run first, then its targets; one that somebody holds is being settled, by the right time. */
async function bringRunBack(connection: Connection, runId: string, setbackMs: number): Promise<number> {
  await lockRun(connection, runId);
  const times = ['next_attempt_at', 'lease_until'];
  const targets = await connection.query(
    `UPDATE rule_target SET ${bringBack(times)} WHERE id = ANY(ARRAY(
       SELECT id FROM rule_target WHERE run_id = $2 AND (${isOff(times)}) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED))`,
    [setbackMs, runId],
  );
  const ofRun = ['next_claim_at', 'lease_floor', 'reconcile_at', 'revert_again_at'];
  const run = await connection.query(
    `UPDATE rule_run SET ${bringBack(ofRun)} WHERE id = $2 AND (${isOff(ofRun)})`,
    [setbackMs, runId],
  );
  return (targets.rowCount ?? 0) + (run.rowCount ?? 0);
}
