// A year of history: ended rule runs with their targets and their ledgers, as the triggers would have written them,
// but made by the million, which is why the guards are off here and nowhere else. All of it is past the policy that is
// set with it.

import type pg from 'pg';

/** Lines of a run's life: made, filled, queued, started, ended; and of each target: included, claimed, settled. */
const PER_TARGET = 3;
const TARGETS = 1_000;
const BATCH = 100;
const PER_RUN = TARGETS * PER_TARGET + 5;

const RUNS = `
  INSERT INTO rule_run (id, tenant_id, channel_id, status, currency, actor, correlation_id, last_seq, total_count,
    failed_count, claim_cursor, created_at, queued_at, started_at, finished_at)
  SELECT id, 'default', (SELECT id FROM channel LIMIT 1), 'FAILED', 'EUR', 'bench', id::text, ${PER_RUN}, ${TARGETS},
    ${TARGETS}, 0, at, at, at, at
  FROM (SELECT gen_random_uuid() AS id, now() - (400 - 365.0 * n / $1) * interval '1 day' AS at
    FROM generate_series(1, $1) AS n) AS run`;

const TARGET_ROWS = `
  INSERT INTO rule_target (run_id, tenant_id, external_id, status, currency, before_amount, after_amount, attempts,
    error_code, error_message, failed_at)
  SELECT run.id, 'default', 'item-' || n, 'FAILED', 'EUR', 1000, 1100, 1, 'INVALID', 'no', run.finished_at
  FROM (SELECT * FROM rule_run WHERE status = 'FAILED' ORDER BY created_at) AS run, generate_series(1, ${TARGETS}) AS n`;

const LINES = `
  INSERT INTO run_event (run_id, seq, tenant_id, run_kind, type, level, message, payload, actor, target_id, created_at,
    from_state, to_state, external_id, attempt)
  SELECT run.id, 5 + (step - 1) * ${TARGETS} + row_number() OVER (PARTITION BY run.id, step ORDER BY target.id), 'default', 'RULE'::run_kind,
    'rule_target.' || (ARRAY['include', 'claim', 'exhaust'])[step],
    (CASE step WHEN 3 THEN 'ERROR' ELSE 'INFO' END)::event_level, 'no', '{}'::jsonb, 'bench-worker', target.id,
    run.finished_at, (ARRAY['PREVIEW', 'QUEUED', 'APPLYING'])[step], (ARRAY['QUEUED', 'APPLYING', 'FAILED'])[step],
    target.external_id, least(step - 1, 1)
  FROM (SELECT * FROM rule_run WHERE status = 'FAILED' ORDER BY created_at) AS run
    CROSS JOIN generate_series(1, ${PER_TARGET}) AS step JOIN rule_target AS target ON target.run_id = run.id
  UNION ALL
  SELECT run.id, seq, 'default', 'RULE', 'rule_run.bench', 'INFO', 'made', '{}', 'bench', NULL, run.finished_at,
    NULL, NULL, NULL, NULL
  FROM (SELECT * FROM rule_run WHERE status = 'FAILED' ORDER BY created_at) AS run, generate_series(1, 5) AS seq`;

/** One for each statement: all were included by one, and were claimed and settled batch by batch. */
const SPANS = `
  INSERT INTO run_event_span (run_id, first_seq, last_seq, first_target, last_target)
  SELECT run_id, min(seq), max(seq), min(target_id), max(target_id)
  FROM run_event WHERE to_state IS NOT NULL AND target_id IS NOT NULL
  GROUP BY run_id, type, CASE WHEN from_state = 'PREVIEW' THEN 0 ELSE (seq - 6) / ${BATCH} END`;

/** Fills an empty ledger with about so many lines, and sets the policy by which they are past their time. */
export async function loadHistory(client: pg.Client, lines: number): Promise<void> {
  await client.query(`SET session_replication_role = replica`);
  await client.query(RUNS.replaceAll('$1', String(Math.ceil(lines / PER_RUN))));
  await client.query(TARGET_ROWS);
  await client.query(LINES);
  await client.query(SPANS);
  await client.query(`SET session_replication_role = origin`);
  await client.query(
    `INSERT INTO retention_policy (tenant_id, kind, keep_days, updated_by) VALUES ('default', 'RULE', 30, 'bench')`,
  );
}
