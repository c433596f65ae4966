// Traces, as a collector gets them: a run's whole way in one trace, across processes; nothing while they are off;
// and a collector that is down or hangs in nobody's way.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createClient } from 'graphql-ws';
import { WebSocket } from 'ws';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { App } from '../../src/app.js';
import { ADMIN_KEY, environmentOf, request, ServerProcess, startApp, until } from '../support/app.js';
import { Collector, type Span } from '../support/collector.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { Receiver } from '../support/receiver.js';

const SENDER = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' };
const TRACEPARENT = `00-${SENDER.traceId}-${SENDER.spanId}-01`;
const RUNLEDGER_SECRET_KEY = '5'.repeat(64);
const TOKEN = 'token-of-the-shop-3141';

let database: TestDatabase;
let collector: Collector;
let shop: Receiver;
const apps: App[] = [];

beforeEach(async () => {
  [database, collector, shop] = await Promise.all([
    createTestDatabase(),
    Collector.start(),
    Receiver.start(),
  ]);
});
afterEach(async () => {
  for (const app of apps.splice(0)) await app.stop();
  await Promise.all([collector.stop(), shop.stop()]);
  await database.drop();
});

type Environment = Readonly<Record<string, string>>;

async function start(overrides: Environment = {}): Promise<App> {
  const traced = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint, RUNLEDGER_SECRET_KEY, ...overrides };
  const app = await startApp(database.url, traced);
  apps.push(app);
  return app;
}

/** Stops a server, which sends what it has. */
async function stop(app: App): Promise<void> {
  apps.splice(apps.indexOf(app), 1);
  await app.stop();
}

const TYPES: Readonly<Record<string, string>> = {
  saveChannel: 'SaveChannelInput',
  createRuleRun: 'CreateRuleRunInput',
  rollBackRuleRun: 'RollBackRuleRunInput',
};

async function mutate(url: string, field: string, input: object, headers: Environment = {}) {
  const type = TYPES[field] ?? 'RuleRunInput';
  const result = field === 'saveChannel' ? 'channel { id }' : 'ruleRun { id correlationId }';
  const query = `mutation Ask($input: ${type}!) { ${field}(input: $input) { ${result} userErrors { message } } }`;
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_KEY}`, ...headers },
    body: JSON.stringify({ query, variables: { input } }),
  });
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  const { data } = (await response.json()) as any;
  expect(data?.[field].userErrors).toEqual([]);
  return data[field];
}

async function createRun(url: string): Promise<string> {
  const config = {
    write: {
      url: `${shop.url('')}/prices/{{externalId}}`,
      method: 'PUT',
      body: { price: '{{decimal}}' },
      headers: { authorization: 'Bearer {{credentials.token}}' },
    },
    read: { url: `${shop.url('')}/prices/{{externalId}}`, answer: { amount: '/price', unit: 'decimal' } },
    credentials: { token: TOKEN },
  };
  const { channel } = await mutate(url, 'saveChannel', { name: 'shop', kind: 'http', config });
  const targets = ['a', 'b'].map((externalId) => ({
    externalId: `item-${externalId}`,
    before: { unit_amount: 1000, currency: 'EUR' },
    after: { unit_amount: 900, currency: 'EUR' },
  }));
  const input = { channelId: channel.id, targets, correlationId: 'spring-sale' };
  return (await mutate(url, 'createRuleRun', input)).ruleRun.id;
}

async function waitForEnd(id: string, status = 'APPLIED'): Promise<void> {
  const read = () => database.db.query<{ status: string }>('SELECT status FROM rule_run WHERE id = $1', [id]);
  await until(read, ([run]) => run!.status === status);
}

const inTrace = (traceId: string): Span[] => collector.spans.filter((span) => span.traceId === traceId);

test('one trace goes from the sender of the mutation through another process to the channel and the settle', async () => {
  const api = await start({ RUNLEDGER_ROLE: 'api' });
  const runId = await createRun(api.url!);
  await mutate(api.url!, 'queueRuleRun', { runId }, { traceparent: TRACEPARENT });
  await stop(api);
  const runner = await start({ RUNLEDGER_ROLE: 'runner', RUNLEDGER_WORKERS: '1' });
  await waitForEnd(runId);
  await stop(runner);

  const spans = inTrace(SENDER.traceId);
  const find = (name: string): Span => spans.find((span) => span.name === name)!;
  expect(spans.map(({ name }) => name).toSorted()).toEqual([
    'HTTP PUT',
    'HTTP PUT',
    'channel apply',
    'claim rule_target',
    'mutation Ask',
    'process rule_target',
    ...spans.filter(({ name }) => name === 'settle rule_target').map(({ name }) => name),
    'store queueRuleRun',
  ]);
  expect(find('mutation Ask').parentSpanId).toBe(SENDER.spanId);
  const parents: Readonly<Record<string, string>> = {
    'store queueRuleRun': 'mutation Ask',
    'claim rule_target': 'store queueRuleRun',
    'process rule_target': 'store queueRuleRun',
    'channel apply': 'process rule_target',
    'HTTP PUT': 'channel apply',
    'settle rule_target': 'process rule_target',
  };
  for (const [name, parent] of Object.entries(parents)) {
    expect([name, find(name)?.parentSpanId]).toEqual([name, find(parent).spanId]);
  }
  const ids = { 'runledger.run_id': runId, 'runledger.correlation_id': 'spring-sale' };
  for (const name of Object.keys(parents).filter((each) => each !== 'HTTP PUT')) {
    expect([name, find(name).facts]).toEqual([name, expect.objectContaining(ids)]);
  }
  expect(find('HTTP PUT').facts).toMatchObject({ 'http.response.status_code': 200 });
  expect(find('channel apply').facts).toMatchObject({ 'runledger.items': 2, 'runledger.count.applied': 2 });

  // The channel is told of the very span of its call.
  const told = shop.received.map(({ headers }) => headers['traceparent']).toSorted();
  const calls = spans.filter(({ name }) => name === 'HTTP PUT');
  expect(told).toEqual(calls.map(({ spanId }) => `00-${SENDER.traceId}-${spanId}-01`).toSorted());
  // Names and figures, no values: neither what was sent nor what it is signed with.
  for (const secret of [TOKEN, ADMIN_KEY, 'item-a', 'unit_amount'])
    expect(collector.text).not.toContain(secret);
}, 60_000);

test('a rollback belongs to the trace of whoever asked for it, with both its calls', async () => {
  const app = await start({ RUNLEDGER_WORKERS: '1' });
  const { data } = await request(app.url!, '{ channels { id name } }');
  const channelId = data.channels.find(({ name }: { name: string }) => name === 'sandbox').id;
  const target = {
    externalId: 'item-a',
    before: { unit_amount: 1000, currency: 'EUR' },
    after: { unit_amount: 900, currency: 'EUR' },
  };
  const { ruleRun } = await mutate(app.url!, 'createRuleRun', { channelId, targets: [target] });
  const runId = ruleRun.id;
  await mutate(app.url!, 'queueRuleRun', { runId });
  await waitForEnd(runId);
  await mutate(app.url!, 'rollBackRuleRun', { runId }, { traceparent: TRACEPARENT });
  await waitForEnd(runId, 'ROLLED_BACK');
  await stop(app);
  const spans = inTrace(SENDER.traceId);
  const find = (name: string): Span => spans.find((span) => span.name === name)!;
  expect(find('channel roll_back').facts).toMatchObject({
    'runledger.run_id': runId,
    'runledger.count.applied': 1,
  });
  expect(find('channel roll_back').parentSpanId).toBe(find('process rule_target').spanId);
  expect(find('process rule_target').parentSpanId).toBe(find('store rollBackRuleRun').spanId);
  const calls = spans.filter(({ name }) => name === 'HTTP POST');
  expect(calls.map(({ parentSpanId }) => parentSpanId)).toEqual(
    [1, 2].map(() => find('channel roll_back').spanId),
  );
  expect(find('settle rule_target_roll_back').parentSpanId).toBe(find('process rule_target').spanId);
}, 60_000);

test('a pipeline run is one trace, from the mutation through its plan and its pages to its consolidation', async () => {
  const app = await start({ RUNLEDGER_WORKERS: '1' });
  const { data } = await request(app.url!, '{ sources { id name } }');
  const sourceId = data.sources.find(({ name }: { name: string }) => name === 'sandbox').id;
  const query = `mutation Ask($input: StartPipelineRunInput!) {
    startPipelineRun(input: $input) { pipelineRun { id } userErrors { message } } }`;
  const response = await fetch(app.url!, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${ADMIN_KEY}`,
      traceparent: TRACEPARENT,
    },
    body: JSON.stringify({ query, variables: { input: { sourceId } } }),
  });
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  const runId = ((await response.json()) as any).data.startPipelineRun.pipelineRun.id as string;
  await until(
    () => database.db.query<{ status: string }>('SELECT status FROM run_metadata WHERE run_id = $1', [runId]),
    ([run]) => run!.status === 'COMPLETED',
  );
  await stop(app);
  const spans = inTrace(SENDER.traceId);
  const verb = spans.find(({ name }) => name === 'store startPipelineRun')!;
  for (const kind of ['pipeline_plan', 'pipeline_page', 'pipeline_consolidation']) {
    const work = spans.find(({ name }) => name === `process ${kind}`)!;
    expect([kind, work.parentSpanId, work.facts['runledger.run_id']]).toEqual([kind, verb.spanId, runId]);
  }
  const parentOf = (name: string) => {
    const parent = spans.find(({ name: each }) => each === name)!.parentSpanId;
    return spans.find(({ spanId }) => spanId === parent)!.name;
  };
  expect(parentOf('HTTP POST')).toBe('process pipeline_plan');
  expect(parentOf('settle pipeline')).toBe('process pipeline_plan');
}, 60_000);

test('a run that no traced request asked for has its id for a trace; a failed call shows', async () => {
  const api = await start({ RUNLEDGER_ROLE: 'api', OTEL_EXPORTER_OTLP_ENDPOINT: '' });
  const runId = await createRun(api.url!);
  await mutate(api.url!, 'queueRuleRun', { runId });
  await stop(api);
  shop.answers.set('/prices/item-a', 503);
  const runner = await start({ RUNLEDGER_ROLE: 'runner', OTEL_SERVICE_NAME: 'night-shift' });
  await until(
    async () => shop.at('/prices/item-a').length,
    (calls) => calls > 0,
  );
  shop.answers.clear();
  await waitForEnd(runId);
  await stop(runner);

  const spans = inTrace(runId.replaceAll('-', ''));
  const names = new Set(spans.map(({ name }) => name));
  expect(names).toEqual(
    new Set(['claim rule_target', 'process rule_target', 'channel apply', 'HTTP PUT', 'settle rule_target']),
  );
  const failed = spans.filter(({ name, isFailed }) => name === 'HTTP PUT' && isFailed);
  expect(failed[0]?.facts).toMatchObject({ 'http.response.status_code': 503 });
  const settles = spans.filter(({ name }) => name === 'settle rule_target');
  expect(settles.some(({ facts }) => Number(facts['runledger.count.retry']) > 0)).toBe(true);
  expect(collector.text).toContain('night-shift');
}, 60_000);

test('a trace that its sender does not sample is not sent, and the share that begins here is as set', async () => {
  const app = await start({ OTEL_TRACES_SAMPLER_ARG: '0', OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=a%20b' });
  const runId = await createRun(app.url!);
  await mutate(app.url!, 'queueRuleRun', { runId }, { traceparent: `${TRACEPARENT.slice(0, -2)}00` });
  await waitForEnd(runId);
  await request(app.url!, '{ stateMachines { name } }');
  const sampled = { traceparent: TRACEPARENT };
  const { ruleRun } = await mutate(app.url!, 'pauseRuleRun', { runId }, sampled).catch(() => ({
    ruleRun: null,
  }));
  expect(ruleRun).toBeNull();
  await stop(app);

  expect([...new Set(collector.spans.map(({ traceId }) => traceId))]).toEqual([SENDER.traceId]);
  expect(collector.spans.map(({ name }) => name).toSorted()).toEqual(['mutation Ask', 'store pauseRuleRun']);
  expect(collector.receiver.received[0]!.headers['x-tenant']).toBe('a b');
  expect(shop.received[0]!.headers['traceparent']).toMatch(
    new RegExp(`^00-${SENDER.traceId}-[0-9a-f]{16}-00$`),
  );
}, 60_000);

test('a subscription belongs to the trace that connectionParams name; a malformed one is passed over', async () => {
  const app = await start();
  const runId = await createRun(app.url!);
  const listen = async (traceparent: string): Promise<void> => {
    const client = createClient({
      url: app.url!.replace(/^http/, 'ws'),
      webSocketImpl: WebSocket,
      connectionParams: { authorization: ADMIN_KEY, traceparent },
    });
    const events = client.iterate({
      query: `subscription Watch { runEvents(runId: "${runId}", after: 0) { seq } }`,
      operationName: 'Watch',
    });
    expect((await events.next()).value?.errors).toBeUndefined();
    await events.return?.();
    await client.dispose();
  };
  await listen(TRACEPARENT);
  await listen('00-00000000000000000000000000000000-b7ad6b7169203331-01');
  await stop(app);

  const watched = collector.spans.filter(({ name }) => name === 'subscription Watch');
  expect(watched).toHaveLength(2);
  expect(watched[0]).toMatchObject({ traceId: SENDER.traceId, parentSpanId: SENDER.spanId });
  expect(watched[1]!.traceId).not.toBe(SENDER.traceId);
  expect(watched[1]!.parentSpanId).toBeUndefined();
}, 60_000);

test('off: nothing is sent, nothing is kept and nothing of the SDK is loaded', async () => {
  const app = await start({ OTEL_EXPORTER_OTLP_ENDPOINT: '' });
  const runId = await createRun(app.url!);
  await mutate(app.url!, 'queueRuleRun', { runId }, { traceparent: TRACEPARENT });
  await waitForEnd(runId);
  await stop(app);

  expect(collector.receiver.received).toEqual([]);
  expect(shop.received.map(({ headers }) => headers['traceparent'])).toEqual([undefined, undefined]);
  const kept = await database.db.query('SELECT 1 FROM rule_run WHERE trace_parent IS NOT NULL');
  expect(kept).toEqual([]);
  expect(await loadedBy({})).toEqual([]);
  const on = await loadedBy({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint });
  expect(on).toEqual(['exporter-trace-otlp-http', 'sdk-trace']);
}, 60_000);

async function loadedBy(overrides: Environment): Promise<unknown> {
  const script = fileURLToPath(new URL('loaded-telemetry.ts', import.meta.url));
  const env = { PATH: process.env['PATH'], ...environmentOf(database.url, overrides) };
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', script], { env });
  return JSON.parse(stdout);
}

test.each([
  ['hangs', () => collector.receiver.answers.set('/v1/traces', 'hang')],
  ['is down', () => collector.stop()],
  ['refuses', () => collector.receiver.answers.set('/v1/traces', 500)],
])(
  'a collector that %s delays no work and no stop',
  async (_, breakIt) => {
    const endpoint = collector.endpoint;
    await breakIt();
    const server = await ServerProcess.spawn(database.url, {
      OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
      RUNLEDGER_SECRET_KEY,
    });
    try {
      const runId = await createRun(server.url);
      await mutate(server.url, 'queueRuleRun', { runId });
      await waitForEnd(runId);
      expect(await server.end('SIGTERM')).toBe(0);
    } finally {
      await server.end('SIGKILL');
    }
  },
  60_000,
);
