// Progress and the board while the listener is cut and the database restarted, with changes all along: no state
// that is older than one shown before, and in the end the final one.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import type { App } from '../../src/app.js';
import { RunledgerClient } from '../../src/client/index.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { publicRunId } from '../../src/domain/run.js';
import { Database } from '../../src/store/db.js';
import { cutListeners } from '../events/support.js';
import { RawClient } from '../server/support.js';
import { ADMIN_KEY, request, startApp } from '../support/app.js';
import { fire, makeRowIn, seedWorld } from '../support/fixtures.js';
import { OwnPostgres } from './own-postgres.js';
import { expectEnd, KINDS, touch, Watch, watch } from './watch.js';

let postgres: OwnPostgres;
let db: Database;
let app: App;

beforeAll(async () => {
  postgres = await OwnPostgres.start();
  db = new Database({ url: postgres.url });
  app = await startApp(postgres.url, {
    RUNLEDGER_ROLE: 'api',
    RUNLEDGER_SANDBOX: 'off',
    RUNLEDGER_LOG_LEVEL: 'silent',
    RUNLEDGER_PROGRESS_INTERVAL_MS: '10',
  });
});
afterAll(async () => {
  await app.stop();
  await db.close();
  await postgres.remove();
});

test.each([
  ['the listener is cut', async () => void (await cutListeners(db).catch(() => 0))],
  ['the database is restarted', () => postgres.restart()],
])('%s under write load', { timeout: 120_000 }, async (_what, interrupt) => {
  const { home } = await seedWorld(db);
  const client = new RunledgerClient({ url: app.url!, apiKey: ADMIN_KEY, webSocketImpl: WebSocket });
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
    for (let n = 0; !stopping; n += 1) await touch(db, kind, row, n).catch(() => undefined);
  });
  for (let round = 0; round < 3; round += 1) {
    for (const { id, watch } of runs) {
      const before = watch.last(id)?.lastSeq ?? 0;
      await watch.until(() => (watch.last(id)?.lastSeq ?? 0) > before + 5);
      await board.until(() => (board.last(id)?.lastSeq ?? 0) > before + 5);
    }
    await interrupt();
  }
  stopping = true;
  await Promise.all(writing);
  for (const { row, event } of runs) await fire(db, row, event);
  for (const { row, id, final, watch } of runs) {
    for (const each of [watch, board]) await expectEnd(db, row, id, final, each);
  }
  client.close();
});

test('while the database is stopped nobody is sent away, and newcomers are told to come back', async () => {
  const { home } = await seedWorld(db);
  const row = await makeRowIn(db, home, ruleRunMachine, 'PREVIEW');
  const client = await RawClient.connect({ url: app.url! }, { authorization: ADMIN_KEY });
  client.subscribe(
    'progress',
    'subscription ($id: ID!) { ruleRunProgress(runId: $id) { id ruleStatus: status } }',
    { id: row.id },
  );
  client.subscribe('board', 'subscription { runChanged { id ... on RuleRun { ruleStatus: status } } }');
  const hear = (id: string, status: string) =>
    client.hear(({ id: of, type, payload }) => {
      const text = JSON.stringify(payload);
      return of === id && type === 'next' && text.includes(row.id) && text.includes(status);
    });
  for (const id of ['progress', 'board']) await hear(id, 'PREVIEW');
  await postgres.stop();
  const answer = await request(app.url!, '{ __typename }');
  expect(answer.errors![0]!.extensions).toMatchObject({ code: 'UNAVAILABLE' });
  const newcomer = await RawClient.open({ url: app.url! });
  newcomer.say({ type: 'connection_init', payload: { authorization: ADMIN_KEY } });
  expect((await newcomer.closed).code).toBe(1013);
  await postgres.startAgain();
  await fire(db, row, 'cancel');
  for (const id of ['progress', 'board']) await hear(id, 'CANCELLED');
  expect(client.heard.filter(({ type }) => type === 'error' || type === 'complete')).toEqual([]);
  client.socket.close();
}, 60_000);
