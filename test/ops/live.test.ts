// What is done to ops runs, by whatever way, reaches subscribers over WebSocket.
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../support/database.js';
import { startApp, TestApp, until } from '../support/app.js';
import { ApiClient } from '../api/support.js';
import { CHANGED, EVENTS, PROGRESS, RUN } from './documents.js';
import { OpsSurface, surfaceOf } from './support.js';

let app: TestApp;
let client: pg.Client;
let ops: OpsSurface;
let worker: ApiClient;
let viewer: ApiClient;

beforeAll(async () => {
  app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
  client = await connect(app.database.url);
  ops = surfaceOf(client);
  worker = new ApiClient(app.url, await app.createKey('WORKER'));
  viewer = new ApiClient(app.url, await app.createKey('VIEWER'));
});
afterAll(async () => {
  await worker.close();
  await viewer.close();
  await client.end();
  await app.stop();
});

test('a worker’s key watches a run that psql works on, to its end', async () => {
  const runId = await ops.queue('live');
  const states = worker.watch(PROGRESS, { runId });
  const seen: string[] = [];
  expect((await states.next()).value).toMatchObject({
    data: { opsRunProgress: { id: runId, status: 'QUEUED' } },
  });
  await ops.claim('w', 'live');
  await ops.append(runId, 'hello');
  await ops.finish(runId, 'success');
  while (seen.at(-1) !== 'SUCCESS') {
    const { value } = (await states.next()) as { value: { data?: { opsRunProgress: { status: string } } } };
    seen.push(value.data!.opsRunProgress.status);
  }
  await states.return!();
});

test('every line of the ledger arrives once, in order, under the id that people know', async () => {
  const runId = await ops.running();
  const lines = viewer.watch(EVENTS, { runId, after: 1 });
  await ops.append(runId, 'second');
  await ops.finish(runId, 'failed', { error: 'it broke' });
  const seen: unknown[] = [];
  for await (const { data } of lines) {
    seen.push(data!.runEvents);
    if (data!.runEvents.type === 'ops_run.fail') break;
  }
  expect(seen).toEqual([
    { runId, seq: 2, type: 'ops_run.claim', message: 'queued → claimed' },
    { runId, seq: 3, type: 'ops_run.start', message: 'claimed → running' },
    { runId, seq: 4, type: 'log', message: 'began' },
    { runId, seq: 5, type: 'log', message: 'second' },
    { runId, seq: 6, type: 'ops_run.fail', message: 'it broke' },
  ]);
});

test('a board hears of ops runs', async () => {
  const board = viewer.watch(CHANGED, { kind: 'OPS', projectId: 'storefront' });
  const next = board.next();
  let heard: Awaited<typeof next> | null = null;
  void next.then((result) => (heard = result));
  // Whether the board is there yet cannot be asked, so runs are queued until it speaks.
  await until(
    () => ops.queue('board'),
    () => heard !== null,
  );
  expect((await next).value).toMatchObject({ data: { runChanged: { __typename: 'OpsRun', kind: 'OPS' } } });
  await board.return!();
});

test('the key of a row is no id of a run', async () => {
  const runId = await ops.queue('live');
  for (const wrong of [runId.slice('run-'.length), 'run-x']) {
    const { value } = (await viewer.watch(EVENTS, { runId: wrong }).next()) as {
      value: { errors?: { extensions: { code: string } }[] };
    };
    expect(value.errors).toMatchObject([{ extensions: { code: 'NOT_FOUND' } }]);
  }
});

test('a server ends stale claims by itself', async () => {
  const runId = await ops.claimed('worker-lost');
  const impatient = await startApp(app.database.url, {
    RUNLEDGER_SANDBOX: 'off',
    RUNLEDGER_STALE_CLAIM_MS: '100',
    RUNLEDGER_LOG_LEVEL: 'error',
  });
  const { opsRun } = await until(
    () => worker.ask(RUN, { id: runId }),
    (answer) => answer.opsRun!.status === 'CANCELLED',
  );
  expect(opsRun!.metadata).toMatchObject({ cancelled_by: 'system', original_worker: 'worker-lost' });
  await impatient.stop();
});
