// All runs in portions of bounded size: ranges of run ids, end to end, from the first id that there can be to the
// last, so that whatever has a run's id lies in one of them, be there such a run or not. Called by the doctor.

import type { Database } from './db.js';

/** From one id to another, both of them included. */
export interface RunRange {
  readonly from: string;
  readonly to: string;
}

const FIRST = '00000000-0000-0000-0000-000000000000';
const LAST = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
/** Targets and lines of the ledger in one range; a run that has more is a range of its own. */
const ROWS_AT_ONCE = 200_000;
const RUNS_AT_ONCE = 5_000;

// The first so many of all are among the first so many of each.
const NEXT_END = `
  SELECT id::text FROM (
    SELECT id, sum(rows) OVER (ORDER BY id) AS total, row_number() OVER (ORDER BY id) AS place FROM (
      (SELECT id, last_seq + total_count AS rows FROM rule_run WHERE id >= $1 ORDER BY id LIMIT ${RUNS_AT_ONCE})
      UNION ALL
      (SELECT run_id, last_seq FROM run_metadata WHERE run_id >= $1 ORDER BY run_id LIMIT ${RUNS_AT_ONCE})
      UNION ALL
      (SELECT id, last_seq FROM ops_run WHERE id >= $1 ORDER BY id LIMIT ${RUNS_AT_ONCE})
    ) run
  ) counted
  WHERE total >= $2 OR place = ${RUNS_AT_ONCE} ORDER BY id LIMIT 1`;

export async function listRunRanges(db: Database, rowsAtOnce = ROWS_AT_ONCE): Promise<RunRange[]> {
  const ranges: RunRange[] = [];
  for (let from = FIRST; ;) {
    const [end] = await db.query<{ id: string }>(NEXT_END, [from, rowsAtOnce]);
    if (!end || end.id === LAST) return [...ranges, { from, to: LAST }];
    ranges.push({ from, to: end.id });
    from = nextId(end.id);
  }
}

function nextId(id: string): string {
  const digits = (BigInt(`0x${id.replaceAll('-', '')}`) + 1n).toString(16).padStart(32, '0');
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
