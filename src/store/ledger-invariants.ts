// What must hold of the ledger, and between it and the rows. A part of the list in invariants.ts.

import { BY_HAND, type Invariant } from './invariant.js';

const ALL_RUNS = `
  SELECT id, last_seq, tenant_id, status, 'RULE'::run_kind AS kind, 'rule_run' AS machine, pruned_seq FROM rule_run
  UNION ALL SELECT run_id, last_seq, tenant_id, status, 'PIPELINE', 'pipeline_run', pruned_seq FROM run_metadata
  UNION ALL SELECT id, last_seq, tenant_id, status, 'OPS', 'ops_run', pruned_seq FROM ops_run`;

// Where a pruned run's ledger begins; of what lies before, some may still be there.
const PRUNED = `SELECT id AS run_id, pruned_seq FROM (${ALL_RUNS}) run WHERE id BETWEEN $1 AND $2 AND pruned_seq IS NOT NULL`;

// A row's own history: the lines of a run are about the run, about one of its targets or about a partition.
const MOVES = `
  SELECT run_id, seq, type, split_part(type, '.', 1) AS machine, split_part(type, '.', 2) AS event,
    coalesce(from_state, payload ->> 'from') AS from_state, coalesce(to_state, payload ->> 'to') AS to_state,
    coalesce(target_id::text, payload ->> 'partitionId', '') AS part,
    CASE WHEN target_id IS NOT NULL THEN coalesce(attempt::text, payload ->> 'attempt') END AS attempt
  FROM run_event
  WHERE run_id BETWEEN $1 AND $2 AND run_id NOT IN (SELECT run_id FROM (${PRUNED}) pruned)
    AND (to_state IS NOT NULL OR payload ? 'from' AND payload ? 'to')
    AND split_part(type, '.', 1) IN ('rule_run', 'rule_target', 'pipeline_run', 'partition', 'ops_run')`;

const ROWS = `
  SELECT id AS run_id, machine, '' AS part, status, NULL AS attempts FROM (${ALL_RUNS}) run WHERE pruned_seq IS NULL
  UNION ALL SELECT run_id, 'rule_target', target.id::text, target.status, target.attempts::text
    FROM rule_target target JOIN rule_run run ON run.id = run_id AND run.pruned_seq IS NULL
  UNION ALL SELECT run_id, 'partition', partition_id, part.status, NULL
    FROM worker_runs part JOIN run_metadata run USING (run_id) WHERE run.pruned_seq IS NULL`;

export const LEDGER_INVARIANTS: readonly Invariant[] = [
  {
    name: 'ledger_seq',
    says: 'the lines of a run are numbered from 1, or from where it was pruned, to its last_seq without a gap',
    remedy:
      'Lines were removed or written past the guards: restore run_event from a backup; the ledger cannot be guessed.',
    sql: `
      SELECT run.id::text, format('last_seq %s%s, but %s lines from %s to %s', run.last_seq,
        ', pruned to ' || run.pruned_seq, coalesce(ledger.lines, 0), ledger.first, ledger.last) AS fault
      FROM (${ALL_RUNS}) run
        LEFT JOIN (SELECT run_id, count(*) AS lines, min(seq) AS first, max(seq) AS last
          FROM run_event LEFT JOIN (${PRUNED}) pruned USING (run_id)
          WHERE run_id BETWEEN $1 AND $2 AND seq > coalesce(pruned_seq, 0)
          GROUP BY run_id) ledger ON ledger.run_id = run.id
      WHERE run.id BETWEEN $1 AND $2 AND CASE WHEN run.pruned_seq = run.last_seq THEN ledger.lines IS NOT NULL
        ELSE (ledger.lines, ledger.first, ledger.last) IS DISTINCT FROM
          ((run.last_seq - coalesce(run.pruned_seq, 0))::bigint, coalesce(run.pruned_seq, 0) + 1, run.last_seq) END`,
  },
  {
    name: 'ledger_run',
    says: 'every line belongs to a run of its kind and tenant',
    remedy: BY_HAND,
    sql: `
      SELECT line.run_id::text AS id, format('%s lines of %s for tenant %s, and no such run', count(*), line.run_kind, line.tenant_id) AS fault
      FROM run_event line LEFT JOIN (${ALL_RUNS}) run
        ON run.id = line.run_id AND run.kind = line.run_kind AND run.tenant_id = line.tenant_id
      WHERE line.run_id BETWEEN $1 AND $2 AND run.id IS NULL
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
    says: 'every row is where its last line in the ledger says, a target after as many attempts',
    remedy:
      'It was changed while the guards were off, or past them. The ledger tells what it was: decide which is right.',
    sql: `
      SELECT row.run_id::text AS id, format('%s %s is %s, its ledger says %s', row.machine, row.part,
        row.status || coalesce(' after ' || row.attempts || ' attempts', ''),
        said.status || coalesce(' after ' || said.attempts || ' attempts', '')) AS fault
      FROM (${ROWS}) AS row LEFT JOIN (
        SELECT DISTINCT ON (run_id, machine, part) run_id, machine, part, to_state, attempt
        FROM (${MOVES}) move ORDER BY run_id, machine, part, seq DESC
      ) ended ON ended.run_id = row.run_id AND ended.machine = row.machine AND ended.part = row.part
        CROSS JOIN LATERAL (SELECT coalesce(ended.to_state, state_initial(row.machine)) AS status,
          CASE WHEN row.attempts IS NULL THEN NULL WHEN ended.run_id IS NULL THEN '0' ELSE ended.attempt END AS attempts) said
      WHERE row.run_id BETWEEN $1 AND $2 AND (row.status <> said.status OR row.attempts <> said.attempts)`,
  },
  {
    name: 'ledger_spans',
    says: 'every line of a change of a target stands in one span of its run, which knows of the target',
    remedy:
      'Histories of targets miss lines that are in the ledger: delete the run’s rows of run_event_span and call note_spans(run, 1, last_seq).',
    sql: `
      SELECT line.run_id::text AS id, format('%s lines from %s to %s', count(*), min(line.seq), max(line.seq)) AS fault
      FROM run_event line LEFT JOIN (${PRUNED}) pruned USING (run_id)
      WHERE line.run_id BETWEEN $1 AND $2 AND line.to_state IS NOT NULL AND line.target_id IS NOT NULL
        AND line.seq > coalesce(pruned.pruned_seq, 0) AND NOT EXISTS (
          SELECT 1 FROM run_event_span span
          WHERE span.run_id = line.run_id AND line.seq BETWEEN span.first_seq AND span.last_seq
            AND line.target_id BETWEEN span.first_target AND span.last_target)
      GROUP BY line.run_id`,
  },
];
