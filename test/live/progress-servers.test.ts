// Progress and the board while servers are killed and stopped, and across two of them: no state that is older than
// one shown before, by whichever server, and in the end the final one.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import type { App } from '../../src/app.js';
import { RunledgerClient } from '../../src/client/index.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { publicRunId } from '../../src/domain/run.js';
import { ADMIN_KEY, ServerProcess, startApp } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { fire, makeRowIn, seedWorld } from '../support/fixtures.js';
import { expectEnd, KINDS, touch, Watch, watch } from './watch.js';

const API_ONLY = {
  RUNLEDGER_ROLE: 'api',
  RUNLEDGER_SANDBOX: 'off',
  RUNLEDGER_LOG_LEVEL: 'error',
  RUNLEDGER_PROGRESS_INTERVAL_MS: '10',
};

let database: TestDatabase;
let server: ServerProcess | null = null;
const apps: App[] = [];
const clients: RunledgerClient[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.close();
  await Promise.all(apps.splice(0).map((app) => app.stop()));
  await server?.end('SIGKILL');
});
afterAll(() => database.drop());

function connect(url: string): RunledgerClient {
  const waits = { firstWaitMs: 10, longestWaitMs: 100 };
  const client = new RunledgerClient({ url, apiKey: ADMIN_KEY, webSocketImpl: WebSocket, ...waits });
  clients.push(client);
  return client;
}

test('the server is killed, and stopped, under write load, and started again at the same address', async () => {
  const { db } = database;
  const { home } = await seedWorld(db);
  server = await ServerProcess.spawn(database.url, API_ONLY);
  const { url } = server;
  const client = connect(url);
  const board = new Watch(client.runChanged());
  const runs = await Promise.all(
    KINDS.map(async ([kind, machine, begun, event, final]) => {
      const row = await makeRowIn(db, home, machine, begun);
      const id = publicRunId(kind, row.id);
      return { kind, row, id, event, final, watch: new Watch(watch(client, kind, id)) };
    }),
  );
  let stopping = false;
  const writing = runs.map(async ({ kind, row }) => {
    for (let n = 0; !stopping; n += 1) await touch(db, kind, row, n);
  });
  const hearMore = async (): Promise<void> => {
    for (const { id, watch } of runs) {
      for (const each of [watch, board]) {
        const before = each.last(id)?.lastSeq ?? 0;
        await each.until(() => (each.last(id)?.lastSeq ?? 0) > before + 5);
      }
    }
  };
  await hearMore();
  await server.end('SIGKILL');
  const again = { ...API_ONLY, PORT: new URL(url).port };
  apps.push(await startApp(database.url, again));
  await hearMore();
  await apps.pop()!.stop();
  apps.push(await startApp(database.url, again));
  await hearMore();
  stopping = true;
  await Promise.all(writing);
  for (const { row, event } of runs) await fire(db, row, event);
  for (const { row, id, final, watch } of runs) {
    for (const each of [watch, board]) await expectEnd(db, row, id, final, each);
  }
}, 120_000);

test('two servers: both show the same, and one who moves between them is shown nothing older', async () => {
  const { db } = database;
  const { home } = await seedWorld(db);
  apps.push(await startApp(database.url, API_ONLY), await startApp(database.url, API_ONLY));
  const pair = apps.map(({ url }) => connect(url!));
  const row = await makeRowIn(db, home, ruleRunMachine, 'PREVIEW');
  const watches = pair.flatMap((client) => [
    new Watch(watch(client, 'RULE', row.id)),
    new Watch(client.runChanged()),
  ]);
  let stopping = false;
  const writing = (async () => {
    for (let n = 0; !stopping; n += 1) await touch(db, 'RULE', row, n);
  })();
  let seen = 0;
  for (let move = 0; move < 40; move += 1) {
    for await (const { lastSeq } of pair[move % 2]!.ruleRunProgress(row.id)) {
      expect(lastSeq).toBeGreaterThanOrEqual(seen);
      seen = lastSeq;
      break;
    }
  }
  stopping = true;
  await writing;
  await fire(db, row, 'cancel');
  for (const each of watches) await expectEnd(db, row, row.id, 'CANCELLED', each);
}, 60_000);
