// Whether the database still is what the migrations made of it: a part of what the doctor looks at. Each is one
// read-only statement that answers rows (id, fault), and compares with what the version that asks knows.

import { listTransitions } from '../domain/machine.js';
import { MACHINES } from '../domain/machines.js';
import type { Invariant } from './invariant.js';
import type { SchemaVersion } from './migrate.js';

interface StructureCheck extends Invariant {
  /** What the statement's parameters stand for. */
  readonly values: (version: SchemaVersion) => readonly unknown[];
}

/** For every pair of states of every machine: its names, the event if there is one, and whether a guard asks. */
function listPairs(): readonly unknown[] {
  const pairs = MACHINES.flatMap((machine) => {
    const steps = listTransitions(machine);
    const eventOf = (from: string, to: string) =>
      steps.find((step) => step.from === from && step.to === to)?.event ?? null;
    return machine.states.flatMap((from) =>
      machine.states.map(
        (to) => [machine.name, from, to, eventOf(from, to), machine.table !== null] as const,
      ),
    );
  });
  const column = (index: 0 | 1 | 2 | 3 | 4) => pairs.map((pair) => pair[index]);
  return [column(0), column(1), column(2), column(3), column(4)];
}

const columns = <T extends object>(rows: readonly T[], ...names: readonly (keyof T)[]): readonly unknown[] =>
  names.map((name) => rows.map((row) => row[name]));

export const STRUCTURE: readonly StructureCheck[] = [
  {
    name: 'machines',
    says: 'the database knows the machines of this version',
    remedy:
      'The doctor and the database are of different versions: use the version that migrated it, or migrate.',
    // The table that people read and the function that the guards ask.
    sql: `SELECT format('%s: %s → %s', machine, from_state, to_state) AS id,
        format('this version says %s, the table %s, the function %s', coalesce(known.event, 'no'),
          coalesce(listed.event, 'no'), coalesce(state_event(machine, from_state, to_state), 'no')) AS fault
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[])
          AS known (machine, from_state, to_state, event, guarded)
        FULL JOIN state_transition listed USING (machine, from_state, to_state)
      WHERE known.event IS DISTINCT FROM listed.event
        OR (known.guarded AND known.event IS DISTINCT FROM state_event(machine, from_state, to_state))`,
    values: listPairs,
  },
  {
    name: 'guards',
    says: 'every guard is there and enabled',
    remedy:
      'ALTER TABLE … ENABLE TRIGGER …; a missing one is in prisma/migrations, and until it is there again what it keeps ' +
      'is not kept: compare the invariants below.',
    sql: `SELECT known.name AS id,
        CASE WHEN tgname IS NULL THEN 'the trigger is missing' ELSE 'the trigger is disabled' END AS fault
      FROM unnest($1::text[], $2::text[]) AS known (name, on_table)
        LEFT JOIN pg_trigger ON tgname = known.name AND tgrelid = to_regclass(known.on_table)
      WHERE coalesce(tgenabled NOT IN ('O', 'A'), true)`,
    values: ({ triggers }) => columns(triggers, 'name', 'table'),
  },
  {
    name: 'functions',
    says: 'every function is the one that the migrations made',
    remedy:
      'CREATE OR REPLACE it as the newest of prisma/migrations has it; until then what it keeps is not kept: compare ' +
      'the invariants below.',
    sql: `SELECT known.name AS id,
        CASE WHEN count(oid) = 0 THEN 'the function is missing' ELSE 'the function was changed' END AS fault
      FROM unnest($1::text[], $2::text[]) AS known (name, body)
        LEFT JOIN pg_proc ON pronamespace = to_regnamespace(split_part(known.name, '.', 1))
          AND proname = split_part(known.name, '.', 2)
      GROUP BY known.name, known.body
      HAVING coalesce(bool_and(encode(sha256(convert_to(prosrc, 'UTF8')), 'hex') <> known.body), true)`,
    values: ({ functions }) => columns(functions, 'name', 'bodySha256'),
  },
  {
    name: 'constraints',
    says: 'every constraint and index is there, holds for all rows and is whole',
    remedy:
      'ALTER TABLE … VALIDATE CONSTRAINT …; REINDEX INDEX CONCURRENTLY …; what is missing is in prisma/migrations.',
    sql: `SELECT conname AS id, 'the constraint is not validated' AS fault FROM pg_constraint
      WHERE NOT convalidated AND connamespace = 'public'::regnamespace
      UNION ALL
      SELECT name, 'the constraint is missing' FROM unnest($1::text[], $2::text[]) AS known (name, on_table)
      WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conname = name AND conrelid = to_regclass(on_table))
      UNION ALL
      SELECT indexrelid::regclass::text, 'the index is not valid' FROM pg_index WHERE NOT indisvalid
      UNION ALL
      SELECT name, 'the index is missing' FROM unnest($3::text[]) AS name WHERE to_regclass(name) IS NULL`,
    values: ({ constraints, indexes }) => [...columns(constraints, 'name', 'table'), indexes],
  },
  {
    name: 'migrations',
    says: 'every migration of this version was applied and finished',
    remedy:
      'One that is not there is applied by a server of this version when it starts. Of one that did not finish see the ' +
      'logs in _prisma_migrations, mend the database, then set rolled_back_at or finished_at on its row.',
    sql: `SELECT migration_name AS id, coalesce(logs, 'it began and did not finish') AS fault
      FROM _prisma_migrations WHERE finished_at IS NULL AND rolled_back_at IS NULL
      UNION ALL
      SELECT name, 'it was not applied' FROM unnest($1::text[]) AS name WHERE NOT EXISTS (
        SELECT 1 FROM _prisma_migrations WHERE migration_name = name AND rolled_back_at IS NULL)`,
    values: ({ migrations }) => [migrations],
  },
];
