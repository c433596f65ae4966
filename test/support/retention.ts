// Runs for the tests of retention: brought to an end of any kind, and made as old as a test needs them.
import type { RunKind } from '../../src/domain/run.js';
import type { RuleRunStatus } from '../../src/domain/rule-run.js';
import { claimTargets, type Claim } from '../../src/store/claim.js';
import type { Database } from '../../src/store/db.js';
import { saveRetentionPolicy } from '../../src/store/retention-policy.js';
import { cancelRuleRun } from '../../src/store/rule-run-control.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { makeFailedRun, makeQueuedRun, makeRuleRun, targetsOf, type Tenant } from './fixtures.js';

export function keepFor(
  db: Database,
  { viewer }: Tenant,
  kind: RunKind,
  keepDays: number | null,
  rollbackDays: number | null = null,
) {
  return saveRetentionPolicy(db, viewer, { kind, keepDays, rollbackDays });
}

const TABLES = {
  RULE: { name: 'rule_run', key: 'id', times: ['created_at', 'queued_at', 'started_at', 'finished_at'] },
  PIPELINE: {
    name: 'run_metadata',
    key: 'run_id',
    times: ['created_at', 'started_at', 'completed_at', 'finished_at'],
  },
  OPS: { name: 'ops_run', key: 'id', times: ['created_at', 'queued_at', 'started_at', 'finished_at'] },
} as const;

/** Moves all that a run tells of its time into the past. */
export async function age(db: Database, kind: RunKind, runId: string, days: number): Promise<void> {
  const { name, key, times } = TABLES[kind];
  const moved = times.map((time) => `${time} = ${time} - make_interval(days => $2)`);
  await db.query(`UPDATE ${name} SET ${moved.join(', ')} WHERE ${key} = $1`, [runId, days]);
}

async function claimAll(db: Database, runId: string): Promise<Claim> {
  return (await claimTargets(db, { runId, workerId: 'w', limit: 100_000, leaseMs: 3_600_000 }))!;
}

/** Settles all targets of a queued run: the first `failed` of them fail, the others are applied. */
async function settleAll(db: Database, runId: string, failed: number): Promise<void> {
  const claim = await claimAll(db, runId);
  await settleIfClaimed(
    db,
    claim,
    claim.targets.map(({ id: targetId }, index) => ({
      targetId,
      settlement:
        index < failed
          ? { event: 'exhaust' as const, code: 'INVALID', message: 'no' }
          : { event: 'succeed' as const },
    })),
  );
}

/** A rule run that has ended so, `days` ago; its prices stand where it is APPLIED, PARTIAL or CANCELLED. */
export async function endedRun(
  db: Database,
  tenant: Tenant,
  status: RuleRunStatus,
  days: number,
  count = 3,
): Promise<string> {
  const runId = await END[status]!(db, tenant, count);
  await age(db, 'RULE', runId, days);
  return runId;
}

type End = (db: Database, tenant: Tenant, count: number) => Promise<string>;

const END: Partial<Record<RuleRunStatus, End>> = {
  APPLIED: async (db, tenant, count) => {
    const { id } = await makeQueuedRun(db, tenant, { targets: targetsOf(count) });
    await settleAll(db, id, 0);
    return id;
  },
  PARTIAL: async (db, tenant, count) => {
    const { id } = await makeQueuedRun(db, tenant, { targets: targetsOf(count) });
    await settleAll(db, id, 1);
    return id;
  },
  FAILED: (db, tenant, count) => makeFailedRun(db, tenant, { targets: targetsOf(count) }),
  CANCELLED: async (db, tenant, count) => {
    const { id } = await makeQueuedRun(db, tenant, { targets: targetsOf(count) });
    const claim = await claimTargets(db, { runId: id, workerId: 'w', limit: 1, leaseMs: 3_600_000 });
    await cancelRuleRun(db, tenant.viewer, { runId: id, idempotencyKey: null });
    const [target] = claim!.targets;
    await settleIfClaimed(db, claim!, [{ targetId: target!.id, settlement: { event: 'succeed' } }]);
    return id;
  },
};

/** Cancelled before anything was applied. */
export async function droppedRun(db: Database, tenant: Tenant, days: number): Promise<string> {
  const { id } = await makeRuleRun(db, tenant);
  await cancelRuleRun(db, tenant.viewer, { runId: id, idempotencyKey: null });
  await age(db, 'RULE', id, days);
  return id;
}

/** How many rows a run has in the tables that retention deletes from. */
export async function rowsOf(db: Database, runId: string): Promise<Record<string, number>> {
  const tables = ['run_event', 'rule_target', 'worker_runs', 'partition_progress', 'rejected_record'];
  const [row] = await db.query<{ counts: Record<string, number> }>(
    `SELECT jsonb_build_object(${tables
      .map((table) => `'${table}', (SELECT count(*) FROM ${table} WHERE run_id = $1)`)
      .join(', ')}) AS counts`,
    [runId],
  );
  return row!.counts;
}

export const NOTHING = {
  run_event: 0,
  rule_target: 0,
  worker_runs: 0,
  partition_progress: 0,
  rejected_record: 0,
};
