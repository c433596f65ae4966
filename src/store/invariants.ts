// What must hold of every run whatever happened to it: the one list, read by `runledger doctor` and by the
// tests. Each is one read-only statement, hence one snapshot, that answers what breaks it. They judge by the
// rows and the ledger alone and trust none of the guards, which may have been switched off. Each judges the runs
// whose ids lie from $1 to $2, by an index: of a large database it is asked range by range.

import { BY_HAND, type Invariant } from './invariant.js';
import { LEDGER_INVARIANTS } from './ledger-invariants.js';
import { PRUNE_INVARIANTS } from './prune-invariants.js';

const RUN_STATES: Invariant[] = [
  {
    name: 'rule_run_times',
    says: 'a rule run is queued, then started, then finished, and has an end exactly when it has ended',
    remedy: BY_HAND,
    sql: `
      SELECT id::text, format('%s, queued %s, started %s, finished %s', status, queued_at, started_at, finished_at) AS fault
      FROM rule_run
      WHERE id BETWEEN $1 AND $2 AND (
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
      WHERE run.id BETWEEN $1 AND $2 AND run.pruned_at IS NULL
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
      WHERE run.id BETWEEN $1 AND $2 AND run.status = 'APPLIED'
        AND target.status NOT IN ('APPLIED', 'ROLLED_BACK')`,
  },
  {
    name: 'rule_run_claimable',
    says: 'some worker is led to every target that waits, to be applied or set back, and recovery to every lease',
    remedy: 'UPDATE rule_run SET next_claim_at = now(), claim_cursor = 0, lease_floor = now() WHERE id = …',
    sql: `
      SELECT id::text, 'targets are queued, but nothing says when to claim them' AS fault
      FROM rule_run
      WHERE id BETWEEN $1 AND $2 AND status IN ('QUEUED', 'APPLYING') AND next_claim_at IS NULL
        AND EXISTS (SELECT 1 FROM rule_target WHERE run_id = rule_run.id AND status = 'QUEUED')
      UNION ALL
      SELECT id::text, 'it is being rolled back, but nothing says when to go on' AS fault
      FROM rule_run WHERE id BETWEEN $1 AND $2 AND rolling_back AND next_claim_at IS NULL
      UNION ALL
      SELECT run.id::text, format('target %s waits to be set back, but the run is not being rolled back', target.id)
      FROM rule_run run JOIN rule_target target ON target.run_id = run.id
      WHERE run.id BETWEEN $1 AND $2 AND NOT run.rolling_back
        AND target.status = 'APPLIED' AND target.next_attempt_at IS NOT NULL
      UNION ALL
      SELECT run.id::text, format('a lease ends at %s, but recovery looks at %s', min(lease_until), run.lease_floor)
      FROM rule_run run JOIN rule_target target ON target.run_id = run.id
      WHERE run.id BETWEEN $1 AND $2 AND run.applying_count > 0 AND target.status = 'APPLYING'
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
      WHERE run_id BETWEEN $1 AND $2 AND (
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
      WHERE run.run_id BETWEEN $1 AND $2 AND run.pruned_at IS NULL
        AND (run.completed_workers, run.failed_workers) <> (counted.completed, counted.failed)`,
  },
  {
    name: 'pipeline_run_watermark',
    says: 'no run but one that has completed has moved its source’s watermark',
    remedy:
      'Set the source’s watermark back to what its last completed run left, or read the whole feed again (FULL).',
    sql: `
      SELECT run.run_id::text AS id, format('%s, and leaves the watermark %s', run.status,
        coalesce(run.watermark_after, source.watermark)) AS fault
      FROM run_metadata run JOIN source ON source.id = run.source_id
      WHERE run.run_id BETWEEN $1 AND $2 AND run.status <> 'COMPLETED'
        AND (run.watermark_after IS NOT NULL OR source.last_run_id = run.run_id)`,
  },
  {
    name: 'ops_run_times',
    says: 'an ops run is queued, then claimed, then finished; while it is worked on somebody holds its claim',
    remedy: BY_HAND,
    sql: `
      SELECT id::text, format('%s, queued %s, started %s, finished %s, claimed by %s',
        status, queued_at, started_at, finished_at, claimed_by) AS fault
      FROM ops_run
      WHERE id BETWEEN $1 AND $2 AND (
        queued_at > started_at OR started_at > finished_at OR queued_at > finished_at
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
      WHERE run_id BETWEEN $1 AND $2 AND (
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
      WHERE run_id BETWEEN $1 AND $2 AND (
        num_nonnulls(lease_owner, lease_until, lease_epoch) NOT IN (0, 3)
        OR (status = 'APPLYING' AND lease_owner IS NULL)
        OR (status NOT IN ('APPLYING', 'APPLIED') AND lease_owner IS NOT NULL))`,
  },
  {
    name: 'rule_target_attempts',
    severity: 'WARNING',
    says: 'a target that has not failed has used no more attempts than its channel allows',
    remedy:
      'Harmless where the channel’s policy.retry.maxAttempts was lowered since; otherwise compare with its ledger.',
    sql: `
      SELECT target.id::text, format('%s after %s attempts of %s', target.status, target.attempts, allowed.attempts) AS fault
      FROM rule_target target JOIN rule_run run ON run.id = target.run_id
        JOIN channel ON channel.id = run.channel_id
        CROSS JOIN LATERAL (
          SELECT coalesce((channel.config #>> '{policy,retry,maxAttempts}')::integer, 3) AS attempts) allowed
      WHERE target.run_id BETWEEN $1 AND $2
        AND (target.attempts < 0 OR (target.status <> 'FAILED' AND target.attempts > allowed.attempts))`,
  },
  {
    name: 'partition_lease',
    says: 'a leased partition is running and has an owner, an end and an epoch',
    remedy: BY_HAND,
    sql: `
      SELECT id::text, format('%s, owner %s, until %s, epoch %s', status, lease_owner, lease_until, lease_epoch) AS fault
      FROM worker_runs
      WHERE run_id BETWEEN $1 AND $2 AND (
        num_nonnulls(lease_owner, lease_until, lease_epoch) NOT IN (0, 3)
        OR (status <> 'running' AND lease_owner IS NOT NULL))`,
  },
  {
    name: 'run_lease',
    says: 'a pipeline run that is planned and a reconciliation under way have the whole of a lease, or nothing of it',
    remedy: BY_HAND,
    sql: `
      SELECT run_id::text AS id, format('%s, owner %s, until %s, epoch %s', status, lease_owner, lease_until, lease_epoch) AS fault
      FROM run_metadata
      WHERE run_id BETWEEN $1 AND $2 AND (num_nonnulls(lease_owner, lease_until, lease_epoch) NOT IN (0, 3)
        OR (lease_owner IS NOT NULL AND status NOT IN ('CREATED', 'CONSOLIDATING')))
      UNION ALL
      SELECT run_id::text, format('reconciliation %s, owner %s, until %s', id, lease_owner, lease_until)
      FROM reconciliation WHERE run_id BETWEEN $1 AND $2 AND (lease_owner IS NULL) <> (lease_until IS NULL)`,
  },
  {
    name: 'parts_tenant',
    says: 'whatever belongs to a run belongs to the run’s tenant',
    remedy: BY_HAND,
    sql: `
      SELECT target.id::text, format('target of %s in a run of %s', target.tenant_id, run.tenant_id) AS fault
      FROM rule_target target JOIN rule_run run ON run.id = target.run_id
      WHERE run.id BETWEEN $1 AND $2 AND target.tenant_id <> run.tenant_id
      UNION ALL
      SELECT part.id::text, format('partition of %s in a run of %s', part.tenant_id, run.tenant_id)
      FROM worker_runs part JOIN run_metadata run USING (run_id)
      WHERE run_id BETWEEN $1 AND $2 AND part.tenant_id <> run.tenant_id
      UNION ALL
      SELECT run.id::text, format('run of %s on a channel of %s', run.tenant_id, channel.tenant_id)
      FROM rule_run run JOIN channel ON channel.id = run.channel_id
      WHERE run.id BETWEEN $1 AND $2 AND channel.tenant_id <> run.tenant_id`,
  },
];

export const INVARIANTS: readonly Invariant[] = [
  ...RUN_STATES,
  ...PARTS,
  ...LEDGER_INVARIANTS,
  ...PRUNE_INVARIANTS,
];
