// Connections that die without a word, as when a firewall forgets them: what is watched goes on over others.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { RunFeed } from '../../src/events/feed.js';
import { findViewerByKey } from '../../src/store/api-key.js';
import { Database } from '../../src/store/db.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRuleRun, seedWorld, type World } from '../support/fixtures.js';
import { DatabaseProxy } from './database-proxy.js';
import { appendLines, FakeListener, silentLog, take } from './support.js';

let database: TestDatabase;
let world: World;
let network: DatabaseProxy;
/** Through the network, and what waits for its answers no longer than a while. */
let pool: Database;
let db: Database;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  network = await DatabaseProxy.start(database.url);
  pool = new Database({ url: network.url, maxConnections: 3 });
  db = pool.answeringWithin(300);
});
afterAll(async () => {
  await network.stop();
  await pool.close();
  await database.drop();
});

test('a question that is not answered in time is given up with its connection, whoever asks it', async () => {
  const asks = { statement: () => db.ping(), prisma: () => findViewerByKey(db, 'unknown') };
  for (const ask of Object.values(asks)) {
    await ask();
    network.silence();
    await expect(ask()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    await ask();
  }
});

test('a transaction waits as long as it takes', async () => {
  const slow = db.transaction('test', (connection) => connection.query('SELECT pg_sleep(0.5) AS slept'));
  expect((await slow).rows).toHaveLength(1);
});

test('ledgers, states and boards are shown what came while the connections were dead', async () => {
  const bell = new FakeListener();
  const feed = new RunFeed(db, bell, { log: silentLog, backstopMs: 1_000_000, progressIntervalMs: 1 });
  try {
    const { viewer } = world.home;
    const filter = { projectId: 'silent' };
    const [heard, unheard] = [
      await makeRuleRun(database.db, world.home, { targets: [], ...filter }),
      await makeRuleRun(database.db, world.home, { targets: [], projectId: 'unheard' }),
    ];
    const lines = await feed.runEvents(viewer, heard.id, 1);
    const states = await feed.runProgress(viewer, 'RULE', heard.id);
    const board = feed.runChanges(viewer, filter);
    const deaf = await feed.runProgress(viewer, 'RULE', unheard.id);
    for (const each of [states, board, deaf]) expect((await take(each)).run.lastSeq).toBe(1);
    await feed.lookAgain();
    const next = Promise.all([
      take(lines),
      ...[states, board, deaf].map(async (each) => (await take(each)).run),
    ]);
    network.silence();
    await appendLines(database.db, heard.id, 1);
    await appendLines(database.db, unheard.id, 1);
    bell.ring({ kind: 'RULE', id: heard.id, seq: 2, tenantId: 'default' });
    await feed.lookAgain();
    expect((await next).map((each) => ('seq' in each ? each.seq : each.lastSeq))).toEqual([2, 2, 2, 2]);
  } finally {
    feed.stop();
  }
});
