// Those who watch alerts: shown each as it fires and as it resolves, once, though bells are lost, the listener
// was away, or this machine's clock is not the database's.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { AlertFeed } from '../../src/events/alert-feed.js';
import type { AlertRow } from '../../src/store/alert.js';
import { newId } from '../../src/store/id.js';
import { Stage, testLog } from '../server/support.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { seedWorld, viewerOf } from '../support/fixtures.js';

let database: TestDatabase;
let feed: AlertFeed;
const bells = { alert: (_tenantId: string): void => {}, reconnect: (): void => {} };

const listener = {
  onAlert: (heard: (tenantId: string) => void) => {
    bells.alert = heard;
    return () => {};
  },
  onReconnect: (back: () => void) => {
    bells.reconnect = back;
    return () => {};
  },
};

beforeEach(async () => {
  database = await createTestDatabase();
  await seedWorld(database.db);
});
afterEach(async () => {
  vi.useRealTimers();
  feed.stop();
  await database.drop();
});

const start = (backstopMs = 3_600_000) =>
  (feed = new AlertFeed(database.db, listener, { log: testLog(new Stage()), backstopMs }));
const fire = (policy: string, tenantId = 'default') =>
  database.db.query(
    `INSERT INTO alert (id, tenant_id, policy, severity, message, value, threshold, fired_at)
     VALUES ($3, $1, $2, 'WARNING', 'm', 1, 0, clock_timestamp())`,
    [tenantId, policy, newId()],
  );
const resolve = () =>
  database.db.query('UPDATE alert SET resolved_at = clock_timestamp() WHERE resolved_at IS NULL');

async function next(watcher: AsyncIterator<AlertRow>): Promise<string> {
  const { value } = (await watcher.next()) as IteratorYieldResult<AlertRow>;
  return `${value.policy} ${value.resolvedAt ? 'RESOLVED' : 'FIRING'}`;
}

test('a bell tells of it, and a second one of the same not', async () => {
  const watcher = start().watch(viewerOf('default'));
  await fire('A');
  bells.alert('default');
  expect(await next(watcher)).toBe('A FIRING');
  bells.alert('default');
  await fire('B');
  await fire('C', 'other');
  bells.alert('default');
  expect(await next(watcher)).toBe('B FIRING');
  await resolve();
  bells.alert('default');
  expect([await next(watcher), await next(watcher)].sort()).toEqual(['A RESOLVED', 'B RESOLVED']);
});

test('what came while the listener was away is told when it is back', async () => {
  const watcher = start().watch(viewerOf('default'));
  await fire('A');
  bells.reconnect();
  expect(await next(watcher)).toBe('A FIRING');
  await resolve();
  await fire('A');
  bells.reconnect();
  expect([await next(watcher), await next(watcher)]).toEqual(['A RESOLVED', 'A FIRING']);
});

test('a bell that was lost costs time', async () => {
  const watcher = start(50).watch(viewerOf('default'));
  await fire('A');
  expect(await next(watcher)).toBe('A FIRING');
});

test.each([
  ['ahead', 3_600_000],
  ['behind', -3_600_000],
])('nothing is lost when this machine’s clock is an hour %s', async (_, offset) => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + offset });
  const watcher = start().watch(viewerOf('default'));
  await fire('A');
  bells.alert('default');
  expect(await next(watcher)).toBe('A FIRING');
  await resolve();
  bells.alert('default');
  expect(await next(watcher)).toBe('A RESOLVED');
});

test('who comes when it is over is not told of it', async () => {
  await fire('OLD');
  await resolve();
  await fire('NOW');
  const watcher = start().watch(viewerOf('default'));
  expect(await next(watcher)).toBe('NOW FIRING');
});
