// Keeps the cursors few: those of runs that have ended and were sent whole, and what removed endpoints and runs
// have left behind. Each sweep takes a bounded number, and is repeated by the clock.

import type { Database } from './db.js';
import { RUN_KEYS } from './ledger.js';

/** Cursors that one sweep looks at. */
const MOST_AT_ONCE = 2_000;

const TABLES = [RUN_KEYS.RULE, RUN_KEYS.PIPELINE, ['ops_run', 'id']] as const;

export interface Sweep {
  /** How many cursors are gone. */
  readonly swept: number;
  /** Where the next sweep begins. */
  readonly next: string;
}

/** Looks at some cursors, from the one after `after` on, and after the last of all begins anew. */
export async function sweepCursors(db: Database, after = '0'): Promise<Sweep> {
  const [slice] = await db.query<{ last: string | null; count: number }>(
    `SELECT max(id)::text AS last, count(*)::int AS count
     FROM (SELECT id FROM webhook_cursor WHERE id > $1 ORDER BY id LIMIT ${MOST_AT_ONCE}) slice`,
    [after],
  );
  const { last, count } = slice!;
  if (last === null) return { swept: 0, next: '0' };
  let swept = await sweepLeftBehind(db, after, last);
  for (const [table, key] of TABLES) swept += await sweepEnded(db, table, key, after, last);
  return { swept, next: count < MOST_AT_ONCE ? '0' : last };
}

/**
 * Without a cursor, a line that comes after a run's end makes one that begins with it. The run is locked, so that
 * no such line is written between the look and the removal; one that somebody has locked comes another time.
 */
async function sweepEnded(
  db: Database,
  table: string,
  key: string,
  after: string,
  last: string,
): Promise<number> {
  const rows = await db.query(
    `DELETE FROM webhook_cursor WHERE next_attempt_at IS NULL AND id = ANY(ARRAY(
       SELECT cursor.id FROM ${table} run JOIN webhook_cursor cursor ON cursor.run_id = run.${key}
       -- ANY leads the planner to the runs by their key, however many others there are.
       WHERE run.${key} = ANY(ARRAY(SELECT run_id FROM webhook_cursor WHERE id > $1 AND id <= $2 AND next_attempt_at IS NULL))
         AND run.finished_at IS NOT NULL AND run.last_seq = cursor.delivered_seq
         AND cursor.id > $1 AND cursor.id <= $2 AND cursor.next_attempt_at IS NULL
       FOR SHARE OF run SKIP LOCKED))
     RETURNING 1`,
    [after, last],
  );
  return rows.length;
}

async function sweepLeftBehind(db: Database, after: string, last: string): Promise<number> {
  // NOT EXISTS would read every run there is while they are few enough to be hashed.
  const rows = await db.query(
    `DELETE FROM webhook_cursor WHERE id > $1 AND id <= $2
       AND (NOT EXISTS (SELECT FROM webhook_endpoint WHERE id = endpoint_id)
         OR (SELECT run.id FROM webhook_run run WHERE run.id = run_id LIMIT 1) IS NULL)
     RETURNING 1`,
    [after, last],
  );
  return rows.length;
}

/** Longer than any lease, of a delivery or of a ping. */
const LONGEST_LEASE = '2 minutes';
/** An endpoint may ask for an hour. */
const LONGEST_WAIT = '61 minutes';

/** Nobody sets a time so late: what has one was written by a clock that ran ahead, and is due. */
export async function mendTimes(db: Database): Promise<void> {
  const isLate = (column: string, most: string) => `${column} > clock_timestamp() + interval '${most}'`;
  await db.query(
    `UPDATE webhook_cursor SET next_attempt_at = least(next_attempt_at, clock_timestamp()), lease_until = NULL
     WHERE next_attempt_at IS NOT NULL
       AND (${isLate('next_attempt_at', LONGEST_WAIT)} OR ${isLate('lease_until', LONGEST_LEASE)})`,
  );
  await db.query(
    `UPDATE webhook_endpoint SET next_attempt_at = NULL WHERE ${isLate('next_attempt_at', LONGEST_WAIT)}`,
  );
  await db.query(
    `UPDATE webhook_endpoint SET ping_at = clock_timestamp() WHERE ${isLate('ping_at', LONGEST_LEASE)}`,
  );
}
