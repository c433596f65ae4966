// Workers: the loops of every runner process, as last heard of. What a row says is a sample; leases alone
// decide who may settle what.

import type { WorkerState } from '../domain/worker-loop.js';
import { translated, type Database } from './db.js';

export interface WorkerRow {
  readonly id: string;
  readonly host: string;
  readonly pid: number;
  readonly state: WorkerState;
  readonly activeLeases: number;
  readonly startedAt: Date;
  readonly heartbeatAt: Date;
}

/** After this, a worker that was not heard of is no longer shown. */
const FORGET_AFTER = '1 day';

export interface Heartbeat {
  readonly id: string;
  readonly host: string;
  readonly pid: number;
  readonly state: WorkerState;
  readonly activeLeases: number;
}

export async function recordHeartbeats(db: Database, beats: readonly Heartbeat[]): Promise<void> {
  await db.query(
    `INSERT INTO worker (id, host, pid, state, active_leases)
     SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::int[])
     ON CONFLICT (id) DO UPDATE
     SET state = excluded.state, active_leases = excluded.active_leases, heartbeat_at = clock_timestamp()`,
    [
      beats.map(({ id }) => id),
      beats.map(({ host }) => host),
      beats.map(({ pid }) => pid),
      beats.map(({ state }) => state),
      beats.map(({ activeLeases }) => activeLeases),
    ],
  );
}

export async function listWorkers(db: Database): Promise<WorkerRow[]> {
  const rows = await translated(db.prisma.worker.findMany({ orderBy: { id: 'asc' } }));
  return rows.map((row) => ({ ...row, state: row.state as WorkerState }));
}

/** Workers of this host that were not heard of for a moment, for the host to check whether they live. */
export async function listSilentWorkers(
  db: Database,
  host: string,
  silentMs: number,
): Promise<{ readonly id: string; readonly pid: number }[]> {
  return db.query(
    `SELECT id, pid FROM worker
     WHERE host = $1 AND state <> 'STOPPED' AND heartbeat_at < clock_timestamp() - $2 * interval '1 millisecond'`,
    [host, silentMs],
  );
}

/**
 * Declares workers dead: their leases run out now rather than later, so that recovery takes them back. Only
 * for workers whose process is known to be gone.
 */
export async function buryWorkers(db: Database, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await db.transaction('system', async (connection) => {
    const { rows } = await connection.query<{ id: string }>(
      'SELECT id FROM rule_run WHERE lease_floor IS NOT NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED',
    );
    for (const { id } of rows) {
      const { rowCount } = await connection.query(
        `UPDATE rule_target SET lease_until = clock_timestamp() WHERE id = ANY(ARRAY(
           SELECT id FROM rule_target WHERE run_id = $1 AND lease_owner = ANY($2)
           ORDER BY id FOR UPDATE SKIP LOCKED))`,
        [id, ids],
      );
      if (rowCount) {
        await connection.query('UPDATE rule_run SET lease_floor = clock_timestamp() WHERE id = $1', [id]);
      }
    }
    await connection.query(`UPDATE worker SET state = 'STOPPED', active_leases = 0 WHERE id = ANY($1)`, [
      ids,
    ]);
    await connection.query(
      `DELETE FROM worker WHERE heartbeat_at < clock_timestamp() - interval '${FORGET_AFTER}'`,
    );
  });
}
