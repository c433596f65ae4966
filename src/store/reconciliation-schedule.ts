// The schedule of reconciliations, kept in the runs: `reconcile_at` is when a run is to be looked at next. The
// database sets it when a run ends; here what is due becomes work, and the time moves on.

import { planReconciliation, type ReconciliationTrigger } from '../domain/reconciliation.js';
import type { RuleRunStatus } from '../domain/rule-run.js';
import type { Connection, Database } from './db.js';
import { newId } from './id.js';

const RUNS_AT_ONCE = 500;

interface DueRun {
  readonly id: string;
  readonly tenantId: string;
  readonly status: RuleRunStatus;
  readonly finishedAt: Date;
  readonly reconcileAt: Date;
  readonly now: Date;
}

interface DueReconciliation {
  readonly runId: string;
  readonly tenantId: string;
  readonly trigger: ReconciliationTrigger;
}

/** Makes work of what is due, a portion of it; answers how many runs were looked at. */
export function scheduleReconciliations(db: Database): Promise<number> {
  return db.transaction('system', async (connection) => {
    const runs = await lockDueRuns(connection);
    const plans = runs.map((run) => ({ run, plan: planReconciliation(run, run.reconcileAt, run.now) }));
    await connection.query(
      `UPDATE rule_run SET reconcile_at = planned.next_at
       FROM unnest($1::uuid[], $2::timestamptz[]) AS planned (id, next_at) WHERE rule_run.id = planned.id`,
      [runs.map(({ id }) => id), plans.map(({ plan }) => plan.nextAt)],
    );
    await insertReconciliations(
      connection,
      plans.flatMap(({ run, plan }) =>
        plan.due === null ? [] : [{ runId: run.id, tenantId: run.tenantId, trigger: plan.due }],
      ),
    );
    return runs.length;
  });
}

// A run that somebody holds is at work: it will be found next time. By the statement's time: no index is read by
// a clock that moves on while it runs.
async function lockDueRuns(connection: Connection): Promise<DueRun[]> {
  const { rows } = await connection.query<DueRun>(
    `SELECT id, tenant_id AS "tenantId", status, finished_at AS "finishedAt", reconcile_at AS "reconcileAt",
       clock_timestamp() AS now
     FROM rule_run WHERE reconcile_at <= statement_timestamp()
     ORDER BY reconcile_at LIMIT ${RUNS_AT_ONCE} FOR NO KEY UPDATE SKIP LOCKED`,
  );
  return rows;
}

// One that is still under way since the last occasion is enough.
async function insertReconciliations(
  connection: Connection,
  due: readonly DueReconciliation[],
): Promise<void> {
  await connection.query(
    `INSERT INTO reconciliation (id, tenant_id, run_id, trigger, actor)
     SELECT due.id, due.tenant_id, due.run_id, due.trigger, 'system'
     FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[]) AS due (id, tenant_id, run_id, trigger)
     ON CONFLICT (run_id, trigger) DO NOTHING`,
    [
      due.map(() => newId()),
      due.map(({ tenantId }) => tenantId),
      due.map(({ runId }) => runId),
      due.map(({ trigger }) => trigger),
    ],
  );
}
