// Examines a live database: every invariant of the runs, the guards that keep them, and what keeps work from
// going on. Reads only, in bounded memory and time per statement: each check is a transaction of its own, and the
// runs are judged range by range, so that none holds back vacuum for long. Called by the cli, and by tests for
// one run.

import { listTransitions } from '../domain/machine.js';
import { MACHINES } from '../domain/machines.js';
import type { Database } from './db.js';
import { PROGRESS } from './doctor-progress.js';
import { INVARIANTS } from './invariants.js';
import type { SchemaVersion } from './migrate.js';
import { listRunRanges, type RunRange } from './run-range.js';
import { isUnavailable } from './sqlstate.js';

export interface Finding {
  /** The row that it is about, or what is missing. */
  readonly id: string;
  readonly fault: string;
}

export interface Check {
  readonly name: string;
  readonly says: string;
  readonly remedy: string;
  /** An error is a promise broken; a warning is work that does not go on. */
  readonly severity: 'ERROR' | 'WARNING';
}

/** What a check has found. */
interface Found {
  /** The first of them. */
  readonly findings: readonly Finding[];
  readonly count: number;
}

export interface Diagnosis extends Check, Found {}

/** What the checks go by. */
interface Patient {
  readonly db: Database;
  readonly version: SchemaVersion;
  /** All runs, in portions. */
  readonly ranges: readonly RunRange[];
}

interface Examination extends Check {
  readonly run: (patient: Patient) => Promise<Found>;
}

const MAX_SHOWN = 20;

/** Checks one after the other, as each is done. */
export async function* examine(
  db: Database,
  version: SchemaVersion,
  rowsAtOnce?: number,
): AsyncGenerator<Diagnosis> {
  const patient = { db, version, ranges: await listRunRanges(db, rowsAtOnce) };
  for (const { run, ...check } of EXAMINATIONS) yield { ...check, ...(await attempt(check, run(patient))) };
}

/** A check that cannot be made is a finding of its own: what it is about may be broken, and the others go on. */
async function attempt({ name }: Check, found: Promise<Found>): Promise<Found> {
  try {
    return await found;
  } catch (error) {
    if (isUnavailable(error)) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    return { findings: [{ id: name, fault: `it could not be checked: ${reason}` }], count: 1 };
  }
}

/** What breaks an invariant of one run, in words. */
export async function findViolations(db: Database, runId: string): Promise<string[]> {
  const found: string[] = [];
  for (const { name, sql } of INVARIANTS) {
    const { findings } = await find(db, sql, [runId, runId]);
    found.push(...findings.map(({ id, fault }) => `${name} ${id}: ${fault}`));
  }
  return found;
}

/** How many rows (id, fault) a statement answers, and the first of them: however many there are. */
async function find(db: Database, sql: string, values: readonly unknown[] = []): Promise<Found> {
  const rows = await db.transaction('doctor', async (connection) => {
    await connection.query('SET TRANSACTION READ ONLY');
    const counted = `SELECT id, fault, (count(*) OVER ())::float8 AS count FROM (${sql}) found LIMIT ${MAX_SHOWN}`;
    return (await connection.query<Finding & { readonly count: number }>(counted, [...values])).rows;
  });
  return { findings: rows.map(({ id, fault }) => ({ id, fault })), count: rows[0]?.count ?? 0 };
}

async function findInRanges({ db, ranges }: Patient, sql: string): Promise<Found> {
  let count = 0;
  const findings: Finding[] = [];
  for (const { from, to } of ranges) {
    const found = await find(db, sql, [from, to]);
    count += found.count;
    findings.push(...found.findings.slice(0, MAX_SHOWN - findings.length));
  }
  return { findings, count };
}

/** The table that people read and the function that the guards ask, for every pair of states. */
function checkMachines({ db }: Patient): Promise<Found> {
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
  return find(
    db,
    `SELECT format('%s: %s → %s', machine, from_state, to_state) AS id,
       format('this version says %s, the table %s, the function %s', coalesce(known.event, 'no'),
         coalesce(listed.event, 'no'), coalesce(state_event(machine, from_state, to_state), 'no')) AS fault
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[])
         AS known (machine, from_state, to_state, event, guarded)
       FULL JOIN state_transition listed USING (machine, from_state, to_state)
     WHERE known.event IS DISTINCT FROM listed.event
       OR (known.guarded AND known.event IS DISTINCT FROM state_event(machine, from_state, to_state))`,
    [column(0), column(1), column(2), column(3), column(4)],
  );
}

function checkGuards({ db, version }: Patient): Promise<Found> {
  return find(
    db,
    `SELECT known.name AS id,
       CASE WHEN tgname IS NULL THEN 'the trigger is missing' ELSE 'the trigger is disabled' END AS fault
     FROM unnest($1::text[], $2::text[]) AS known (name, on_table)
       LEFT JOIN pg_trigger ON tgname = known.name AND tgrelid = to_regclass(known.on_table)
     WHERE coalesce(tgenabled NOT IN ('O', 'A'), true)`,
    [version.triggers.map(({ name }) => name), version.triggers.map(({ table }) => table)],
  );
}

const STRUCTURE: readonly Examination[] = [
  {
    name: 'machines',
    says: 'the database knows the machines of this version',
    remedy:
      'The doctor and the database are of different versions: use the version that migrated it, or migrate.',
    severity: 'ERROR',
    run: checkMachines,
  },
  {
    name: 'guards',
    says: 'every guard is there and enabled',
    remedy:
      'ALTER TABLE … ENABLE TRIGGER …; a missing one is in prisma/migrations, and until it is there again what it keeps ' +
      'is not kept: compare the invariants below.',
    severity: 'ERROR',
    run: checkGuards,
  },
  {
    name: 'constraints',
    says: 'every constraint holds for all rows and every index is whole',
    remedy: 'ALTER TABLE … VALIDATE CONSTRAINT …; REINDEX INDEX CONCURRENTLY …',
    severity: 'ERROR',
    run: ({ db }) =>
      find(
        db,
        `SELECT conname AS id, 'the constraint is not validated' AS fault FROM pg_constraint
         WHERE NOT convalidated AND connamespace = 'public'::regnamespace
         UNION ALL
         SELECT indexrelid::regclass::text, 'the index is not valid' FROM pg_index WHERE NOT indisvalid`,
      ),
  },
  {
    name: 'migrations',
    says: 'every migration of this version was applied and finished',
    remedy:
      'One that is not there is applied by a server of this version when it starts. Of one that did not finish see the ' +
      'logs in _prisma_migrations, mend the database, then set rolled_back_at or finished_at on its row.',
    severity: 'ERROR',
    run: ({ db, version }) =>
      find(
        db,
        `SELECT migration_name AS id, coalesce(logs, 'it began and did not finish') AS fault
         FROM _prisma_migrations WHERE finished_at IS NULL AND rolled_back_at IS NULL
         UNION ALL
         SELECT name, 'it was not applied' FROM unnest($1::text[]) AS name WHERE NOT EXISTS (
           SELECT 1 FROM _prisma_migrations WHERE migration_name = name AND rolled_back_at IS NULL)`,
        [version.migrations],
      ),
  },
];

const EXAMINATIONS: readonly Examination[] = [
  ...STRUCTURE,
  ...INVARIANTS.map(({ sql, severity, ...invariant }) => ({
    ...invariant,
    severity: severity ?? ('ERROR' as const),
    run: (patient: Patient) => findInRanges(patient, sql),
  })),
  ...PROGRESS.map(({ sql, ...check }) => ({
    ...check,
    severity: 'WARNING' as const,
    run: ({ db }: Patient) => find(db, sql),
  })),
];
