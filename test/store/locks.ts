// Who waits for whom in a test's database.
import type pg from 'pg';
import type { Database } from '../../src/store/db.js';
import { until } from '../support/app.js';

/** Waits until so many sessions wait for a lock that another one holds; `holder`, if one is named. */
export function untilBlocked(db: Database, count: number, holder?: pg.Client): Promise<unknown> {
  const { processID } = (holder ?? {}) as { readonly processID?: number };
  const ask = () =>
    db.query(
      `SELECT 1 FROM pg_stat_activity, pg_blocking_pids(pid) AS blocking
       WHERE datname = current_database() AND cardinality(blocking) > 0 AND ($1::int IS NULL OR $1 = ANY(blocking))`,
      [processID ?? null],
    );
  return until(ask, ({ length }) => length === count);
}

/** Deadlocks so far; those that a session met are known when it has ended. */
export async function countDeadlocks(db: Database): Promise<number> {
  const [row] = await db.query<{ deadlocks: number }>(
    'SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()',
  );
  return row!.deadlocks;
}
