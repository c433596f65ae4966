// What the alert policies look at, per tenant. Bounded by what is under way and by the policies' windows, never
// by history: times are compared with the statement's, since no index is read by a clock that moves on while it
// runs. Called by the evaluation of alerts.

import { POLICY_RULES, type AlertPolicyName, type Measure } from '../domain/alert.js';
import { OPERATING_TENANT } from '../domain/viewer.js';
import type { Database } from './db.js';
import { HORIZON_HOLDERS } from './horizon.js';
import { outcomesWithin } from './success-rate.js';

export interface Measured {
  readonly tenantId: string;
  /** What it is about beside the tenant; '' when nothing. */
  readonly subject: string;
  /** The subject's name, for people. */
  readonly what: string;
  readonly value: number;
  /** Since when it is so, where that is known. */
  readonly since?: string;
}

// What comes from the future was written by a clock that had run ahead, and would stay within every window for as long.
// $1 is the policy, for the tenant's own window; $2 the policy's own window; $3 the longest that any tenant
// has, by which the index is read.
const WINDOW = `coalesce(policy.window_seconds, $2) * interval '1 second'`;
const SETTINGS =
  'LEFT JOIN alert_policy policy ON policy.tenant_id = subject.tenant_id AND policy.policy = $1';

const QUERIES: Readonly<Record<Measure, string>> = {
  success_rate: `
    SELECT subject.tenant_id AS "tenantId", '' AS subject, '' AS what,
      100.0 * sum(applied) / sum(applied + failed) AS value
    FROM (${outcomesWithin('$3')}) subject ${SETTINGS}
    WHERE subject.at IS NULL OR subject.at > statement_timestamp() - ${WINDOW}
    GROUP BY subject.tenant_id HAVING sum(applied + failed) > 0`,
  // Those that can still be retried, or will be able to: about any other nobody can do anything any more.
  dead_letters: `
    SELECT tenant_id AS "tenantId", '' AS subject, '' AS what, sum(failed_count) AS value
    FROM rule_run WHERE failed_count > 0 AND pruned_at IS NULL AND status NOT IN ('CANCELLED', 'ROLLED_BACK')
      AND NOT rolling_back AND coalesce(auto_revert_at > statement_timestamp(), true)
    GROUP BY tenant_id`,
  throttles: `
    SELECT subject.tenant_id AS "tenantId", '' AS subject, '' AS what, sum(count) AS value
    FROM channel_throttle subject ${SETTINGS}
    WHERE subject.at > statement_timestamp() - $3 * interval '1 second' AND subject.at > statement_timestamp() - ${WINDOW}
      AND subject.at <= statement_timestamp()
    GROUP BY subject.tenant_id`,
  // Whether the wait is over, not the state, which only the next batch changes: there may be nothing more to send.
  open_circuits: `
    SELECT tenant_id AS "tenantId", id::text AS subject, 'The channel ' || name AS what, 1 AS value
    FROM channel WHERE circuit = 'OPEN' AND circuit_open_until > statement_timestamp()`,
  // What failed stands until a run of the source completes: one that goes on meanwhile, or was cancelled, says
  // nothing yet. Runs that others drive by SQL share a source and nothing else: each is told of for a day.
  failed_pipelines: `
    SELECT source.tenant_id AS "tenantId", source.id::text AS subject,
      'The last pipeline run of ' || source.name AS what, 1 AS value, ended.finished_at::text AS since
    FROM source LEFT JOIN LATERAL (
      SELECT status, finished_at FROM run_metadata
      WHERE source_id = source.id AND status IN ('COMPLETED', 'FAILED') ORDER BY finished_at DESC LIMIT 1
    ) ended ON true LEFT JOIN alert firing ON firing.tenant_id = source.tenant_id
      AND firing.policy = 'PIPELINE_FAILED' AND firing.subject = source.id::text AND firing.resolved_at IS NULL
    WHERE source.kind <> 'external' AND (ended.status = 'FAILED'
      OR (firing.id IS NOT NULL AND (ended.finished_at < firing.fired_at) IS NOT FALSE))
    UNION ALL
    SELECT run.tenant_id, run.run_id::text, 'Pipeline run ' || run.run_id, 1, run.finished_at::text
    FROM source JOIN run_metadata run ON run.source_id = source.id
    WHERE source.kind = 'external' AND run.status = 'FAILED'
      AND run.finished_at > statement_timestamp() - interval '1 day'`,
  // Whoever operates the server is told: the database is one for all tenants.
  oldest_xmin: `
    SELECT tenant.id AS "tenantId", '' AS subject, holder.what, extract(epoch FROM statement_timestamp() - holder.since) AS value
    FROM tenant CROSS JOIN LATERAL (
      SELECT what, since FROM (${HORIZON_HOLDERS}) holder WHERE since IS NOT NULL ORDER BY since LIMIT 1
    ) holder
    WHERE tenant.id = '${OPERATING_TENANT}'`,
};

/** A tenant that has nothing to be measured is not among the answers. */
export async function measure(
  db: Database,
  policy: AlertPolicyName,
  longestWindow: number,
): Promise<Measured[]> {
  const { measure: name, windowSeconds } = POLICY_RULES[policy];
  const sql = `SELECT measured.*, value::float8 AS value FROM (${QUERIES[name]}) measured`;
  return db.query<Measured>(sql, windowSeconds === null ? [] : [policy, windowSeconds, longestWindow]);
}
