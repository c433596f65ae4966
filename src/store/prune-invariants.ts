// What must hold of runs that retention has pruned, whose rows and ledger cannot be held against each other any
// more. A part of the list in invariants.ts.

import type { Invariant } from './invariant.js';

const RUNS = `
  SELECT id, status, pruned_at, pruned_seq FROM rule_run
  UNION ALL SELECT run_id, status, pruned_at, pruned_seq FROM run_metadata
  UNION ALL SELECT id, status, pruned_at, pruned_seq FROM ops_run`;

export const PRUNE_INVARIANTS: readonly Invariant[] = [
  {
    name: 'pruned_run',
    says: 'a pruned run is as it was when it was pruned, and is either still being pruned or in retention_audit',
    remedy:
      'Somebody wrote past the guards, or deleted by hand. A backup tells what the run was; retention_audit what may be gone.',
    sql: `
      SELECT run.id::text, CASE
        WHEN audit.run_id IS NULL AND work.run_id IS NULL THEN 'it was pruned, and nothing says what was deleted'
        WHEN audit.run_id IS NOT NULL AND work.run_id IS NOT NULL THEN 'it is being pruned again'
        ELSE format('it is %s, pruned to %s; it was %s, and was to be pruned to %s', run.status, run.pruned_seq,
          coalesce(audit.status, work.status), coalesce(audit.to_seq, work.to_seq)) END AS fault
      FROM (${RUNS}) run LEFT JOIN retention_audit audit ON audit.run_id = run.id
        LEFT JOIN retention_work work ON work.run_id = run.id
      WHERE run.id BETWEEN $1 AND $2 AND run.pruned_at IS NOT NULL
        AND ((audit.run_id IS NULL) = (work.run_id IS NULL)
          OR (run.status, run.pruned_seq) IS DISTINCT FROM
            (coalesce(audit.status, work.status), coalesce(audit.to_seq, work.to_seq)))
      UNION ALL
      SELECT run.id::text, 'it is said to be pruned, and is not marked so'
      FROM (${RUNS}) run
      WHERE run.id BETWEEN $1 AND $2 AND run.pruned_at IS NULL AND EXISTS (
        SELECT 1 FROM retention_audit WHERE run_id = run.id UNION ALL SELECT 1 FROM retention_work WHERE run_id = run.id)
      UNION ALL
      SELECT audit.run_id::text, format('%s of its %s are still there', left_over.n, left_over.what)
      FROM retention_audit audit CROSS JOIN LATERAL (
        SELECT count(*) AS n, 'lines' AS what FROM run_event WHERE run_id = audit.run_id AND seq <= audit.to_seq
        UNION ALL SELECT count(*), 'targets' FROM rule_target WHERE run_id = audit.run_id
        UNION ALL SELECT count(*), 'partitions' FROM worker_runs WHERE run_id = audit.run_id) left_over
      WHERE audit.run_id BETWEEN $1 AND $2 AND left_over.n > 0`,
  },
];
