// Progress: the newest state, not too often, never an older one, and always the last one.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { RunFeed } from '../../src/events/feed.js';
import type { RunRow } from '../../src/events/run-row.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { Database } from '../../src/store/db.js';
import { findRuleRun } from '../../src/store/rule-run-row.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { fire, makeRow, makeRuleRun, seedWorld, type MachineRow, type World } from '../support/fixtures.js';
import { DatabaseProxy } from './database-proxy.js';
import { appendLines, cutListeners, FakeListener, silentLog, take, useFeeds } from './support.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

const start = useFeeds(() => database);

const newRun = (): Promise<MachineRow> => makeRow(database.db, world.home, ruleRunMachine);

const rowOf = ({ id }: { readonly id: string }): MachineRow => ({
  machine: ruleRunMachine,
  tenantId: 'default',
  id,
  runId: id,
});

/** Every state up to the one that the run ends in. */
async function statesUntil(states: AsyncIterableIterator<RunRow>, status: string): Promise<RunRow[]> {
  const seen = [await take(states)];
  while (seen.at(-1)!.run.status !== status) seen.push(await take(states));
  return seen;
}

function expectRising(states: readonly RunRow[]): void {
  const seqs = states.map(({ run }) => run.lastSeq);
  expect(seqs).toEqual([...new Set(seqs)].sort((a, b) => a - b));
}

test('the state now, then each change, then the final one', async () => {
  const { feed } = await start({ progressIntervalMs: 1 });
  const row = await newRun();
  const states = await feed.runProgress(world.home.viewer, 'RULE', row.id);
  expect((await take(states)).run).toEqual(await findRuleRun(database.db, world.home.viewer, row.id));
  for (const [event, status] of [
    ['queue', 'QUEUED'],
    ['start', 'APPLYING'],
    ['cancel', 'CANCELLED'],
  ] as const) {
    await fire(database.db, row, event);
    expect((await take(states)).run.status).toBe(status);
  }
});

test('a crowd of changes is shown in few states, in order, with the last', async () => {
  const intervalMs = 200;
  const { feed } = await start({ progressIntervalMs: intervalMs });
  const row = await newRun();
  const began = performance.now();
  const watching = statesUntil(await feed.runProgress(world.home.viewer, 'RULE', row.id), 'CANCELLED');
  await appendLines(database.db, row.id, 400);
  await fire(database.db, row, 'queue');
  await fire(database.db, row, 'cancel');
  const states = await watching;
  // One at once, one per interval, one for the end.
  expect(states.length).toBeLessThanOrEqual((performance.now() - began) / intervalMs + 2);
  expectRising(states);
  expect(states.at(-1)!.run).toEqual(await findRuleRun(database.db, world.home.viewer, row.id));
});

test('the final state comes even right behind the one before, for each of many runs', async () => {
  const { feed } = await start({ progressIntervalMs: 50 });
  const rows = await Promise.all(Array.from({ length: 30 }, newRun));
  const watching = await Promise.all(
    rows.map(async ({ id }) => ({
      states: statesUntil(await feed.runProgress(world.home.viewer, 'RULE', id), 'CANCELLED'),
    })),
  );
  await Promise.all(
    rows.map(async (row) => {
      await fire(database.db, row, 'queue');
      await fire(database.db, row, 'start');
      await fire(database.db, row, 'cancel');
    }),
  );
  for (const { states } of watching) expectRising(await states);
});

test('watchers of a run share its states; who does not read gets only the newest', async () => {
  const { feed } = await start({ progressIntervalMs: 1 });
  const row = await newRun();
  const { viewer } = world.home;
  const watchers = await Promise.all([1, 2, 3].map(() => feed.runProgress(viewer, 'RULE', row.id)));
  const lazy = await feed.runProgress({ ...viewer, role: 'VIEWER' }, 'RULE', row.id);
  for (const event of ['queue', 'start', 'cancel']) {
    await fire(database.db, row, event);
    const states = await Promise.all(watchers.map((states) => statesUntil(states, stateAfter(event))));
    expect(new Set(states.map((seen) => seen.at(-1))).size).toBe(1);
    if (event !== 'cancel') continue;
    expect(await take(lazy)).toEqual(states[0]!.at(-1));
  }

  function stateAfter(event: string): string {
    return ruleRunMachine.events[event as 'queue'].to;
  }
});

test('whoever comes is shown what was read for them, also of a run that stays as it is', async () => {
  const { feed } = await start({ progressIntervalMs: 1 });
  const row = await newRun();
  const open = () => feed.runProgress(world.home.viewer, 'RULE', row.id);
  const early = await open();
  const first = await take(early);
  const late = await open();
  const shown = await take(late);
  expect(shown).toEqual(first);
  expect(shown).not.toBe(first);
  await fire(database.db, row, 'queue');
  const next = await Promise.all([early, late].map(take));
  expect(next[0]!.run.status).toBe('QUEUED');
  expect(new Set(next).size).toBe(1);
});

test('a change while the listener is away is shown when it is back', async () => {
  const { feed } = await start({ progressIntervalMs: 1, backstopMs: 1_000_000 });
  const row = await newRun();
  const states = await feed.runProgress(world.home.viewer, 'RULE', row.id);
  await take(states);
  await cutListeners(database.db);
  await fire(database.db, row, 'queue');
  expect((await take(states)).run.status).toBe('QUEUED');
});

test('a lost bell is made up for by looking now and then', async () => {
  const deaf = { onBell: () => () => {}, onReconnect: () => () => {} };
  const feed = new RunFeed(database.db, deaf, { log: silentLog, backstopMs: 20, progressIntervalMs: 1 });
  try {
    const row = await newRun();
    const states = await feed.runProgress(world.home.viewer, 'RULE', row.id);
    await take(states);
    await fire(database.db, row, 'queue');
    expect((await take(states)).run.status).toBe('QUEUED');
  } finally {
    feed.stop();
  }
});

test('a bell while the database refuses connections: all are shown the change when it is back', async () => {
  const network = await DatabaseProxy.start(database.url);
  const db = new Database({ url: network.url });
  const bell = new FakeListener();
  const feed = new RunFeed(db, bell, { log: silentLog, backstopMs: 1_000_000, progressIntervalMs: 1 });
  try {
    const filter = { projectId: 'refused' };
    const row = rowOf(await makeRuleRun(database.db, world.home, { targets: [], ...filter }));
    const states = await feed.runProgress(world.home.viewer, 'RULE', row.id);
    const board = feed.runChanges(world.home.viewer, filter);
    const all = [states, board];
    for (const each of all) expect((await take(each)).run.status).toBe('PREVIEW');
    await network.refuse();
    await fire(database.db, row, 'cancel');
    bell.ring({ kind: 'RULE', id: row.id, seq: 2, tenantId: 'default' });
    const next = Promise.all(all.map(take));
    await expect(db.ping()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    await network.accept();
    for (const { run } of await next) expect(run.status).toBe('CANCELLED');
  } finally {
    feed.stop();
    await db.close();
    await network.stop();
  }
});

test('refused: unknown and foreign runs, and a run of another kind', async () => {
  const { feed } = await start();
  const { viewer } = world.home;
  const foreign = await makeRuleRun(database.db, world.other);
  for (const id of ['01900000-0000-7000-8000-000000000000', foreign.id, 'no-uuid']) {
    await expect(feed.runProgress(viewer, 'RULE', id)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  }
  const row = await newRun();
  await expect(feed.runProgress(viewer, 'OPS', row.id)).rejects.toMatchObject({ code: 'NOT_FOUND' });
});

test('whoever comes is shown the run at once, also right behind others; who was there waits its turn', async () => {
  const { feed } = await start({ progressIntervalMs: 1_000_000 });
  const row = await newRun();
  const open = (): Promise<AsyncIterableIterator<RunRow>> =>
    feed.runProgress(world.home.viewer, 'RULE', row.id);
  const early = await open();
  await take(early);
  for (const [event, status] of [
    ['queue', 'QUEUED'],
    ['start', 'APPLYING'],
  ] as const) {
    await fire(database.db, row, event);
    const late = await open();
    expect((await take(late)).run.status).toBe(status);
    await late.return!();
  }
  const board = feed.runChanges(world.home.viewer, {});
  while ((await take(board)).run.id !== row.id);
  const next = early.next();
  expect(
    await Promise.race([
      next,
      open()
        .then(take)
        .then(() => 'nothing'),
    ]),
  ).toBe('nothing');
});

test('what changed without a line of the ledger, and whose bell was lost, is shown at the next look', async () => {
  const bell = new FakeListener();
  const feed = new RunFeed(database.db, bell, {
    log: silentLog,
    backstopMs: 1_000_000,
    progressIntervalMs: 1,
  });
  try {
    const row = await makeRow(database.db, world.home, pipelineRunMachine);
    const states = await feed.runProgress(world.home.viewer, 'PIPELINE', row.id);
    const { lastSeq } = (await take(states)).run;
    await database.db.query('UPDATE run_metadata SET records_consolidated = 7 WHERE run_id = $1', [row.id]);
    const next = take(states);
    await feed.lookAgain();
    expect((await next).run).toMatchObject({ recordsConsolidated: 7, lastSeq });
  } finally {
    feed.stop();
  }
});
