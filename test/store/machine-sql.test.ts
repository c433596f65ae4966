// The machines as the database has them: the table for people, the functions that the guards ask, and the
// committed migration all say what src/domain declares.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { listTransitions } from '../../src/domain/machine.js';
import { MACHINES } from '../../src/domain/machines.js';
import { renderMachineSql } from '../../src/store/machine-sql.js';
import { createTestDatabase, MIGRATIONS, type TestDatabase } from '../support/database.js';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

test('state_transition has exactly the transitions of every machine', async () => {
  const rows = await database.db.query(
    `SELECT machine, event, from_state AS "from", to_state AS "to", actors, condition FROM state_transition`,
  );
  const declared = MACHINES.flatMap((machine) =>
    listTransitions(machine).map((transition) => ({ machine: machine.name, ...transition })),
  );
  expect(rows).toHaveLength(declared.length);
  expect(rows).toEqual(expect.arrayContaining(declared));
});

test.each(MACHINES.map((machine) => ({ name: machine.name, machine })))(
  'state_event and state_initial know $name',
  async ({ machine }) => {
    const states = [...machine.states, 'NONSENSE', ''];
    const rows = await database.db.query<{ from: string; to: string; event: string | null }>(
      `SELECT a AS "from", b AS "to", state_event($1, a, b) AS event
       FROM unnest($2::text[]) a, unnest($2::text[]) b`,
      [machine.name, states],
    );
    const isGuarded = machine.table !== null;
    const eventOf = (from: string, to: string) =>
      listTransitions(machine).find((step) => step.from === from && step.to === to)?.event ?? null;
    expect(rows).toHaveLength(states.length ** 2);
    for (const { from, to, event } of rows) expect(event).toBe(isGuarded ? eventOf(from, to) : null);
    const [initial] = await database.db.query('SELECT state_initial($1) AS state', [machine.name]);
    expect(initial).toEqual({ state: isGuarded ? machine.initial : null });
  },
);

test('a machine that nobody declared allows nothing', async () => {
  const rows = await database.db.query(
    `SELECT state_event('no_machine', 'PREVIEW', 'QUEUED') AS event, state_initial('no_machine') AS initial,
       state_event('rule_run', NULL, 'QUEUED') AS from_null, state_event('rule_run', 'PREVIEW', NULL) AS to_null`,
  );
  expect(rows).toEqual([{ event: null, initial: null, from_null: null, to_null: null }]);
});

test('the newest machines migration is what the machines render to', async () => {
  const names = (await readdir(MIGRATIONS)).filter((name) => name.endsWith('_machines')).sort();
  const sql = await readFile(join(MIGRATIONS, names.at(-1)!, 'migration.sql'), 'utf8');
  expect(sql).toBe(renderMachineSql(MACHINES));
});

test('each guarded table has its guards', async () => {
  const rows = await database.db.query<{ table: string; triggers: string[] }>(
    `SELECT tgrelid::regclass::text AS table, array_agg(tgname::text ORDER BY tgname) AS triggers
     FROM pg_trigger WHERE NOT tgisinternal AND tgenabled = 'O' GROUP BY tgrelid`,
  );
  const triggersOf = new Map(rows.map(({ table, triggers }) => [table, triggers]));
  for (const { table } of MACHINES) {
    if (table === null) continue;
    expect(triggersOf.get(table)).toEqual(
      expect.arrayContaining(['birth', 'guard', 'kept', 'moved'].map((part) => `${table}_${part}`)),
    );
  }
});
