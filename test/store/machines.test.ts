// Every state × every event through the store, on real rows of the five machines that the database guards.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allowedEvents, nextState } from '../../src/domain/machine.js';
import { MACHINES } from '../../src/domain/machines.js';
import { AppError } from '../../src/errors.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { fire, makeRowIn, seedWorld, type World } from '../support/fixtures.js';
import { faultOf, pictureOf, statusOf } from './rows.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

const guarded = MACHINES.filter(({ table }) => table !== null);

test('five machines are guarded', () => {
  expect(guarded.map(({ name }) => name)).toEqual([
    'rule_run',
    'rule_target',
    'pipeline_run',
    'partition',
    'ops_run',
  ]);
});

describe.each(guarded.map((machine) => ({ name: machine.name, machine })))('$name', ({ machine }) => {
  const cases = machine.states.flatMap((state) =>
    Object.keys(machine.events).map((event) => ({ state, event, to: nextState(machine, state, event) })),
  );

  test.each(cases.filter(({ to }) => to !== null))(
    '$event moves $state to $to',
    async ({ state, event, to }) => {
      const { db } = database;
      const row = await makeRowIn(db, world.home, machine, state);
      const before = await pictureOf(db, row);
      expect(await fire(db, row, event, 'someone')).toBe(state);
      const after = await pictureOf(db, row);
      expect(await statusOf(db, row)).toBe(to);
      const added = after.lines.slice(before.lines.length);
      expect(added).toHaveLength(1);
      expect(added[0]).toMatchObject({
        seq: before.lines.length + 1,
        type: `${machine.name}.${event}`,
        payload: { from: state, to },
        actor: 'someone',
      });
      expect(after.run['last_seq']).toBe(before.lines.length + 1);
      expect(after.lines.slice(0, -1)).toEqual(before.lines);
    },
  );

  test.each(cases.filter(({ to }) => to === null))(
    '$event is refused in $state',
    async ({ state, event }) => {
      const { db } = database;
      const row = await makeRowIn(db, world.home, machine, state);
      const before = await pictureOf(db, row);
      const fault = await faultOf(fire(db, row, event));
      expect(fault).toBeInstanceOf(AppError);
      expect(fault).toMatchObject({
        code: 'ILLEGAL_TRANSITION',
        details: {
          machine: machine.name,
          event,
          from: state.toUpperCase(),
          allowed: allowedEvents(machine, state),
        },
      });
      expect(await pictureOf(db, row)).toEqual(before);
    },
  );

  test('a row of another tenant is not found', async () => {
    const { db } = database;
    const row = await makeRowIn(db, world.other, machine, machine.initial);
    const before = await pictureOf(db, row);
    const event = allowedEvents(machine, machine.initial)[0]!;
    const fault = await faultOf(fire(db, { ...row, tenantId: 'default' }, event));
    expect(fault).toMatchObject({ code: 'NOT_FOUND' });
    expect(await pictureOf(db, row)).toEqual(before);
  });
});
