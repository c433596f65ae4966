// The doctor knows what the migrations make, and finds what somebody has switched off, taken away or put in its place.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { examine, type Diagnosis } from '../../src/store/doctor.js';
import { readVersion, type SchemaVersion } from '../../src/store/migrate.js';
import { createTestDatabase, MIGRATIONS, type TestDatabase } from '../support/database.js';

let database: TestDatabase;
let version: SchemaVersion;

beforeAll(async () => {
  database = await createTestDatabase();
  version = await readVersion(MIGRATIONS);
});
afterAll(() => database.drop());

const query = (sql: string) => database.db.query(sql);

async function diagnose(): Promise<Map<string, Diagnosis>> {
  const found = new Map<string, Diagnosis>();
  for await (const diagnosis of examine(database.db, version))
    if (diagnosis.count > 0) found.set(diagnosis.name, diagnosis);
  return found;
}

test.each([
  [
    'guards',
    'ALTER TABLE rule_run DISABLE TRIGGER rule_run_guard',
    'ALTER TABLE rule_run ENABLE TRIGGER rule_run_guard',
  ],
  [
    'guards',
    'ALTER TRIGGER rule_target_added ON rule_target RENAME TO elsewhere',
    'ALTER TRIGGER elsewhere ON rule_target RENAME TO rule_target_added',
  ],
  [
    'guards',
    'ALTER TABLE ops_run DISABLE TRIGGER ops_run_webhooks',
    'ALTER TABLE ops_run ENABLE TRIGGER ops_run_webhooks',
  ],
  ['guards', 'ALTER TABLE run_event DISABLE TRIGGER ALL', 'ALTER TABLE run_event ENABLE TRIGGER ALL'],
  [
    'machines',
    `UPDATE state_transition SET to_state = 'APPLIED' WHERE machine = 'rule_run' AND event = 'queue'`,
    `UPDATE state_transition SET to_state = 'QUEUED' WHERE machine = 'rule_run' AND event = 'queue'`,
  ],
  [
    'constraints',
    'ALTER TABLE rule_run ADD CONSTRAINT doubtful CHECK (id IS NULL) NOT VALID',
    'ALTER TABLE rule_run DROP CONSTRAINT doubtful',
  ],
  [
    'constraints',
    'ALTER TABLE rule_run RENAME CONSTRAINT rule_run_times TO elsewhere',
    'ALTER TABLE rule_run RENAME CONSTRAINT elsewhere TO rule_run_times',
  ],
  [
    'constraints',
    'ALTER INDEX rule_target_run_id_external_id_key RENAME TO elsewhere',
    'ALTER INDEX elsewhere RENAME TO rule_target_run_id_external_id_key',
  ],
  [
    'functions',
    'ALTER FUNCTION rule_run_guard RENAME TO elsewhere',
    'ALTER FUNCTION elsewhere RENAME TO rule_run_guard',
  ],
  [
    'migrations',
    `UPDATE _prisma_migrations SET rolled_back_at = now() WHERE migration_name LIKE '%_tables'`,
    'UPDATE _prisma_migrations SET rolled_back_at = NULL',
  ],
  [
    'migrations',
    'UPDATE _prisma_migrations SET finished_at = NULL',
    'UPDATE _prisma_migrations SET finished_at = now()',
  ],
])('%s: %s', async (check, breaking, mending) => {
  expect((await diagnose()).has(check)).toBe(false);
  await query(breaking);
  expect((await diagnose()).get(check)?.severity).toBe('ERROR');
  await query(mending);
  expect((await diagnose()).has(check)).toBe(false);
});

test('the guards are every trigger that the migrations make, on its table', async () => {
  const made = await query(
    `SELECT tgname AS name, tgrelid::regclass::text AS table FROM pg_trigger WHERE NOT tgisinternal ORDER BY 2, 1`,
  );
  const known = version.triggers.toSorted((a, b) =>
    `${a.table} ${a.name}`.localeCompare(`${b.table} ${b.name}`),
  );
  expect(known.map(({ table, name }) => `${table} ${name}`).sort()).toEqual(
    made.map(({ table, name }) => `${String(table)} ${String(name)}`).sort(),
  );
});

test('known are all constraints, indexes and functions that the migrations make', async () => {
  const made = await query(
    `SELECT 'constraint ' || conrelid::regclass || ' ' || conname AS name FROM pg_constraint
     WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f', 'p', 'u', 'x')
       AND conrelid <> '_prisma_migrations'::regclass
     UNION ALL
     SELECT 'index ' || indexrelid::regclass FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
     WHERE relnamespace = 'public'::regnamespace
       AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
     UNION ALL
     SELECT format('function %s.%s %s', pronamespace::regnamespace, proname,
       encode(sha256(convert_to(prosrc, 'UTF8')), 'hex'))
     FROM pg_proc WHERE pronamespace IN ('public'::regnamespace, 'ops'::regnamespace)`,
  );
  const known = [
    ...version.constraints.map(({ name, table }) => `constraint ${table} ${name}`),
    ...version.indexes.map((name) => `index ${name}`),
    ...version.functions.map(({ name, bodySha256 }) => `function ${name} ${bodySha256}`),
  ];
  expect(known.sort()).toEqual(made.map(({ name }) => String(name)).sort());
});

test('a guard whose function lets everything pass', async () => {
  const [row] = await database.db.query<{ sql: string }>(
    `SELECT pg_get_functiondef('rule_run_guard'::regproc) AS sql`,
  );
  await query(
    `CREATE OR REPLACE FUNCTION rule_run_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`,
  );
  expect((await diagnose()).get('functions')?.findings).toEqual([
    { id: 'public.rule_run_guard', fault: 'the function was changed' },
  ]);
  await query(row!.sql);
  expect((await diagnose()).has('functions')).toBe(false);
});

test('a function that allows more than the machine', async () => {
  const [row] = await database.db.query<{ sql: string }>(
    `SELECT pg_get_functiondef('state_event'::regproc) AS sql`,
  );
  const lax = row!.sql.replace(`from_state = 'PREVIEW' AND to_state = 'QUEUED'`, `from_state = 'PREVIEW'`);
  expect(lax).not.toBe(row!.sql);
  await query(lax);
  expect((await diagnose()).has('machines')).toBe(true);
  await query(row!.sql);
  expect((await diagnose()).has('machines')).toBe(false);
});
