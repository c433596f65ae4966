// runEvents: what a subscriber gets is the ledger, whole and in order, whatever happens meanwhile.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { RunFeed } from '../../src/events/feed.js';
import type { Database } from '../../src/store/db.js';
import type { RunHead } from '../../src/store/run.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRow, makeRuleRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { publicRunId } from '../../src/domain/run.js';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import {
  appendEnd,
  appendLines,
  cutListeners,
  FakeListener,
  ledgerSeqs,
  readToEnd,
  silentLog,
  take,
  useFeeds,
} from './support.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

const start = useFeeds(() => database);

const newRun = async (): Promise<string> =>
  (await makeRuleRun(database.db, world.home, { targets: targetsOf(3) })).id;

test('replays the ledger from the cursor, then goes on with what is written', async () => {
  const { feed } = await start({ pageSize: 7 });
  const runId = await newRun();
  await appendLines(database.db, runId, 40);
  const ledger = await ledgerSeqs(database.db, runId);
  const fromStart = await feed.runEvents(world.home.viewer, runId, 0);
  const fromMiddle = await feed.runEvents(world.home.viewer, runId, 20);
  for (const seq of ledger) expect((await take(fromStart)).seq).toBe(seq);
  for (const seq of ledger.slice(20)) expect((await take(fromMiddle)).seq).toBe(seq);
  const next = take(fromStart);
  await appendLines(database.db, runId, 1);
  expect(await next).toMatchObject({ seq: ledger.length + 1, type: 'log', message: 'line 0', runId });
});

test('many readers, starting anywhere while lines are written, each get exactly the ledger', async () => {
  const { feed } = await start({ pageSize: 10 });
  const runId = await newRun();
  const writing = Array.from({ length: 4 }, () => appendLines(database.db, runId, 150));
  const readers = await Promise.all(
    Array.from({ length: 20 }, async (_, index) => {
      await appendLines(database.db, runId, index);
      const written = (await ledgerSeqs(database.db, runId)).length;
      const after = index % 3 === 0 ? 0 : Math.floor((written * index) / 20);
      return { after, seqs: readToEnd(await feed.runEvents(world.home.viewer, runId, after)) };
    }),
  );
  await Promise.all(writing);
  await appendEnd(database.db, runId);
  const ledger = await ledgerSeqs(database.db, runId);
  for (const { after, seqs } of readers) expect(await seqs).toEqual(ledger.slice(after));
});

test('the listener is cut again and again under write load: nothing missing, nothing twice', async () => {
  const { feed } = await start();
  const runId = await newRun();
  const readers = await Promise.all(
    [0, 0, 1].map(async (after) => {
      return { after, seqs: readToEnd(await feed.runEvents(world.home.viewer, runId, after)) };
    }),
  );
  for (let round = 0; round < 10; round += 1) {
    await Promise.all([appendLines(database.db, runId, 60), cutListeners(database.db)]);
  }
  await appendEnd(database.db, runId);
  const ledger = await ledgerSeqs(database.db, runId);
  for (const { after, seqs } of readers) expect(await seqs).toEqual(ledger.slice(after));
});

test('what is written while nobody hears is found on reconnection, without another bell', async () => {
  const { feed, listener } = await start({ backstopMs: 1_000_000 });
  const runId = await newRun();
  const events = await feed.runEvents(world.home.viewer, runId, 0);
  const back = new Promise<void>((resolve) => listener.onReconnect(resolve));
  await cutListeners(database.db);
  await appendLines(database.db, runId, 30);
  await appendEnd(database.db, runId);
  await back;
  expect(await readToEnd(events)).toEqual(await ledgerSeqs(database.db, runId));
});

test('a bell that never came is made up for by looking now and then', async () => {
  const deaf = { onBell: () => () => {}, onReconnect: () => () => {} };
  const feed = new RunFeed(database.db, deaf, { log: silentLog, backstopMs: 20 });
  try {
    const runId = await newRun();
    const seqs = readToEnd(await feed.runEvents(world.home.viewer, runId, 2));
    await appendLines(database.db, runId, 12);
    await appendEnd(database.db, runId);
    expect(await seqs).toEqual((await ledgerSeqs(database.db, runId)).slice(2));
  } finally {
    feed.stop();
  }
});

test('a line that comes between the look at the run and the first read is not waited for in vain', async () => {
  const runId = await newRun();
  const bell: { ring?: (head: RunHead) => void } = {};
  const listener = {
    onBell: (ring: (head: RunHead) => void) => {
      bell.ring = ring;
      return () => {};
    },
    onReconnect: () => () => {},
  };
  // The bell rings while the answer, already out of date, is on its way.
  const slow = Object.create(database.db) as Database;
  slow.query = async (text, values) => {
    const rows = await database.db.query(text, values);
    if (text.includes('UNION ALL')) {
      await appendLines(database.db, runId, 1);
      bell.ring!({ kind: 'RULE', id: runId, tenantId: 'default', seq: 3 });
    }
    return rows as never;
  };
  const feed = new RunFeed(slow, listener, { log: silentLog, backstopMs: 1_000_000 });
  const events = await feed.runEvents(world.home.viewer, runId, 2);
  expect((await take(events)).seq).toBe(3);
  feed.stop();
});

test('a line that comes while the first read is of a full page is not waited for in vain', async () => {
  const runId = await newRun();
  const slow = Object.create(database.db) as Database;
  slow.query = async (text, values) => {
    const rows = await database.db.query(text, values);
    // Its bell rings before anybody here listens for it.
    if (text.includes('UNION ALL')) await appendLines(database.db, runId, 1);
    return rows as never;
  };
  const options = { log: silentLog, backstopMs: 1_000_000, pageSize: 2 };
  const feed = new RunFeed(slow, new FakeListener(), options);
  const events = await feed.runEvents(world.home.viewer, runId, 0);
  for (let seq = 1; seq <= 3; seq += 1) expect((await take(events)).seq).toBe(seq);
  feed.stop();
});

test('a bell that anybody could have rung, of lines that are not there, ends nobody and hides no line', async () => {
  const runId = await newRun();
  const bell = new FakeListener();
  const late = Object.create(database.db) as Database;
  let heads = 0;
  late.query = async (text, values) => {
    const rows = await database.db.query(text, values);
    heads += text.includes('UNION ALL') ? 1 : 0;
    // Beside the false one, the bell of a line that has just come seems to be an old one.
    if (text.includes('UNION ALL') && heads === 2) {
      await appendLines(database.db, runId, 1);
      bell.ring({ kind: 'RULE', id: runId, tenantId: 'default', seq: 3 });
    }
    return rows as never;
  };
  const feed = new RunFeed(late, bell, { log: silentLog, backstopMs: 1_000_000 });
  const events = await feed.runEvents(world.home.viewer, runId, 0);
  for (let seq = 1; seq <= 2; seq += 1) expect((await take(events)).seq).toBe(seq);
  const next = take(events);
  bell.ring({ kind: 'RULE', id: runId, tenantId: 'default', seq: 2_000_000_000 });
  expect((await next).seq).toBe(3);
  await appendLines(database.db, runId, 1);
  bell.ring({ kind: 'RULE', id: runId, tenantId: 'default', seq: 4 });
  expect((await take(events)).seq).toBe(4);
  feed.stop();
});

test('a line that a laggard’s read finds before its bell reaches those who wait at the end', async () => {
  const runId = await newRun();
  const bell: { ring?: (head: RunHead) => void } = {};
  const listener = {
    onBell: (ring: (head: RunHead) => void) => {
      bell.ring = ring;
      return () => {};
    },
    onReconnect: () => () => {},
  };
  const ring = (seq: number): void => bell.ring!({ kind: 'RULE', id: runId, tenantId: 'default', seq });
  const feed = new RunFeed(database.db, listener, { log: silentLog, backstopMs: 1_000_000 });
  const laggard = await feed.runEvents(world.home.viewer, runId, 0);
  const follower = await feed.runEvents(world.home.viewer, runId, 2);
  // Line by line, so that the first page is no longer at hand.
  for (let seq = 3; seq <= 8; seq += 1) {
    await appendLines(database.db, runId, 1);
    ring(seq);
    expect((await take(follower)).seq).toBe(seq);
  }
  const next = take(follower);
  await appendLines(database.db, runId, 1);
  for (let seq = 1; seq <= 9; seq += 1) expect((await take(laggard)).seq).toBe(seq);
  ring(9);
  expect((await next).seq).toBe(9);
  feed.stop();
});

test('several feeds, as in several processes, tell the same', async () => {
  const lives = await Promise.all([start(), start(), start()]);
  const runId = await newRun();
  const readers = await Promise.all(
    lives.map(async ({ feed }) => ({ seqs: readToEnd(await feed.runEvents(world.home.viewer, runId, 0)) })),
  );
  await Promise.all([appendLines(database.db, runId, 100), appendLines(database.db, runId, 100)]);
  await appendEnd(database.db, runId);
  const ledger = await ledgerSeqs(database.db, runId);
  for (const { seqs } of readers) expect(await seqs).toEqual(ledger);
});

test('followers of one run get the same objects, from one read', async () => {
  const { feed } = await start();
  const runId = await newRun();
  const followers = await Promise.all(
    Array.from({ length: 50 }, () => feed.runEvents(world.home.viewer, runId, 2)),
  );
  const first = followers.map((events) => take(events));
  await appendLines(database.db, runId, 1);
  const rows = await Promise.all(first);
  expect(new Set(rows).size).toBe(1);
});

test('one who does not read keeps nobody waiting, and gets the rest when it does', async () => {
  const { feed } = await start({ pageSize: 5 });
  const runId = await newRun();
  const slow = await feed.runEvents(world.home.viewer, runId, 0);
  await take(slow);
  const quick = await feed.runEvents(world.home.viewer, runId, 0);
  await appendLines(database.db, runId, 200);
  await appendEnd(database.db, runId);
  const ledger = await ledgerSeqs(database.db, runId);
  expect(await readToEnd(quick)).toEqual(ledger);
  expect(await readToEnd(slow)).toEqual(ledger.slice(1));
});

test.each([
  ['PIPELINE', pipelineRunMachine],
  ['OPS', opsRunMachine],
] as const)('a run of kind %s has its events too', async (kind, machine) => {
  const { feed } = await start();
  const { id } = await makeRow(database.db, world.home, machine);
  const events = await feed.runEvents(world.home.viewer, publicRunId(kind, id), 0);
  expect(await take(events)).toMatchObject({ runId: id, seq: 1, type: `${machine.name}.create` });
});

test('refused: unknown and foreign runs, and cursors outside of the ledger', async () => {
  const { feed } = await start();
  const { viewer } = world.home;
  const runId = await newRun();
  const foreign = await makeRuleRun(database.db, world.other);
  const missing = '01900000-0000-7000-8000-000000000000';
  for (const id of [missing, foreign.id, 'no-uuid', '']) {
    await expect(feed.runEvents(viewer, id, 0)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  }
  await expect(feed.runEvents(viewer, runId, -1)).rejects.toMatchObject({ code: 'BAD_USER_INPUT' });
  await expect(feed.runEvents(viewer, runId, 3)).rejects.toMatchObject({
    code: 'BAD_USER_INPUT',
    details: { lastSeq: 2 },
  });
  const atEnd = await feed.runEvents(viewer, runId, 2);
  await appendLines(database.db, runId, 1);
  expect(await take(atEnd)).toMatchObject({ seq: 3 });
});

test('leaving settles a pending next; stopping says where to go on', async () => {
  const { feed } = await start();
  const runId = await newRun();
  const left = await feed.runEvents(world.home.viewer, runId, 2);
  const waiting = left.next();
  await left.return!();
  expect(await waiting).toEqual({ done: true, value: undefined });
  const stopped = await feed.runEvents(world.home.viewer, runId, 0);
  await take(stopped);
  feed.stop();
  await expect(stopped.next()).rejects.toMatchObject({ code: 'UNAVAILABLE', details: { after: 1 } });
  expect(await stopped.next()).toEqual({ done: true, value: undefined });
});
