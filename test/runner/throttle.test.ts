// Channels that slow us down, over real HTTP: the waits after a throttled call, the circuit breaker, budgets,
// limits per channel, and that none of it holds up anybody else.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ChannelPolicy } from '../../src/connectors/policy.js';
import type { RuleTargets } from '../../src/runner/rule-targets.js';
import { Runner } from '../../src/runner/runner.js';
import { startSandbox } from '../../src/sandbox/server.js';
import { registerChannel } from '../../src/store/channel.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { singleForm } from '../connectors/http/support.js';
import { ScriptedServer, type Call, type ScriptedReply } from '../connectors/support.js';
import { expectInvariants } from '../store/invariants.js';
import { linesOf, type Row } from '../store/rows.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import {
  drain,
  HOUR,
  makeRuleTargets,
  named,
  NEVER,
  pointAt,
  runOf,
  targetsIn,
  untilHeld,
} from './shop-world.js';
import { KeptLog } from './support.js';

let database: TestDatabase;
let world: World;
let kind: RuleTargets;
let script: (call: Call) => ScriptedReply;
let server: ScriptedServer;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(async () => {
  script = () => ({});
  server = await ScriptedServer.start((call) => script(call));
  kind = makeRuleTargets(database.db, new KeptLog(), { baseMs: HOUR });
  await point();
});
afterEach(async () => {
  await server.stop();
  await database.db.query('UPDATE rule_run SET paused = true');
  await database.db.query(
    `UPDATE channel SET circuit = 'CLOSED', circuit_open_until = NULL, consecutive_429 = 0, slots = '{}',
       bucket_tokens = NULL, bucket_capacity = NULL, bucket_restore_per_s = NULL, bucket_at = NULL`,
  );
});
afterAll(() => database.drop());

type DeepPartial<T> = {
  readonly [K in keyof T]?: T[K] extends object | null ? DeepPartial<T[K]> | null : T[K];
};

/** Points the channel at the scripted server, one call per item. */
function point(policy: DeepPartial<ChannelPolicy> = {}): Promise<string> {
  const config = { ...singleForm(server.origin), policy } as unknown as Record<string, string>;
  return registerChannel(database.db, { tenantId: 'default', name: 'shop', kind: 'http', config });
}

async function channelRow(): Promise<Row> {
  return (await database.db.query<Row>('SELECT * FROM channel WHERE id = $1', [world.home.channelId]))[0]!;
}

const makeRun = (count: number) => makeQueuedRun(database.db, world.home, { targets: targetsOf(count) });
const step = async () => (await kind.claim('w'))?.process(NEVER);

/** Seconds until a target is tried again. */
async function waitOf(runId: string): Promise<number> {
  const [target] = (await targetsIn(database.db, runId)).values();
  return (target!.nextAttemptAt!.getTime() - Date.now()) / 1000;
}

describe('the wait after a throttled call', () => {
  test.each([
    { name: 'seconds', header: () => '7200', least: 7_000, most: 7_200 },
    {
      name: 'an HTTP date',
      header: () => new Date(Date.now() + 7_200_000).toUTCString(),
      least: 7_000,
      most: 7_201,
    },
    { name: 'nothing', header: () => '', least: 50, most: 77 },
    { name: 'nonsense', header: () => 'soon', least: 50, most: 77 },
  ])('is what Retry-After says: $name', async ({ header, least, most }) => {
    script = () => ({ status: 429, headers: { 'retry-after': header() } });
    const { id } = await makeRun(1);
    await step();
    expect((await targetsIn(database.db, id)).get('sku-1')).toMatchObject({
      status: 'QUEUED',
      attempts: 1,
      errorCode: 'RATE_LIMITED',
    });
    const seconds = await waitOf(id);
    expect(seconds).toBeGreaterThan(least);
    expect(seconds).toBeLessThanOrEqual(most);
  });
});

test('what is set back is read before, and takes twice as much of the rate limit', async () => {
  const { id: runId } = await makeRun(8);
  await step();
  await point({ rateLimit: { perSecond: 0.001, burst: 8 } });
  const request = { runId, targetIds: null, onConflict: 'OVERWRITE', idempotencyKey: null } as const;
  await rollBackRuleRun(database.db, world.home.viewer, request);
  const before = server.calls.length;
  script = ({ method }) => (method === 'GET' ? { body: { price: '15.00' } } : {});
  await step();
  expect(server.calls.length - before).toBe(8);
  expect(await runOf(database.db, runId)).toMatchObject({ rolledBackCount: 4 });
  expect(await kind.claim('w')).toBeNull();
});

test('every throttled answer counts, also those between others', async () => {
  await database.db.query('DELETE FROM channel_throttle');
  let told = 0;
  kind = makeRuleTargets(database.db, new KeptLog(), {
    baseMs: HOUR,
    observer: { onThrottle: (answers) => (told += answers) },
  });
  let calls = 0;
  script = () => (calls++ % 2 === 0 ? { status: 429 } : {});
  await makeRun(10);
  await step();
  expect(told).toBe(5);
  const [counted] = await database.db.query('SELECT sum(count)::int AS n FROM channel_throttle');
  expect(counted).toEqual({ n: 5 });
});

describe('retries', () => {
  test.each([
    { maxAttempts: 1, calls: 1 },
    { maxAttempts: 5, calls: 5 },
  ])('are as many as the channel’s policy says: $maxAttempts', async ({ maxAttempts, calls }) => {
    await point({ retry: { maxAttempts, baseMs: 1, maxMs: 1 } });
    script = () => ({ status: 503 });
    const { id } = await makeRun(1);
    await drain(kind);
    expect(server.calls).toHaveLength(calls);
    expect((await targetsIn(database.db, id)).get('sku-1')).toMatchObject({
      status: 'FAILED',
      attempts: calls,
    });
  });

  test('wait by the channel’s own figures', async () => {
    await point({ retry: { baseMs: 7_200_000, maxMs: 86_400_000, jitter: 0 } });
    script = () => ({ status: 503 });
    const { id } = await makeRun(1);
    await step();
    expect(await waitOf(id)).toBeGreaterThan(7_000);
  });

  test('carry the same idempotency key', async () => {
    await point({ retry: { baseMs: 1, maxMs: 1 } });
    script = () => ({ status: 503 });
    const { id } = await makeRun(1);
    await drain(kind);
    const [target] = (await targetsIn(database.db, id)).values();
    const keys = new Set(server.calls.map(({ headers }) => headers['idempotency-key']));
    expect([...keys]).toEqual([`${id}:${target!.id}:apply`]);
  });
});

describe('the circuit', () => {
  test('opens with the sixth throttled call; targets that were not called keep their attempts', async () => {
    script = () => ({ status: 429 });
    const { id } = await makeRun(60);
    await step();
    const targets = [...(await targetsIn(database.db, id)).values()];
    const called = targets.filter(({ attempts }) => attempts === 1);
    expect(called.length).toBeGreaterThanOrEqual(6);
    expect(called.length).toBeLessThan(30);
    expect(called.every(({ errorCode }) => errorCode === 'RATE_LIMITED')).toBe(true);
    expect(targets.filter(({ attempts }) => attempts === 0)).toHaveLength(60 - called.length);
    expect(await channelRow()).toMatchObject({ circuit: 'OPEN' });
    expect((await linesOf(database.db, id)).map(({ type }) => type)).toContain('channel.open_circuit');
    expect(await kind.claim('w')).toBeNull();
    await expectInvariants(database.db, id);
  });

  test('lets one small batch through when the wait is over, and the rest after a good answer', async () => {
    await point({ retry: { throttleBaseMs: 1, maxMs: 1 } });
    script = () => ({ status: 429 });
    const { id } = await makeRun(60);
    await step();
    await database.db.query(
      `UPDATE channel SET circuit_open_until = clock_timestamp() WHERE circuit = 'OPEN'`,
    );
    script = () => ({});
    const probe = await kind.claim('w');
    expect(probe!.leases).toBe(10);
    expect(await kind.claim('w')).toBeNull();
    await probe!.process(NEVER);
    expect(await channelRow()).toMatchObject({ circuit: 'CLOSED', consecutive_429: 0 });
    await drain(kind);
    expect(await runOf(database.db, id)).toMatchObject({ status: 'APPLIED' });
    const types = (await linesOf(database.db, id)).map(({ type }) => type);
    expect(types.filter((type) => type.startsWith('channel.'))).toEqual([
      'channel.open_circuit',
      'channel.half_open_circuit',
      'channel.close_circuit',
    ]);
  });

  test('of one channel is nobody else’s', async () => {
    script = ({ path }) => ({ status: path.includes('sku') ? 429 : 200 });
    await makeRun(60);
    await step();
    const config = { ...singleForm(server.origin) } as unknown as Record<string, string>;
    const channelId = await registerChannel(database.db, {
      tenantId: 'default',
      name: 'second',
      kind: 'http',
      config,
    });
    const targets = targetsOf(5, 'other');
    const other = await makeQueuedRun(database.db, world.home, { channelId, targets });
    await step();
    expect(await runOf(database.db, other.id)).toMatchObject({ status: 'APPLIED' });
  });
});

describe('limits', () => {
  test('a rate limit lets through what its bucket holds', async () => {
    await point({ rateLimit: { perSecond: 0.0001, burst: 7 } });
    const { id } = await makeRun(20);
    await step();
    expect(await runOf(database.db, id)).toMatchObject({ appliedCount: 7, queuedCount: 13 });
    expect(await kind.claim('w')).toBeNull();
  });

  test('what a batch was let through with and did not need is given back', async () => {
    await point({ rateLimit: { perSecond: 0.0001, burst: 7 } });
    await makeRun(3);
    await step();
    const tokens = Number((await channelRow())['bucket_tokens']);
    expect(tokens).toBeGreaterThanOrEqual(4);
    expect(tokens).toBeLessThan(5);
  });

  test('one batch at a time where the policy says so', async () => {
    await point({ concurrency: 1 });
    const { id } = await makeRun(150);
    const first = await kind.claim('w-1');
    expect(await kind.claim('w-2')).toBeNull();
    await first!.process(NEVER);
    await drain(kind);
    expect(await runOf(database.db, id)).toMatchObject({ status: 'APPLIED' });
    expect(await channelRow()).toMatchObject({ slots: {} });
  });

  test('a shop that has not said what it has gets a small batch; then as much as its points pay for', async () => {
    const sandbox = await startSandbox({ restorePerSecond: 2 });
    await pointAt(database.db, sandbox);
    const { id } = await makeRun(300);
    const first = await kind.claim('w');
    expect(first!.leases).toBe(10);
    await first!.process(NEVER);
    // It holds 40 points: 10 for looking up, 11 for writing.
    const row = await channelRow();
    expect(row).toMatchObject({ bucket_capacity: 40, bucket_restore_per_s: 2 });
    expect(Number(row['bucket_tokens'])).toBeGreaterThanOrEqual(19);
    const second = await kind.claim('w');
    expect(second!.leases).toBeGreaterThanOrEqual(8);
    expect(second!.leases).toBeLessThanOrEqual(15);
    await sandbox.stop();
    expect(await runOf(database.db, id)).toMatchObject({ appliedCount: 10 });
  });
});

test('calls that hang hold up no loop: another run is served meanwhile, and stop hands them back', async () => {
  const sandbox = await startSandbox();
  await pointAt(database.db, sandbox);
  const hanging = await makeQueuedRun(database.db, world.home, { targets: named('hang-1', 'hang-2', 'a') });
  const timing = { graceMs: 0, heartbeatMs: 20, minIdleMs: 5, maxIdleMs: 20 };
  const log = new KeptLog();
  const kinds = [makeRuleTargets(database.db, log, { patienceMs: 20 })];
  const runner = new Runner({ db: database.db, kinds, workers: 1, log, timing });
  runner.start();
  await untilHeld(sandbox, 2);
  const small = await makeQueuedRun(database.db, world.home, { targets: targetsOf(10, 'small') });
  while ((await runOf(database.db, small.id))!.status !== 'APPLIED') await new Promise(setImmediate);
  expect(sandbox.held()).toBe(2);
  // The commit is seen here before the worker has heard of it.
  while (runner.leases[0] !== 2) await new Promise(setImmediate);
  await runner.stop();
  const targets = await targetsIn(database.db, hanging.id);
  for (const id of ['hang-1', 'hang-2'])
    expect(targets.get(id)).toMatchObject({ status: 'QUEUED', attempts: 0 });
  expect(log.entries).toEqual([]);
  await expectInvariants(database.db, hanging.id);
  await sandbox.stop();
});
