// What must hold of every run whatever happened to it: the one list, read by `runledger doctor` and by the
// tests. Each is one read-only statement, hence one snapshot, that answers what breaks it. They judge by the
// rows and the ledger alone and trust none of the guards, which may have been switched off. $1 narrows a
// statement to one run; null is all of them.

export interface Invariant {
  readonly name: string;
  /** What holds when nothing is wrong. */
  readonly says: string;
  /** What to do when it does not. */
  readonly remedy: string;
  /** Answers rows (id, fault). */
  readonly sql: string;
}

const BY_HAND =
  'Somebody wrote past the guards. Compare the row with its ledger (run_event), mend the row by hand, and find ' +
  'out who may write to the database.';

const RUN_STATES: Invariant[] = [
  {
    name: 'rule_run_times',
    says: 'a rule run is queued, then started, then finished, and has an end exactly when it has ended',
    remedy: BY_HAND,
    sql: `
      SELECT id::text, format('%s, queued %s, started %s, finished %s', status, queued_at, started_at, finished_at) AS fault
      FROM rule_run
      WHERE ($1::uuid IS NULL OR id = $1) AND (
        queued_at > started_at OR started_at > finished_at OR queued_at > finished_at
        OR (finished_at IS NULL) <> (status IN ('PREVIEW', 'QUEUED', 'APPLYING'))
        OR (status IN ('APPLYING', 'APPLIED', 'PARTIAL', 'FAILED') AND started_at IS NULL))`,
  },
  {
    name: 'rule_run_counters',
    says: 'a rule run’s counters are the counts of its targets',
    remedy: 'Stop the runners, set the counters to what the targets are, and start them again.',
    sql: `
      SELECT run.id::text, format('counters %s, counted %s',
        jsonb_build_array(total_count, preview_count, queued_count, applying_count, applied_count, failed_count,
          rolled_back_count, cancelled_count), counted.counts) AS fault
      FROM rule_run run CROSS JOIN LATERAL (
        SELECT jsonb_build_array(count(*), count(*) FILTER (WHERE status = 'PREVIEW'),
          count(*) FILTER (WHERE status = 'QUEUED'), count(*) FILTER (WHERE status = 'APPLYING'),
          count(*) FILTER (WHERE status = 'APPLIED'), count(*) FILTER (WHERE status = 'FAILED'),
          count(*) FILTER (WHERE status = 'ROLLED_BACK'), count(*) FILTER (WHERE status = 'CANCELLED')) AS counts
        FROM rule_target WHERE run_id = run.id
      ) counted
      WHERE ($1::uuid IS NULL OR run.id = $1)
        AND counted.counts <> jsonb_build_array(total_count, preview_count, queued_count, applying_count,
          applied_count, failed_count, rolled_back_count, cancelled_count)`,
  },
  {
    name: 'rule_run_applied',
    says: 'every target of an APPLIED run is applied, or was until it was rolled back',
    remedy: BY_HAND,
    sql: `
      SELECT run.id::text, format('target %s is %s', target.id, target.status) AS fault
      FROM rule_run run JOIN rule_target target ON target.run_id = run.id
      WHERE ($1::uuid IS NULL OR run.id = $1) AND run.status = 'APPLIED'
        AND target.status NOT IN ('APPLIED', 'ROLLED_BACK')`,
  },
  {
    name: 'rule_run_claimable',
    says: 'some worker is led to every target that waits, to be applied or set back, and recovery to every lease',
    remedy: 'UPDATE rule_run SET next_claim_at = now(), claim_cursor = 0, lease_floor = now() WHERE id = …',
    sql: `
      SELECT id::text, 'targets are queued, but nothing says when to claim them' AS fault
      FROM rule_run
      WHERE ($1::uuid IS NULL OR id = $1) AND status IN ('QUEUED', 'APPLYING') AND next_claim_at IS NULL
        AND EXISTS (SELECT 1 FROM rule_target WHERE run_id = rule_run.id AND status = 'QUEUED')
      UNION ALL
      SELECT id::text, 'it is being rolled back, but nothing says when to go on' AS fault
      FROM rule_run WHERE ($1::uuid IS NULL OR id = $1) AND rolling_back AND next_claim_at IS NULL
      UNION ALL
      SELECT run.id::text, format('target %s waits to be set back, but the run is not being rolled back', target.id)
      FROM rule_run run JOIN rule_target target ON target.run_id = run.id
      WHERE ($1::uuid IS NULL OR run.id = $1) AND NOT run.rolling_back
        AND target.status = 'APPLIED' AND target.next_attempt_at IS NOT NULL
      UNION ALL
      SELECT run.id::text, format('a lease ends at %s, but recovery looks at %s', min(lease_until), run.lease_floor)
      FROM rule_run run JOIN rule_target target ON target.run_id = run.id
      WHERE ($1::uuid IS NULL OR run.id = $1) AND run.applying_count > 0 AND target.status = 'APPLYING'
      GROUP BY run.id HAVING run.lease_floor IS NULL OR run.lease_floor > min(lease_until)`,
  },
  {
    name: 'pipeline_run_times',
    says: 'a pipeline run has an end exactly when it has ended, and not before its start',
    remedy: BY_HAND,
    sql: `
      SELECT run_id::text AS id, format('%s, started %s, completed %s, finished %s',
        status, started_at, completed_at, finished_at) AS fault
      FROM run_metadata
      WHERE ($1::uuid IS NULL OR run_id = $1) AND (
        started_at > finished_at OR (completed_at IS NOT NULL) <> (status = 'COMPLETED')
        OR (finished_at IS NOT NULL) <> (status IN ('COMPLETED', 'FAILED', 'CANCELLED')))`,
  },
  {
    name: 'pipeline_run_counters',
    says: 'a pipeline run’s workers are counted as its partitions are',
    remedy: BY_HAND,
    sql: `
      SELECT run.run_id::text AS id, format('completed %s and failed %s, counted %s and %s',
        run.completed_workers, run.failed_workers, counted.completed, counted.failed) AS fault
      FROM run_metadata run CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE status = 'completed') AS completed, count(*) FILTER (WHERE status = 'failed') AS failed
        FROM worker_runs WHERE run_id = run.run_id
      ) counted
      WHERE ($1::uuid IS NULL OR run.run_id = $1)
        AND (run.completed_workers, run.failed_workers) <> (counted.completed, counted.failed)`,
  },
  {
    name: 'ops_run_times',
    says: 'an ops run is queued, then claimed, then finished; while it is worked on somebody holds its claim',
    remedy: BY_HAND,
    sql: `
      SELECT id::text, format('%s, queued %s, started %s, finished %s, claimed by %s',
        status, queued_at, started_at, finished_at, claimed_by) AS fault
      FROM ops_run
      WHERE ($1::uuid IS NULL OR id = $1) AND (
        queued_at > started_at OR started_at > finished_at
        OR (finished_at IS NOT NULL) <> (status IN ('success', 'failed', 'cancelled'))
        OR (status = 'queued' AND claimed_by IS NOT NULL)
        OR (status IN ('claimed', 'running') AND (claimed_by IS NULL OR started_at IS NULL)))`,
  },
];

const PARTS: Invariant[] = [
  {
    name: 'rule_target_applied',
    says: 'a target has the time of its application when it was applied, and of its rollback when it was rolled back',
    remedy: BY_HAND,
    sql: `
      SELECT id::text, format('%s, applied %s, rolled back %s', status, applied_at, rolled_back_at) AS fault
      FROM rule_target
      WHERE ($1::uuid IS NULL OR run_id = $1) AND (
        (status IN ('APPLIED', 'ROLLED_BACK') AND applied_at IS NULL)
        OR (status = 'ROLLED_BACK') <> (rolled_back_at IS NOT NULL))`,
  },
  {
    name: 'rule_target_lease',
    says: 'a leased target has an owner, an end and an epoch; any other has none of them',
    remedy: BY_HAND,
    sql: `
      SELECT id::text, format('%s, owner %s, until %s, epoch %s', status, lease_owner, lease_until, lease_epoch) AS fault
      FROM rule_target
      WHERE ($1::uuid IS NULL OR run_id = $1) AND (
        num_nonnulls(lease_owner, lease_until, lease_epoch) NOT IN (0, 3)
        OR (status = 'APPLYING' AND lease_owner IS NULL)
        OR (status NOT IN ('APPLYING', 'APPLIED') AND lease_owner IS NOT NULL))`,
  },
  {
    name: 'rule_target_attempts',
    says: 'a target that has not failed has used no more attempts than its channel allows',
    remedy:
      'Harmless where the channel’s policy.retry.maxAttempts was lowered since; otherwise compare with its ledger.',
    sql: `
      SELECT target.id::text, format('%s after %s attempts of %s', target.status, target.attempts, allowed.attempts) AS fault
      FROM rule_target target JOIN rule_run run ON run.id = target.run_id
        JOIN channel ON channel.id = run.channel_id
        CROSS JOIN LATERAL (
          SELECT coalesce((channel.config #>> '{policy,retry,maxAttempts}')::integer, 3) AS attempts) allowed
      WHERE ($1::uuid IS NULL OR target.run_id = $1)
        AND (target.attempts < 0 OR (target.status <> 'FAILED' AND target.attempts > allowed.attempts))`,
  },
  {
    name: 'partition_lease',
    says: 'a leased partition is running and has an owner, an end and an epoch',
    remedy: BY_HAND,
    sql: `
      SELECT id::text, format('%s, owner %s, until %s, epoch %s', status, lease_owner, lease_until, lease_epoch) AS fault
      FROM worker_runs
      WHERE ($1::uuid IS NULL OR run_id = $1) AND (
        num_nonnulls(lease_owner, lease_until, lease_epoch) NOT IN (0, 3)
        OR (status <> 'running' AND lease_owner IS NOT NULL))`,
  },
  {
    name: 'parts_tenant',
    says: 'whatever belongs to a run belongs to the run’s tenant',
    remedy: BY_HAND,
    sql: `
      SELECT target.id::text, format('target of %s in a run of %s', target.tenant_id, run.tenant_id) AS fault
      FROM rule_target target JOIN rule_run run ON run.id = target.run_id
      WHERE ($1::uuid IS NULL OR run.id = $1) AND target.tenant_id <> run.tenant_id
      UNION ALL
      SELECT part.id::text, format('partition of %s in a run of %s', part.tenant_id, run.tenant_id)
      FROM worker_runs part JOIN run_metadata run USING (run_id)
      WHERE ($1::uuid IS NULL OR run_id = $1) AND part.tenant_id <> run.tenant_id
      UNION ALL
      SELECT run.id::text, format('run of %s on a channel of %s', run.tenant_id, channel.tenant_id)
      FROM rule_run run JOIN channel ON channel.id = run.channel_id
      WHERE ($1::uuid IS NULL OR run.id = $1) AND channel.tenant_id <> run.tenant_id`,
  },
];

const ALL_RUNS = `
  SELECT id, last_seq, tenant_id, status, 'RULE'::run_kind AS kind, 'rule_run' AS machine FROM rule_run
  UNION ALL SELECT run_id, last_seq, tenant_id, status, 'PIPELINE', 'pipeline_run' FROM run_metadata
  UNION ALL SELECT id, last_seq, tenant_id, status, 'OPS', 'ops_run' FROM ops_run`;

// A row's own history: the lines of a run are about the run, about one of its targets or about a partition.
const MOVES = `
  SELECT run_id, seq, type, split_part(type, '.', 1) AS machine, split_part(type, '.', 2) AS event,
    payload ->> 'from' AS from_state, payload ->> 'to' AS to_state,
    coalesce(target_id::text, payload ->> 'partitionId', '') AS part
  FROM run_event
  WHERE ($1::uuid IS NULL OR run_id = $1) AND payload ? 'from' AND payload ? 'to'
    AND split_part(type, '.', 1) IN ('rule_run', 'rule_target', 'pipeline_run', 'partition', 'ops_run')`;

const ROWS = `
  SELECT id AS run_id, machine, '' AS part, status FROM (${ALL_RUNS}) run
  UNION ALL SELECT run_id, 'rule_target', id::text, status FROM rule_target
  UNION ALL SELECT run_id, 'partition', partition_id, status FROM worker_runs`;

const LEDGER: Invariant[] = [
  {
    name: 'ledger_seq',
    says: 'the lines of a run are numbered from 1 to its last_seq without a gap',
    remedy:
      'Lines were removed or written past the guards: restore run_event from a backup; the ledger cannot be guessed.',
    sql: `
      SELECT run.id::text, format('last_seq %s, but %s lines from %s to %s', run.last_seq,
        coalesce(ledger.lines, 0), ledger.first, ledger.last) AS fault
      FROM (${ALL_RUNS}) run
        LEFT JOIN (SELECT run_id, count(*) AS lines, min(seq) AS first, max(seq) AS last FROM run_event
          WHERE $1::uuid IS NULL OR run_id = $1 GROUP BY run_id) ledger ON ledger.run_id = run.id
      WHERE ($1::uuid IS NULL OR run.id = $1)
        AND (ledger.lines, ledger.first, ledger.last) IS DISTINCT FROM (run.last_seq::bigint, 1, run.last_seq)`,
  },
  {
    name: 'ledger_run',
    says: 'every line belongs to a run of its kind and tenant',
    remedy: BY_HAND,
    sql: `
      SELECT line.run_id::text AS id, format('%s lines of %s for tenant %s, and no such run', count(*), line.run_kind, line.tenant_id) AS fault
      FROM run_event line LEFT JOIN (${ALL_RUNS}) run
        ON run.id = line.run_id AND run.kind = line.run_kind AND run.tenant_id = line.tenant_id
      WHERE ($1::uuid IS NULL OR line.run_id = $1) AND run.id IS NULL
      GROUP BY line.run_id, line.run_kind, line.tenant_id`,
  },
  {
    name: 'ledger_moves',
    says: 'every change of status in the ledger is one that the machine allows, from where the one before led to',
    remedy: 'Lines were removed or written past the guards: restore run_event from a backup.',
    sql: `
      SELECT run_id::text AS id, format('seq %s: %s from %s to %s after %s', seq, type, from_state, to_state, before) AS fault
      FROM (
        SELECT move.*, coalesce(
          lag(to_state) OVER (PARTITION BY run_id, machine, part ORDER BY seq), state_initial(machine)) AS before
        FROM (${MOVES}) move
      ) step
      WHERE from_state <> before OR NOT EXISTS (
        SELECT 1 FROM state_transition allowed
        WHERE allowed.machine = step.machine AND allowed.event = step.event
          AND allowed.from_state = step.from_state AND allowed.to_state = step.to_state)`,
  },
  {
    name: 'ledger_status',
    says: 'every row is where its last line in the ledger says',
    remedy:
      'Its status was changed while the guards were off. The ledger tells what it was: decide which is right.',
    sql: `
      SELECT row.run_id::text AS id, format('%s %s is %s, its ledger says %s', row.machine, row.part, row.status,
        coalesce(ended.to_state, state_initial(row.machine))) AS fault
      FROM (${ROWS}) AS row LEFT JOIN (
        SELECT DISTINCT ON (run_id, machine, part) run_id, machine, part, to_state
        FROM (${MOVES}) move ORDER BY run_id, machine, part, seq DESC
      ) ended ON ended.run_id = row.run_id AND ended.machine = row.machine AND ended.part = row.part
      WHERE ($1::uuid IS NULL OR row.run_id = $1)
        AND row.status <> coalesce(ended.to_state, state_initial(row.machine))`,
  },
];

export const INVARIANTS: readonly Invariant[] = [...RUN_STATES, ...PARTS, ...LEDGER];
