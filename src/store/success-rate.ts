// What success rates are of, the gauge's as well as the alerts': rule runs under way, and those that came to an end
// of applying within a time. Being rolled back ends a run once more, whenever that is; what had failed in it by then
// is no news, so such a run counts only when it was even started within that time.

/**
 * SQL of rows (tenant_id, applied, failed, at), `at` null for a run under way, of the last `seconds`. Times are
 * compared with the statement's: what comes from the future was written by a clock that had run ahead.
 */
export function outcomesWithin(seconds: string): string {
  return `
    SELECT tenant_id, applied_count + rolled_back_count AS applied, failed_count AS failed, at
    FROM rule_run CROSS JOIN LATERAL (
      SELECT CASE status WHEN 'ROLLED_BACK' THEN started_at ELSE finished_at END AS at) AS ended
    WHERE finished_at > statement_timestamp() - ${seconds} * interval '1 second' AND finished_at <= statement_timestamp()
      AND at > statement_timestamp() - ${seconds} * interval '1 second'
    UNION ALL
    SELECT tenant_id, applied_count + rolled_back_count, failed_count, NULL
    FROM rule_run WHERE status IN ('QUEUED', 'APPLYING')`;
}
