// What the alert policies look at, per tenant. Bounded by what is under way and by the policies' windows, never
// by history. Called by the evaluation of alerts.

import { POLICY_RULES, type AlertPolicyName, type Measure } from '../domain/alert.js';
import type { Database } from './db.js';

export interface Measured {
  readonly tenantId: string;
  /** What it is about beside the tenant; '' when nothing. */
  readonly subject: string;
  /** The subject's name, for people. */
  readonly what: string;
  readonly value: number;
}

// $1 is the policy, for the tenant's own window; $2 the policy's own window; $3 the longest that any tenant
// has, by which the index is read.
const WINDOW = `coalesce(policy.window_seconds, $2) * interval '1 second'`;
const SETTINGS =
  'LEFT JOIN alert_policy policy ON policy.tenant_id = subject.tenant_id AND policy.policy = $1';

const QUERIES: Readonly<Record<Measure, string>> = {
  success_rate: `
    SELECT subject.tenant_id AS "tenantId", '' AS subject, '' AS what,
      100.0 * sum(applied_count + rolled_back_count) / sum(applied_count + rolled_back_count + failed_count) AS value
    FROM (
      SELECT tenant_id, applied_count, rolled_back_count, failed_count, finished_at FROM rule_run
      WHERE finished_at > clock_timestamp() - $3 * interval '1 second'
      UNION ALL
      SELECT tenant_id, applied_count, rolled_back_count, failed_count, NULL FROM rule_run
      WHERE status IN ('QUEUED', 'APPLYING')
    ) subject ${SETTINGS}
    WHERE subject.finished_at IS NULL OR subject.finished_at > clock_timestamp() - ${WINDOW}
    GROUP BY subject.tenant_id HAVING sum(applied_count + rolled_back_count + failed_count) > 0`,
  dead_letters: `
    SELECT tenant_id AS "tenantId", '' AS subject, '' AS what, sum(failed_count) AS value
    FROM rule_run WHERE failed_count > 0 GROUP BY tenant_id`,
  throttles: `
    SELECT subject.tenant_id AS "tenantId", '' AS subject, '' AS what, sum(count) AS value
    FROM channel_throttle subject ${SETTINGS}
    WHERE subject.at > clock_timestamp() - $3 * interval '1 second' AND subject.at > clock_timestamp() - ${WINDOW}
    GROUP BY subject.tenant_id`,
  failed_pipelines: `
    SELECT source.tenant_id AS "tenantId", source.id::text AS subject, source.name AS what, 1 AS value
    FROM source CROSS JOIN LATERAL (
      SELECT status FROM run_metadata WHERE source_id = source.id ORDER BY created_at DESC, run_id DESC LIMIT 1
    ) newest
    WHERE newest.status = 'FAILED'`,
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
