// The listener hears bells, comes back after it was cut, and goes when it is told to.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { BellListener, type ListenerOptions } from '../../src/events/listener.js';
import { createApiKey, findViewerByKey, revokeApiKey } from '../../src/store/api-key.js';
import type { RunHead } from '../../src/store/run.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRuleRun, seedWorld, type World } from '../support/fixtures.js';
import { DatabaseProxy } from './database-proxy.js';
import { cutListeners, silentLog } from './support.js';

let database: TestDatabase;
let world: World;
const open: BellListener[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((listener) => listener.stop()));
});
afterAll(() => database.drop());

async function start(options: Partial<ListenerOptions> = {}): Promise<BellListener> {
  const listener = await BellListener.start({ url: database.url, log: silentLog, retryMs: 10, ...options });
  open.push(listener);
  return listener;
}

function nextBell(listener: BellListener): Promise<RunHead> {
  return new Promise((resolve) => {
    const forget = listener.onBell((head) => {
      forget();
      resolve(head);
    });
  });
}

const reconnected = (listener: BellListener) =>
  new Promise<void>((resolve) => listener.onReconnect(() => resolve()));

async function countListeners(): Promise<number> {
  const rows = await database.db.query(
    `SELECT 1 FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'runledger-listener'`,
  );
  return rows.length;
}

test('a bell says which run of whom has news, and up to where', async () => {
  const listener = await start();
  const bell = nextBell(listener);
  const { id } = await makeRuleRun(database.db, world.other, { targets: [] });
  expect(await bell).toEqual({ kind: 'RULE', id, seq: 1, tenantId: 'other' });
  expect(listener.isHealthy).toBe(true);
});

test('a key that is revoked rings, one that is used does not', async () => {
  const listener = await start();
  const heard: string[] = [];
  const done = new Promise<void>((resolve) =>
    listener.onKeyChange((id) => heard.push(id) === 2 && resolve()),
  );
  const make = (name: string) => createApiKey(database.db, { tenantId: 'default', name, role: 'VIEWER' });
  const [used, revoked, promoted] = [await make('used'), await make('revoked'), await make('promoted')];
  await findViewerByKey(database.db, used.secret);
  await revokeApiKey(database.db, 'default', revoked.key.id);
  await database.db.query(`UPDATE api_key SET role = 'ADMIN' WHERE id = $1`, [promoted.key.id]);
  await done;
  expect(heard).toEqual([revoked.key.id, promoted.key.id]);
});

test('whatever else is shouted on the channel is passed over', async () => {
  const listener = await start();
  const bell = nextBell(listener);
  for (const text of ['', 'x', '{}', '[]', 'null', '{"kind":"NONE","id":"1","seq":1,"tenant":"default"}']) {
    await database.db.query(`SELECT pg_notify('runledger', $1)`, [text]);
  }
  const { id } = await makeRuleRun(database.db, world.home, { targets: [] });
  expect((await bell).id).toBe(id);
});

test('cut again and again, it comes back each time, says so, and hears', async () => {
  const listener = await start();
  for (let round = 0; round < 5; round += 1) {
    const back = reconnected(listener);
    // One that was cut before may still be on its way out.
    expect(await cutListeners(database.db)).toBeGreaterThan(0);
    await back;
    expect(listener.isHealthy).toBe(true);
    const bell = nextBell(listener);
    const { id } = await makeRuleRun(database.db, world.home, { targets: [] });
    expect((await bell).id).toBe(id);
  }
});

test('a connection that is lost before it listens does not end it', async () => {
  const proxy = await DatabaseProxy.start(database.url);
  const listener = await start({ url: proxy.url });
  const back = reconnected(listener);
  let cuts = 0;
  proxy.onSent = (connection, bytes) => {
    if (bytes.includes('LISTEN') && cuts < 3) {
      cuts += 1;
      connection.destroy();
    }
  };
  proxy.cut();
  await back;
  expect(cuts).toBe(3);
  const bell = nextBell(listener);
  const { id } = await makeRuleRun(database.db, world.home, { targets: [] });
  expect((await bell).id).toBe(id);
  await listener.stop();
  await proxy.stop();
});

test('a connection that died in silence is noticed by asking, and replaced', async () => {
  const proxy = await DatabaseProxy.start(database.url);
  const listener = await start({ url: proxy.url, checkMs: 200, checkTimeoutMs: 1000 });
  const back = reconnected(listener);
  proxy.silence();
  await back;
  const bell = nextBell(listener);
  const { id } = await makeRuleRun(database.db, world.home, { targets: [] });
  expect((await bell).id).toBe(id);
  await listener.stop();
  await proxy.stop();
});

test('no database to listen to: starting fails, and nothing goes on trying', async () => {
  const url = new URL(database.url);
  url.pathname = '/no_such_database';
  await expect(BellListener.start({ url: url.href, log: silentLog, retryMs: 1 })).rejects.toThrow(
    /does not exist/,
  );
});

test('stopped while it is away, it does not come back', async () => {
  const listener = await start();
  const before = await countListeners();
  expect(before).toBe(1);
  await cutListeners(database.db);
  await listener.stop();
  expect(listener.isHealthy).toBe(false);
  await expect.poll(countListeners).toBe(0);
});
