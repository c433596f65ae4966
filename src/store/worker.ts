// Workers: the loops of every runner process, as last heard of. What a row says is a sample; leases alone
// decide who may settle what.

import type { Viewer } from '../domain/viewer.js';
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

/** The process that workers live in. A pid means something within its host and space alone. */
export interface WorkerProcess {
  readonly host: string;
  readonly pidSpace: string;
  readonly pid: number;
}

export interface Heartbeat {
  readonly id: string;
  readonly state: WorkerState;
  readonly activeLeases: number;
}

/** After this, a worker that was not heard of is no longer shown. */
const FORGET_AFTER = '1 day';

export async function recordHeartbeats(
  db: Database,
  { host, pidSpace, pid }: WorkerProcess,
  beats: readonly Heartbeat[],
): Promise<void> {
  await db.query(
    `INSERT INTO worker (id, host, pid_space, pid, state, active_leases)
     SELECT beat.id, $1, $2, $3, beat.state, beat.active_leases
     FROM unnest($4::text[], $5::text[], $6::int[]) AS beat (id, state, active_leases)
     ON CONFLICT (id) DO UPDATE
     SET state = excluded.state, active_leases = excluded.active_leases, heartbeat_at = clock_timestamp()`,
    [
      host,
      pidSpace,
      pid,
      beats.map(({ id }) => id),
      beats.map(({ state }) => state),
      beats.map(({ activeLeases }) => activeLeases),
    ],
  );
}

/** The workers that are registered with the viewer's tenant; they serve every tenant. */
export async function listWorkers(db: Database, viewer: Viewer): Promise<WorkerRow[]> {
  const rows = await translated(
    db.prisma.worker.findMany({ where: { tenantId: viewer.tenantId }, orderBy: { id: 'asc' } }),
  );
  return rows.map((row) => ({ ...row, state: row.state as WorkerState }));
}

/** Workers that live, as far as the table knows, where this process could see whether they do. */
export function listOtherWorkers(
  db: Database,
  { host, pidSpace }: Omit<WorkerProcess, 'pid'>,
  ownIds: readonly string[],
): Promise<{ readonly id: string; readonly pid: number }[]> {
  return db.query(
    `SELECT id, pid FROM worker
     WHERE host = $1 AND pid_space = $2 AND state <> 'STOPPED' AND id <> ALL($3)`,
    [host, pidSpace, ownIds],
  );
}

/** Notes that these workers are gone, once everything they held was taken back. */
export async function buryWorkers(db: Database, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await db.query(`UPDATE worker SET state = 'STOPPED', active_leases = 0 WHERE id = ANY($1)`, [ids]);
  await db.query(`DELETE FROM worker WHERE heartbeat_at < clock_timestamp() - interval '${FORGET_AFTER}'`);
}
