// Progress and boards: the newest state, not too often, never an older one, and always the last one.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { RunFeed } from '../../src/events/feed.js';
import type { RunRow } from '../../src/events/run-row.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { findRuleRun } from '../../src/store/rule-run-row.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { fire, makeRow, makeRuleRun, seedWorld, type MachineRow, type World } from '../support/fixtures.js';
import { appendLines, cutListeners, silentLog, startFeed, take, type Live } from './support.js';

let database: TestDatabase;
let world: World;
const open: Live[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((live) => live.stop()));
});
afterAll(() => database.drop());

async function start(...options: Parameters<typeof startFeed>[1][]): Promise<Live> {
  const live = await startFeed(database, ...options);
  open.push(live);
  return live;
}

const newRun = (): Promise<MachineRow> => makeRow(database.db, world.home, ruleRunMachine);

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
    expect(await take(lazy)).toBe(states[0]!.at(-1));
  }

  function stateAfter(event: string): string {
    return ruleRunMachine.events[event as 'queue'].to;
  }
});

test('one who joins a watched run is shown what it could already know of, and nothing older', async () => {
  const { feed } = await start({ progressIntervalMs: 300 });
  const row = await newRun();
  const early = await feed.runProgress(world.home.viewer, 'RULE', row.id);
  await take(early);
  await fire(database.db, row, 'queue');
  const late = await feed.runProgress(world.home.viewer, 'RULE', row.id);
  expect((await take(late)).run.status).toBe('QUEUED');
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

test('a board shows the changed runs of its tenant, kind and project, and no others', async () => {
  const { feed } = await start({ progressIntervalMs: 1 });
  const { viewer } = world.home;
  const boards = {
    all: feed.runChanges(viewer, {}),
    rules: feed.runChanges(viewer, { kind: 'RULE' }),
    ops: feed.runChanges(viewer, { kind: 'OPS' }),
    project: feed.runChanges(viewer, { projectId: 'winter' }),
  };
  await makeRuleRun(database.db, world.other, { targets: [] });
  const summer = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'summer' });
  const winter = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'winter' });
  for (const board of [boards.all, boards.rules]) {
    const shown = [(await take(board)).run.id, (await take(board)).run.id];
    expect(shown.sort()).toEqual([summer.id, winter.id].sort());
  }
  expect((await take(boards.project)).run.id).toBe(winter.id);
  const waiting = boards.ops.next();
  await boards.ops.return!();
  expect(await waiting).toEqual({ done: true, value: undefined });
});

test('a board is shown what changed while the listener was away, and only that', async () => {
  const { feed, listener } = await start({ progressIntervalMs: 1, backstopMs: 1_000_000 });
  const board = feed.runChanges(world.home.viewer, { projectId: 'away' });
  const known = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'away' });
  expect((await take(board)).run.id).toBe(known.id);
  const back = new Promise<void>((resolve) => listener.onReconnect(resolve));
  await cutListeners(database.db);
  const missed = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'away' });
  await back;
  expect((await take(board)).run.id).toBe(missed.id);
  const last = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'away' });
  expect((await take(board)).run.id).toBe(last.id);
});

test('a board that hears no bells at all is shown each change once', async () => {
  const deaf = { onBell: () => () => {}, onReconnect: () => () => {} };
  const feed = new RunFeed(database.db, deaf, { log: silentLog, backstopMs: 20, progressIntervalMs: 1 });
  try {
    const board = feed.runChanges(world.home.viewer, { projectId: 'deaf' });
    for (let round = 0; round < 3; round += 1) {
      const { id } = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'deaf' });
      expect((await take(board)).run.id).toBe(id);
    }
  } finally {
    feed.stop();
  }
});

test('a board that is not read keeps one state per run, and is closed when there are too many', async () => {
  const { feed } = await start({ progressIntervalMs: 1, maxUnreadRuns: 500 });
  const board = feed.runChanges(world.home.viewer, { projectId: 'crowd' });
  const follower = feed.runChanges(world.home.viewer, { projectId: 'crowd' });
  const row = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'crowd' });
  await appendLines(database.db, row.id, 20);
  while ((await take(follower)).run.lastSeq < 21);
  expect((await take(board)).run.lastSeq).toBe(21);
  await database.db.query(
    `INSERT INTO rule_run (id, tenant_id, project_id, channel_id, actor, correlation_id)
     SELECT gen_random_uuid(), 'default', 'crowd', $1, 'test', n::text FROM generate_series(1, 501) n`,
    [world.home.channelId],
  );
  for (let shown = 0; shown < 501; shown += 1) await take(follower);
  await expect(board.next()).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' });
  expect(await board.next()).toEqual({ done: true, value: undefined });
});
