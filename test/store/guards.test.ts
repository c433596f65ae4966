// The guards, met by raw SQL as psql or another tool would: every pair of states by UPDATE, batches with one
// illegal row, rows born elsewhere than in the initial state, and attempts to get round them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { listTransitions, type Machine } from '../../src/domain/machine.js';
import { MACHINES } from '../../src/domain/machines.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { ruleTargetMachine } from '../../src/domain/rule-target.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRowIn, neededColumns, seedWorld, type MachineRow, type World } from '../support/fixtures.js';
import { expectInvariants } from './invariants.js';
import { countRows, pictureOf, sqlFaultOf, statusOf } from './rows.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

const guarded = MACHINES.filter(({ table }) => table !== null);

function make(machine: Machine, state: string): Promise<MachineRow> {
  return makeRowIn(database.db, world.home, machine, state);
}

/** One UPDATE of all the rows, with everything that a CHECK would ask for, so that only the guard can refuse. */
function update(rows: readonly MachineRow[], to: string): Promise<unknown> {
  const { machine } = rows[0]!;
  const columns = Object.entries({ ...neededColumns(machine, to), status: to });
  const key = machine.table === 'run_metadata' ? 'run_id' : 'id';
  const assignments = columns.map(([column], index) => `${column} = $${index + 2}`);
  return database.db.query(
    `UPDATE ${machine.table} SET ${assignments.join(', ')} WHERE ${key}::text = ANY($1::text[])`,
    [rows.map(({ id }) => id), ...columns.map(([, value]) => value)],
  );
}

/** A copy of a row with other values, inserted as it is. */
function insertCopy(row: MachineRow, values: Record<string, unknown>): Promise<unknown> {
  const { table } = row.machine;
  const key = table === 'run_metadata' ? 'run_id' : 'id';
  return database.db.query(
    `INSERT INTO ${table} SELECT (jsonb_populate_record(t, $2::jsonb)).* FROM ${table} t WHERE ${key}::text = $1`,
    [row.id, JSON.stringify(values)],
  );
}

const newKeys: Readonly<Record<string, () => Record<string, unknown>>> = {
  rule_run: () => ({ id: crypto.randomUUID() }),
  rule_target: () => ({ id: Math.floor(Math.random() * 2 ** 50), external_id: crypto.randomUUID() }),
  pipeline_run: () => ({ run_id: crypto.randomUUID() }),
  partition: () => ({ id: crypto.randomUUID(), partition_id: crypto.randomUUID() }),
  ops_run: () => ({ id: crypto.randomUUID(), idempotency_key: crypto.randomUUID() }),
};

describe.each(guarded.map((machine) => ({ name: machine.name, machine })))('$name', ({ machine }) => {
  const pairs = machine.states.flatMap((from) => machine.states.map((to) => ({ from, to })));
  const eventOf = (from: string, to: string) =>
    listTransitions(machine).find((step) => step.from === from && step.to === to)?.event;
  const allowed = pairs.filter(({ from, to }) => eventOf(from, to));
  const forbidden = pairs.filter(({ from, to }) => from !== to && !eventOf(from, to));

  test.each(allowed)('UPDATE from $from to $to writes one line', async ({ from, to }) => {
    const row = await make(machine, from);
    const before = await pictureOf(database.db, row);
    await update([row], to);
    const after = await pictureOf(database.db, row);
    expect(await statusOf(database.db, row)).toBe(to);
    expect(after.lines.slice(before.lines.length)).toMatchObject([
      { seq: before.lines.length + 1, type: `${machine.name}.${eventOf(from, to)}`, payload: { from, to } },
    ]);
    expect(after.run['last_seq']).toBe(before.lines.length + 1);
  });

  test.each([...forbidden, { from: machine.initial, to: 'NONSENSE' }])(
    'UPDATE from $from to $to is refused',
    async ({ from, to }) => {
      const row = await make(machine, from);
      const before = await pictureOf(database.db, row);
      const { code, message } = await sqlFaultOf(update([row], to));
      expect(code).toBe('RL001');
      expect(message).toBe(`${machine.name}: no transition from ${from} to ${to}`);
      expect(await pictureOf(database.db, row)).toEqual(before);
    },
  );

  test('an UPDATE that leaves the status as it is writes no line', async () => {
    for (const state of machine.states) {
      const row = await make(machine, state);
      const before = await pictureOf(database.db, row);
      await update([row], state);
      expect((await pictureOf(database.db, row)).lines).toEqual(before.lines);
    }
  });

  test('one illegal row in a batch refuses all of it', async () => {
    const { from, to } = allowed[0]!;
    const wrong = forbidden.find((pair) => pair.to === to)!;
    const rows = [await make(machine, from), await make(machine, wrong.from), await make(machine, from)];
    const before = await Promise.all(rows.map((row) => pictureOf(database.db, row)));
    expect((await sqlFaultOf(update(rows, to))).code).toBe('RL001');
    expect(await Promise.all(rows.map((row) => pictureOf(database.db, row)))).toEqual(before);
    const legal = [rows[0]!, rows[2]!];
    await update(legal, to);
    for (const row of legal) expect(await statusOf(database.db, row)).toBe(to);
  });

  test.each(machine.states.filter((state) => state !== machine.initial))(
    'no row is born %s',
    async (state) => {
      const row = await make(machine, machine.initial);
      const before = await countRows(database.db);
      const values = { ...newKeys[machine.name]!(), ...neededColumns(machine, state), status: state };
      const { code, message } = await sqlFaultOf(insertCopy(row, values));
      expect({ code, message }).toEqual({
        code: 'RL002',
        message: `${machine.name}: a new row is ${machine.initial}, not ${state}`,
      });
      expect(await countRows(database.db)).toEqual(before);
    },
  );

  test('a copy in the initial state is born', async () => {
    const row = await make(machine, machine.initial);
    await insertCopy(row, newKeys[machine.name]!());
  });

  test('an upsert meets the same guard', async () => {
    const row = await make(machine, machine.initial);
    const before = await pictureOf(database.db, row);
    const to = forbidden.find(({ from }) => from === machine.initial)!.to;
    const key = machine.table === 'run_metadata' ? 'run_id' : 'id';
    const upsert = database.db.query(
      `INSERT INTO ${machine.table} SELECT * FROM ${machine.table} WHERE ${key}::text = $1
       ON CONFLICT (${key}) DO UPDATE SET status = $2`,
      [row.id, to],
    );
    expect((await sqlFaultOf(upsert)).code).toBe('RL001');
    expect(await pictureOf(database.db, row)).toEqual(before);
  });

  test.each(['DELETE FROM', 'TRUNCATE'])('%s is refused', async (verb) => {
    const row = await make(machine, machine.initial);
    const before = await countRows(database.db);
    const cascade = verb === 'TRUNCATE' ? ' CASCADE' : '';
    expect((await sqlFaultOf(database.db.query(`${verb} ${machine.table}${cascade}`))).code).toBe('RL003');
    expect(await countRows(database.db)).toEqual(before);
    expect(await statusOf(database.db, row)).toBe(machine.initial);
  });

  test('a forged previous status moves nothing and counts nothing', async () => {
    const { from, to } = allowed[0]!;
    const row = await make(machine, to);
    // Any plain UPDATE clears the stamp of the real move.
    await update([row], to);
    const before = await pictureOf(database.db, row);
    const key = machine.table === 'run_metadata' ? 'run_id' : 'id';
    await database.db.query(`UPDATE ${machine.table} SET status_from = $2 WHERE ${key}::text = $1`, [
      row.id,
      from,
    ]);
    const after = await pictureOf(database.db, row);
    expect(after.lines).toEqual(before.lines);
    expect(after.run['last_seq']).toBe(before.run['last_seq']);
    if (machine.name.startsWith('rule_')) await expectInvariants(database.db, row.runId);
  });
});

test.each(ruleRunMachine.states.filter((state) => state !== 'PREVIEW'))(
  'a %s run takes no targets',
  async (state) => {
    const row = await make(ruleRunMachine, state);
    const before = await pictureOf(database.db, row);
    const insert = database.db.query(
      `INSERT INTO rule_target (run_id, tenant_id, external_id, currency, before_amount, after_amount)
       VALUES ($1, 'default', 'late', 'EUR', 1, 2)`,
      [row.id],
    );
    expect((await sqlFaultOf(insert)).code).toBe('RL002');
    expect(await pictureOf(database.db, row)).toEqual(before);
  },
);

// The guard is not called for a claim or a success that is stamped as it would stamp it: nothing else gets past.
describe('a target that the writer stamps itself', () => {
  const STAMPED = `status_from = status, next_attempt_at = NULL, error_code = NULL, error_message = NULL,
    applied_at = clock_timestamp()`;
  const LEASE = `lease_owner = 'w', lease_until = clock_timestamp() + interval '1 minute', lease_epoch = 7`;
  const NO_LEASE = 'lease_owner = NULL, lease_until = NULL, lease_epoch = NULL';

  function stamp({ id }: MachineRow, to: string): Promise<unknown> {
    const lease = to === 'APPLYING' ? LEASE : NO_LEASE;
    return database.db.query(`UPDATE rule_target SET status = $2, ${STAMPED}, ${lease} WHERE id::text = $1`, [
      id,
      to,
    ]);
  }

  const { states } = ruleTargetMachine;
  const steps = listTransitions(ruleTargetMachine);
  const isAllowed = (from: string, to: string) => steps.some((step) => step.from === from && step.to === to);
  const forbidden = states.flatMap((from) =>
    states.filter((to) => to !== from && !isAllowed(from, to)).map((to) => ({ from, to })),
  );

  test.each(forbidden)('goes from $from to $to no more than any other', async ({ from, to }) => {
    const row = await make(ruleTargetMachine, from);
    const before = await pictureOf(database.db, row);
    expect((await sqlFaultOf(stamp(row, to))).code).toBe('RL001');
    expect(await pictureOf(database.db, row)).toEqual(before);
  });

  test.each(steps)('has its line when it goes from $from to $to', async ({ event, from, to }) => {
    const row = await make(ruleTargetMachine, from);
    const before = await pictureOf(database.db, row);
    await stamp(row, to);
    const { lines } = await pictureOf(database.db, row);
    expect(lines.slice(before.lines.length)).toMatchObject([
      { type: `rule_target.${event}`, payload: { from, to } },
    ]);
    await expectInvariants(database.db, row.runId);
  });

  test.each([
    ['the day before', `applied_at = now() - interval '1 day'`],
    ['the day after', `applied_at = now() + interval '1 day'`],
    ['no time', 'applied_at = NULL'],
  ])('was applied at the time it was, not %s', async (_, forged) => {
    const row = await make(ruleTargetMachine, 'APPLYING');
    const [begin] = await database.db.query<{ at: Date }>('SELECT clock_timestamp() AS at');
    await database.db.query(
      `UPDATE rule_target SET status = 'APPLIED', status_from = status, ${NO_LEASE}, ${forged} WHERE id::text = $1`,
      [row.id],
    );
    const [target] = await database.db.query<{ at: Date; end: Date }>(
      'SELECT applied_at AS at, clock_timestamp() AS end FROM rule_target WHERE id::text = $1',
      [row.id],
    );
    expect(target!.at >= begin!.at && target!.at <= target!.end).toBe(true);
  });
});
