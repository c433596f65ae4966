// What a step of consolidation adds to its run. It takes the run's lock, and so comes last in its transaction: a run
// that a person has stopped meanwhile keeps nothing of the step.

import type { Connection } from './db.js';

class RunEnded extends Error {}

export interface Figures {
  readonly consolidated?: number;
  readonly rejected?: number;
  readonly deleted?: number;
}

/** Undoes the whole transaction when the run is not consolidating any more. */
export async function countIfConsolidating(
  connection: Connection,
  runId: string,
  { consolidated = 0, rejected = 0, deleted = 0 }: Figures,
): Promise<void> {
  const { rowCount } = await connection.query(
    `WITH run AS (
       UPDATE run_metadata SET records_consolidated = records_consolidated + $2,
         records_rejected = records_rejected + $3, records_deleted = records_deleted + $4, attempts = 0
       WHERE run_id = $1 AND status = 'CONSOLIDATING' RETURNING *
     ) SELECT ring_bell('PIPELINE', run_id, last_seq, tenant_id) FROM run`,
    [runId, consolidated, rejected, deleted],
  );
  if (rowCount === 0) throw new RunEnded();
}

/** Null when the run had ended, and the step was undone. */
export async function unlessEnded<T>(step: Promise<T>): Promise<T | null> {
  try {
    return await step;
  } catch (error) {
    if (error instanceof RunEnded) return null;
    throw error;
  }
}
