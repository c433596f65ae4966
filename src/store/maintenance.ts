// Maintenance jobs: whose turn it is. A row per job says when it is due next; moving that time takes the
// tick, and the row's lock lets one replica do so.

import type { Database } from './db.js';

/** Takes the due ticks of these jobs; answers the names of those that this caller is to run. */
export async function claimDueJobs(
  db: Database,
  jobs: readonly { readonly name: string; readonly everyMs: number }[],
): Promise<string[]> {
  if (jobs.length === 0) return [];
  // A job that nobody has heard of is due at once. The row is looked at again once its lock is there, so
  // of two replicas the second finds the time moved.
  const rows = await db.query<{ name: string }>(
    `INSERT INTO maintenance_job AS job (name, next_at, last_run_at)
     SELECT given.name, clock_timestamp() + given.every_ms * interval '1 millisecond', clock_timestamp()
     FROM unnest($1::text[], $2::float8[]) AS given (name, every_ms)
     ORDER BY given.name
     ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at, last_run_at = excluded.last_run_at
     WHERE job.next_at <= clock_timestamp()
       -- Nobody sets it so late: a clock had run ahead, and was put right.
       OR job.next_at > excluded.next_at + interval '1 minute'
     RETURNING job.name`,
    [jobs.map(({ name }) => name), jobs.map(({ everyMs }) => everyMs)],
  );
  return rows.map(({ name }) => name);
}
