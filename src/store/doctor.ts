// Examines a live database: every invariant of the runs, the guards that keep them, and what keeps work from
// going on. Reads only; each check is a transaction of its own, so that none holds back vacuum for long.
// Called by the cli, and by tests for one run.

import { listTransitions } from '../domain/machine.js';
import { MACHINES } from '../domain/machines.js';
import type { Database } from './db.js';
import { INVARIANTS } from './invariants.js';

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

export interface Diagnosis extends Check {
  /** The first of them. */
  readonly findings: readonly Finding[];
  readonly count: number;
}

interface Examination extends Check {
  readonly run: (db: Database) => Promise<Finding[]>;
}

const MAX_SHOWN = 20;

/** Checks one after the other, as each is done. */
export async function* examine(db: Database): AsyncGenerator<Diagnosis> {
  for (const { run, ...check } of EXAMINATIONS) {
    const findings = await run(db);
    yield { ...check, findings: findings.slice(0, MAX_SHOWN), count: findings.length };
  }
}

/** What breaks an invariant of one run, in words. */
export async function findViolations(db: Database, runId: string): Promise<string[]> {
  const found: string[] = [];
  for (const { name, sql } of INVARIANTS) {
    const findings = await readOnly(db, sql, [runId]);
    found.push(...findings.map(({ id, fault }) => `${name} ${id}: ${fault}`));
  }
  return found;
}

function readOnly(db: Database, sql: string, values: readonly unknown[] = []): Promise<Finding[]> {
  return db.transaction('doctor', async (connection) => {
    await connection.query('SET TRANSACTION READ ONLY');
    return (await connection.query<Finding>(sql, [...values])).rows;
  });
}

/** The table that people read and the function that the guards ask, for every pair of states. */
async function checkMachines(db: Database): Promise<Finding[]> {
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
  return readOnly(
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

async function checkGuards(db: Database): Promise<Finding[]> {
  const tables = MACHINES.flatMap(({ table }) => (table === null ? [] : [table]));
  const expected = tables.flatMap((table) =>
    ['birth', 'guard', 'moved', 'kept'].map((part) => `${table}_${part}`),
  );
  const rows = await db.query<{ name: string; enabled: string }>(
    `SELECT tgname AS name, tgenabled AS enabled FROM pg_trigger WHERE NOT tgisinternal`,
  );
  const enabled = new Map(rows.map((row) => [row.name, row.enabled]));
  return [...expected, 'run_event_append_only'].flatMap((id) => {
    const state = enabled.get(id);
    if (state === 'O' || state === 'A') return [];
    return [{ id, fault: state === undefined ? 'the trigger is missing' : 'the trigger is disabled' }];
  });
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
    remedy: 'ALTER TABLE … ENABLE TRIGGER …; a missing one is in prisma/migrations.',
    severity: 'ERROR',
    run: checkGuards,
  },
  {
    name: 'constraints',
    says: 'every constraint holds for all rows and every index is whole',
    remedy: 'ALTER TABLE … VALIDATE CONSTRAINT …; REINDEX INDEX CONCURRENTLY …',
    severity: 'ERROR',
    run: (db) =>
      readOnly(
        db,
        `SELECT conname AS id, 'the constraint is not validated' AS fault FROM pg_constraint
         WHERE NOT convalidated AND connamespace = 'public'::regnamespace
         UNION ALL
         SELECT indexrelid::regclass::text, 'the index is not valid' FROM pg_index WHERE NOT indisvalid`,
      ),
  },
  {
    name: 'migrations',
    says: 'every migration was finished',
    remedy:
      'See its logs in _prisma_migrations, mend the database, then set rolled_back_at or finished_at on its row.',
    severity: 'ERROR',
    run: (db) =>
      readOnly(
        db,
        `SELECT migration_name AS id, coalesce(logs, 'it began and did not finish') AS fault
         FROM _prisma_migrations WHERE finished_at IS NULL AND rolled_back_at IS NULL`,
      ),
  },
];

const PROGRESS: readonly Examination[] = [
  {
    name: 'workers',
    says: 'somebody is there to do the work that waits',
    remedy: 'Start a server with RUNLEDGER_ROLE=all or runner.',
    severity: 'WARNING',
    run: (db) =>
      readOnly(
        db,
        `SELECT 'rule runs' AS id, format('%s runs wait, and no worker was heard of for a minute', count(*)) AS fault
         FROM rule_run
         WHERE status IN ('QUEUED', 'APPLYING') AND NOT paused AND next_claim_at < clock_timestamp() - interval '1 minute'
           AND NOT EXISTS (SELECT 1 FROM worker
             WHERE state <> 'STOPPED' AND heartbeat_at > clock_timestamp() - interval '1 minute')
         HAVING count(*) > 0`,
      ),
  },
  {
    name: 'expired_leases',
    says: 'leases that expired are taken back',
    remedy: 'Start a server with RUNLEDGER_ROLE=all or runner; it recovers them within seconds.',
    severity: 'WARNING',
    run: (db) =>
      readOnly(
        db,
        `SELECT id::text, format('a lease expired at %s', lease_floor) AS fault FROM rule_run
         WHERE lease_floor < clock_timestamp() - interval '5 minutes'`,
      ),
  },
  {
    name: 'old_transactions',
    says: 'no transaction is open for more than ten minutes',
    remedy:
      'It holds back vacuum, and claims become slow: SELECT pg_terminate_backend(pid), or end what holds it.',
    severity: 'WARNING',
    run: (db) =>
      readOnly(
        db,
        `SELECT pid::text AS id, format('open since %s (%s)', xact_start, application_name) AS fault
         FROM pg_stat_activity
         WHERE datname = current_database() AND xact_start < clock_timestamp() - interval '10 minutes'`,
      ),
  },
];

const EXAMINATIONS: readonly Examination[] = [
  ...STRUCTURE,
  ...INVARIANTS.map(({ sql, ...invariant }) => ({
    ...invariant,
    severity: 'ERROR' as const,
    run: (db: Database) => readOnly(db, sql, [null]),
  })),
  ...PROGRESS,
];
