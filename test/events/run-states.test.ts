// Who is shown which row: those who come while a run is read, and those beside whom a bell was forged.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RunRow } from '../../src/events/run-row.js';
import { RunStates } from '../../src/events/run-states.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRuleRun, seedWorld, type World } from '../support/fixtures.js';
import { appendLines, startFeed, take } from './support.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

test('a board that comes while a run is read is shown what is read for it, and nothing older', async () => {
  const run = { kind: 'RULE', id: 'r', tenantId: 't' } as const;
  const rowAt = (lastSeq: number) =>
    new Map([['r', { kind: 'RULE', run: { id: 'r', lastSeq, projectId: 'p' } } as RunRow]]);
  let answer = (_: ReturnType<typeof rowAt>): void => {};
  let begun = (): void => {};
  const firstRead = new Promise<void>((resolve) => (begun = resolve));
  const slowRead = () => new Promise<ReturnType<typeof rowAt>>((resolve) => (answer = resolve));
  let count = 0;
  const states = new RunStates(
    {
      findRows: () => {
        begun();
        count += 1;
        return count === 1 ? slowRead() : Promise.resolve(rowAt(10));
      },
      findActive: async () => [],
    },
    { intervalMs: 1, maxUnreadRuns: 10 },
  );
  const early = states.board('t', {});
  states.hear(run);
  await firstRead;
  // Its client has listed the runs a moment ago, and has seen seq 10.
  const late = take(states.board('t', {}));
  answer(rowAt(9));
  expect((await take(early)).run.lastSeq).toBe(9);
  states.hear(run);
  expect((await take(early)).run.lastSeq).toBe(10);
  expect((await late).run.lastSeq).toBe(10);
  states.stop();
});

test('a bell that names another tenant or kind keeps nothing from those whose run it is', async () => {
  const { feed, stop } = await startFeed(database, { progressIntervalMs: 1 });
  try {
    const { home, other } = world;
    const foreign = feed.runChanges(other.viewer, {});
    const theirs = await makeRuleRun(database.db, other, { targets: [] });
    expect((await take(foreign)).run.id).toBe(theirs.id);
    const mine = await makeRuleRun(database.db, home, { targets: [] });
    const forge = (id: string, bell: object): Promise<unknown> =>
      database.db.query(`SELECT pg_notify('runledger', $1)`, [
        JSON.stringify({ id, seq: 1, at: 0, ...bell }),
      ]);
    await forge(mine.id, { kind: 'RULE', tenant: other.viewer.tenantId });
    await forge(theirs.id, { kind: 'OPS', tenant: other.viewer.tenantId });
    // Bells come in order: what is shown now was rung after them.
    const next = await makeRuleRun(database.db, other, { targets: [] });
    expect((await take(foreign)).run.id).toBe(next.id);
    for (const [viewer, { id }] of [
      [home.viewer, mine],
      [other.viewer, theirs],
    ] as const) {
      const states = await feed.runProgress(viewer, 'RULE', id);
      expect((await take(states)).run.id).toBe(id);
      await appendLines(database.db, id, 1);
      expect((await take(states)).run.lastSeq).toBe(2);
    }
  } finally {
    await stop();
  }
});
