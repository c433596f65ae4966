// Boards: the runs that are under way, then every one that changes, each change once.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { RunFeed } from '../../src/events/feed.js';
import type { RunRow } from '../../src/events/run-row.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import type { Database } from '../../src/store/db.js';
import { until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { fire, makeRuleRun, seedWorld, type MachineRow, type World } from '../support/fixtures.js';
import { appendLines, cutListeners, FakeListener, silentLog, take, useFeeds } from './support.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

const start = useFeeds(() => database);

const rowOf = ({ id }: { readonly id: string }): MachineRow => ({
  machine: ruleRunMachine,
  tenantId: 'default',
  id,
  runId: id,
});

test('a change that cannot be read ends boards too: they must not miss it without a word', async () => {
  const bell = new FakeListener();
  const broken = Object.create(database.db) as Database;
  broken.query = (text, values) => database.db.query(text, values);
  const feed = new RunFeed(broken, bell, { log: silentLog, progressIntervalMs: 1 });
  try {
    const filter = { projectId: 'broken' };
    const { id } = await makeRuleRun(database.db, world.home, { targets: [], ...filter });
    const states = await feed.runProgress(world.home.viewer, 'RULE', id);
    const board = feed.runChanges(world.home.viewer, filter);
    for (const each of [states, board]) expect((await take(each)).run.id).toBe(id);
    Object.defineProperty(broken, 'prisma', { value: null });
    bell.ring({ kind: 'RULE', id, seq: 2, tenantId: 'default' });
    for (const each of [states, board]) await expect(each.next()).rejects.toThrow(TypeError);
  } finally {
    feed.stop();
  }
});

/** What comes until each of the runs has been shown; answers the ids. */
async function idsUntil(board: AsyncIterableIterator<RunRow>, ids: readonly string[]): Promise<string[]> {
  const seen: string[] = [];
  while (!ids.every((id) => seen.includes(id))) seen.push((await take(board)).run.id);
  return seen;
}

test('a board shows the changed runs of its tenant, kind and project, and no others', async () => {
  const { feed } = await start({ progressIntervalMs: 1 });
  const { viewer } = world.home;
  const boards = {
    all: feed.runChanges(viewer, {}),
    rules: feed.runChanges(viewer, { kind: 'RULE' }),
    ops: feed.runChanges(viewer, { kind: 'OPS' }),
    project: feed.runChanges(viewer, { projectId: 'winter' }),
  };
  const foreign = await makeRuleRun(database.db, world.other, { targets: [] });
  const summer = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'summer' });
  const winter = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'winter' });
  for (const board of [boards.all, boards.rules]) {
    expect(await idsUntil(board, [summer.id, winter.id])).not.toContain(foreign.id);
  }
  expect((await take(boards.project)).run.id).toBe(winter.id);
  const waiting = boards.ops.next();
  await boards.ops.return!();
  expect(await waiting).toEqual({ done: true, value: undefined });
});

test('a board begins with the runs that are under way, the newest of them, each once', async () => {
  const { feed } = await start({ progressIntervalMs: 1 });
  const filter = { projectId: 'under way' };
  const make = async () => rowOf(await makeRuleRun(database.db, world.home, { targets: [], ...filter }));
  const [active, ended, rolledBack] = [await make(), await make(), await make()];
  await fire(database.db, ended, 'cancel');
  for (const event of ['queue', 'start', 'complete']) await fire(database.db, rolledBack, event);
  await database.db.query(
    `UPDATE rule_run SET rolling_back = true, rollback_asked_at = now(), rollback_on_conflict = 'SKIP'
     WHERE id = $1`,
    [rolledBack.id],
  );
  for (let round = 0; round < 2; round += 1) {
    const board = feed.runChanges(world.home.viewer, filter);
    const shown = [await take(board), await take(board)];
    expect(shown.map(({ run }) => run.id).sort()).toEqual([active.id, rolledBack.id].sort());
    await board.return!();
  }
  await database.db.query(
    `INSERT INTO rule_run (id, tenant_id, project_id, channel_id, actor, correlation_id)
     SELECT gen_random_uuid(), 'default', 'under way', $1, 'test', n::text FROM generate_series(1, 100) n`,
    [world.home.channelId],
  );
  const board = feed.runChanges(world.home.viewer, filter);
  const newest = await Promise.all(Array.from({ length: 100 }, () => take(board)));
  expect(newest.map(({ run }) => run.id)).not.toContain(active.id);
  await fire(database.db, active, 'queue');
  expect((await take(board)).run).toMatchObject({ id: active.id, status: 'QUEUED' });
});

test('boards that come at once share one look at what is under way; who comes later has one of their own', async () => {
  const counted = Object.create(database.db) as Database;
  let looks = 0;
  counted.query = (text, values) => {
    if (text.includes('rolling_back')) looks += 1;
    return database.db.query(text, values);
  };
  const feed = new RunFeed(counted, new FakeListener(), { log: silentLog });
  try {
    const come = (count: number, filter: { projectId: string }) =>
      Array.from({ length: count }, () => feed.runChanges(world.home.viewer, filter));
    for (const projectId of ['rush hour', 'other hour']) {
      await makeRuleRun(database.db, world.home, { targets: [], projectId });
      await Promise.all(come(20, { projectId }).map(take));
    }
    expect(looks).toBe(2);
    const { id } = await makeRuleRun(database.db, world.home, { targets: [], projectId: 'rush hour' });
    expect(await idsUntil(come(1, { projectId: 'rush hour' })[0]!, [id])).toContain(id);
    expect(looks).toBe(3);
  } finally {
    feed.stop();
  }
});

test('a board is not shown a run again because somebody comes to watch it', async () => {
  const { feed } = await start({ progressIntervalMs: 1 });
  const filter = { projectId: 'visited' };
  const board = feed.runChanges(world.home.viewer, filter);
  const row = rowOf(await makeRuleRun(database.db, world.home, { targets: [], ...filter }));
  expect((await take(board)).run.status).toBe('PREVIEW');
  for (let visit = 0; visit < 3; visit += 1) {
    const states = await feed.runProgress(world.home.viewer, 'RULE', row.id);
    expect((await take(states)).run.status).toBe('PREVIEW');
    await states.return!();
  }
  await fire(database.db, row, 'queue');
  expect((await take(board)).run.status).toBe('QUEUED');
});

test('a board that comes is shown what is read for it, and once', async () => {
  const { feed } = await start({ progressIntervalMs: 1 });
  const filter = { projectId: 'read anew' };
  const row = rowOf(await makeRuleRun(database.db, world.home, { targets: [], ...filter }));
  const early = feed.runChanges(world.home.viewer, filter);
  const first = await take(early);
  const late = feed.runChanges(world.home.viewer, filter);
  const shown = await take(late);
  expect(shown).toEqual(first);
  expect(shown).not.toBe(first);
  // Nothing came between: neither for those who were there, nor once more for those who came.
  await fire(database.db, row, 'queue');
  const next = await Promise.all([early, late].map(take));
  expect(next.map(({ run }) => run.status)).toEqual(['QUEUED', 'QUEUED']);
  expect(new Set(next).size).toBe(1);
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

test('a board is shown what changed while the listener was away, also when bells come again before the look', async () => {
  const bell = new FakeListener();
  const gated = Object.create(database.db) as Database;
  let letThrough = (): void => {};
  const passed = new Promise<void>((resolve) => (letThrough = resolve));
  const reached = new Promise<void>((resolve) => {
    gated.query = async (text, values) => {
      resolve();
      if (text.includes('max(seq)')) await passed;
      return database.db.query(text, values) as never;
    };
  });
  const options = { progressIntervalMs: 1, backstopMs: 1, longestTransactionMs: 50 };
  const feed = new RunFeed(gated, bell, { log: silentLog, ...options });
  try {
    const board = feed.runChanges(world.home.viewer, { projectId: 'partition' });
    const newRun = () => makeRuleRun(database.db, world.home, { targets: [], projectId: 'partition' });
    // A look that began while the database could not be reached, and does not end for long.
    void feed.lookAgain();
    await reached;
    const missed = await newRun();
    // Long before what a transaction may take.
    await until(
      () =>
        database.db.query(
          `SELECT FROM run_event WHERE run_id = $1 AND created_at < clock_timestamp() - interval '200 ms'`,
          [missed.id],
        ),
      (old) => old.length === 1,
    );
    bell.reconnect();
    const heard = await newRun();
    bell.ring({ kind: 'RULE', id: heard.id, seq: 1, tenantId: 'default' });
    expect((await take(board)).run.id).toBe(heard.id);
    letThrough();
    expect((await take(board)).run.id).toBe(missed.id);
  } finally {
    feed.stop();
  }
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
  await expect(board.next()).rejects.toMatchObject({
    code: 'RATE_LIMITED',
    details: { subscribeAgain: true },
  });
  expect(await board.next()).toEqual({ done: true, value: undefined });
});
