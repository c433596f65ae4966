// A batch that ends early, because its channel throttles or is slow: calls under way end with their own answers,
// and what was not sent goes back to the queue.
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { registerChannel } from '../../src/store/channel.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { cancelRuleRun } from '../../src/store/rule-run-control.js';
import { singleForm } from '../connectors/http/support.js';
import { ScriptedServer, type ScriptedReply } from '../connectors/support.js';
import { expectInvariants } from '../store/invariants.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { drain, HOUR, makeRuleTargets, NEVER, runOf, targetsIn, type KindOptions } from './shop-world.js';
import { KeptLog, signalled } from './support.js';

const AT_ONCE = 8;
const TAKEN = {};
const THROTTLED = { status: 429 };

let database: TestDatabase;
let world: World;
let server: ScriptedServer;
let channelId: string;
/** Calls that wait for the test's answer, by the item. */
let held: Map<string, (reply: ScriptedReply) => void>;
let written: Set<string>;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(async () => {
  held = new Map();
  written = new Set();
  server = await ScriptedServer.start(({ path, method }) => {
    const sku = path.split('/').at(-1)!;
    if (method === 'GET') return { body: { price: written.has(sku) ? '15.00' : '10.00' } };
    const { promise, resolve } = signalled<ScriptedReply>();
    held.set(sku, resolve);
    return promise;
  });
  const config = singleForm(server.origin) as unknown as Record<string, string>;
  channelId = await registerChannel(database.db, { tenantId: 'default', name: 'held', kind: 'http', config });
});
afterEach(() => server.stop());
afterAll(() => database.drop());

const makeKind = (options?: KindOptions) => makeRuleTargets(database.db, new KeptLog(), options);

async function makeRun(count: number): Promise<string> {
  return (await makeQueuedRun(database.db, world.home, { channelId, targets: targetsOf(count) })).id;
}

async function untilHeld(count: number): Promise<void> {
  while (held.size < count) await delay(1);
}

function reply(sku: string, answer: ScriptedReply): void {
  if (answer === TAKEN) written.add(sku);
  held.get(sku)!(answer);
  held.delete(sku);
}

function replyToFirst(): void {
  reply([...held.keys()][0]!, TAKEN);
}

async function untilApplied(runId: string, count: number): Promise<void> {
  while ((await runOf(database.db, runId))!.appliedCount < count) await delay(1);
}

async function isOpen(): Promise<boolean> {
  const rows = await database.db.query<{ circuit: string }>('SELECT circuit FROM channel WHERE id = $1', [
    channelId,
  ]);
  return rows[0]!.circuit === 'OPEN';
}

test('a price that was written while others of its batch were throttled stands, and can be set back', async () => {
  const runId = await makeRun(30);
  const kind = makeKind({ baseMs: HOUR });
  const processing = (await kind.claim('w'))!.process(NEVER);
  await untilHeld(AT_ONCE);
  const kept = [...held.keys()][0]!;
  const { viewer } = world.home;
  await cancelRuleRun(database.db, viewer, { runId, idempotencyKey: null });
  while (!(await isOpen())) {
    for (const sku of [...held.keys()]) if (sku !== kept) reply(sku, THROTTLED);
    await delay(1);
  }
  for (const sku of [...held.keys()]) reply(sku, sku === kept ? TAKEN : THROTTLED);
  await processing;
  const targets = await targetsIn(database.db, runId);
  expect(targets.get(kept)).toMatchObject({ status: 'APPLIED', attempts: 1 });
  expect(await runOf(database.db, runId)).toMatchObject({
    status: 'CANCELLED',
    appliedCount: 1,
    cancelledCount: 29,
  });
  await expectInvariants(database.db, runId);
  await database.db.query(
    `UPDATE channel SET circuit = 'CLOSED', circuit_open_until = NULL, consecutive_429 = 0 WHERE id = $1`,
    [channelId],
  );
  await rollBackRuleRun(database.db, viewer, {
    runId,
    targetIds: null,
    onConflict: 'SKIP',
    idempotencyKey: null,
  });
  const settingBack = drain(kind);
  await untilHeld(1);
  reply(kept, TAKEN);
  await settingBack;
  expect((await targetsIn(database.db, runId)).get(kept)).toMatchObject({ status: 'ROLLED_BACK' });
});

test('a batch that takes too long begins no more calls, and hands back what it has not begun', async () => {
  const runId = await makeRun(30);
  const kind = makeKind({ patienceMs: 1 });
  const from = performance.now();
  const work = (await kind.claim('w'))!;
  const { leases } = work;
  const end = new AbortController();
  await work.process(end.signal);
  await untilHeld(AT_ONCE);
  replyToFirst();
  await untilApplied(runId, 1);
  // Longer than any batch that was answered as soon as this one may take.
  await delay(2 * Math.max(500, performance.now() - from));
  await untilHeld(AT_ONCE);
  replyToFirst();
  await untilApplied(runId, 2);
  await untilHeld(AT_ONCE);
  for (const sku of [...held.keys()]) reply(sku, TAKEN);
  await kind.drain();
  const sent = AT_ONCE + 2;
  expect(sent).toBeLessThan(leases);
  expect(await runOf(database.db, runId)).toMatchObject({ appliedCount: sent, queuedCount: 30 - sent });
  const rest = [...(await targetsIn(database.db, runId)).values()].filter(
    ({ status }) => status === 'QUEUED',
  );
  expect(rest.every(({ attempts }) => attempts === 0)).toBe(true);
  await expectInvariants(database.db, runId);
});
