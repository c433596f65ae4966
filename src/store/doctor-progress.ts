// What keeps work from going on: a part of what the doctor looks at. Each is one read-only statement that answers
// rows (id, fault); none is an invariant, for a server that is away breaks no promise.

import { EXTERNAL_SOURCE_KIND } from '../domain/pipeline-run.js';
import { HORIZON_HOLDERS } from './horizon.js';
import type { Invariant } from './invariant.js';

const SOMEBODY_THERE = `EXISTS (SELECT 1 FROM worker
  WHERE state <> 'STOPPED' AND heartbeat_at > clock_timestamp() - interval '1 minute')`;

const isPast = (time: string, by: string): string => `${time} < clock_timestamp() - interval '${by}'`;

const WAITING = `
  SELECT 'rule runs' AS what, count(*) AS n FROM rule_run
  WHERE (status IN ('QUEUED', 'APPLYING') OR rolling_back) AND NOT paused AND ${isPast('next_claim_at', '1 minute')}
  UNION ALL
  SELECT 'pipeline runs', count(*) FROM run_metadata run JOIN source ON source.id = run.source_id
  WHERE source.kind <> '${EXTERNAL_SOURCE_KIND}' AND CASE
    WHEN run.status IN ('CREATED', 'CONSOLIDATING') THEN
      run.lease_owner IS NULL AND ${isPast('coalesce(run.next_attempt_at, run.created_at)', '1 minute')}
    WHEN run.status = 'WORKERS_RUNNING' THEN EXISTS (
      SELECT FROM worker_runs part WHERE part.run_id = run.run_id AND part.status IN ('pending', 'running')
        AND part.lease_owner IS NULL AND ${isPast('coalesce(part.next_attempt_at, run.created_at)', '1 minute')}) END
  UNION ALL
  SELECT 'reconciliations', count(*) FROM reconciliation
  WHERE lease_owner IS NULL AND ${isPast('next_attempt_at', '1 minute')}`;

const expired = (table: string, id: string, what: string): string =>
  `SELECT ${id}::text AS id, format('a lease of ${what} expired at %s', lease_until) AS fault FROM ${table}
   WHERE ${isPast('lease_until', '5 minutes')}`;

// Longer than any RUNLEDGER_STALE_RUN_MS: how long a silence is borne here, only the server knows.
const LONGEST_SILENCE = '25 hours';

const START_A_RUNNER = 'Start a server with RUNLEDGER_ROLE=all or runner';

export const PROGRESS: readonly Invariant[] = [
  {
    name: 'workers',
    says: 'somebody is there to do the work that waits',
    remedy: `${START_A_RUNNER}.`,
    sql: `
      SELECT what AS id, format('%s wait, and no worker was heard of for a minute', n) AS fault
      FROM (${WAITING}) waiting WHERE n > 0 AND NOT ${SOMEBODY_THERE}`,
  },
  {
    name: 'expired_leases',
    says: 'leases that expired are taken back',
    remedy: `${START_A_RUNNER}; it recovers them within seconds.`,
    sql: `
      SELECT id::text AS id, format('a lease of its targets expired at %s', lease_floor) AS fault
      FROM rule_run WHERE ${isPast('lease_floor', '5 minutes')}
      UNION ALL ${expired('run_metadata', 'run_id', 'its plan or its completion')}
      UNION ALL ${expired('worker_runs', 'run_id', 'its partitions')}
      UNION ALL ${expired('reconciliation', 'run_id', 'its reconciliation')}`,
  },
  {
    name: 'silent_ops_runs',
    says: 'ops runs whose worker fell silent are ended, or queued again',
    remedy: `${START_A_RUNNER}; it ends them by RUNLEDGER_STALE_CLAIM_MS and RUNLEDGER_STALE_RUN_MS.`,
    sql: `
      SELECT id::text AS id, format('%s, and no sign of life from %s since %s', status, claimed_by,
        coalesce(heartbeat_at, started_at)) AS fault
      FROM ops_run WHERE status IN ('claimed', 'running') AND ${isPast('coalesce(heartbeat_at, started_at)', LONGEST_SILENCE)}`,
  },
  {
    name: 'overdue_schedules',
    says: 'schedules start their runs when it is time',
    remedy: `${START_A_RUNNER}; a tick that was missed is made up for, or passed over, as the schedule says.`,
    sql: `
      SELECT id::text AS id, format('%s of %s was due at %s', name, tenant_id, next_at) AS fault
      FROM schedule WHERE ${isPast('next_at', '5 minutes')}`,
  },
  {
    name: 'unfinished_pruning',
    says: 'what retention has begun to prune is pruned to the end',
    remedy: `${START_A_RUNNER}, or use \`runledger prune\`.`,
    sql: `
      SELECT run_id::text AS id, format('pruning began at %s and is at line %s of %s', begun_at, line_position, to_seq) AS fault
      FROM retention_work WHERE ${isPast('begun_at', '1 day')}`,
  },
  {
    name: 'old_transactions',
    says: 'nothing has held back vacuum for ten minutes, or for a million transactions',
    remedy:
      'Claims become slow. End the session (SELECT pg_terminate_backend(pid)), COMMIT PREPARED or ROLLBACK PREPARED ' +
      'the transaction, or drop the slot if nobody reads it any more (SELECT pg_drop_replication_slot(name)).',
    sql: `
      SELECT what AS id, format('since %s, %s transactions ago', coalesce(since::text, 'nobody knows when'), age) AS fault
      FROM (${HORIZON_HOLDERS}) holder
      WHERE ${isPast('since', '10 minutes')} OR age > 1000000`,
  },
];
