// A channel that never answers, with many runs: it holds up neither another channel nor another process.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';
import { Reconciliations } from '../../src/runner/reconciliations.js';
import type { RuleTargets } from '../../src/runner/rule-targets.js';
import { registerChannel } from '../../src/store/channel.js';
import { askToReconcile } from '../../src/store/reconciliation.js';
import { singleForm } from '../connectors/http/support.js';
import { ScriptedServer } from '../connectors/support.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { drain, HOUR, makeRuleTargets, openChannels, runOf } from './shop-world.js';
import { KeptLog } from './support.js';

const PER_BATCH = 100;
/** Longer than an answer takes on a busy machine. */
const PATIENCE_MS = 500;

let database: TestDatabase;
let world: World;
let server: ScriptedServer;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  server = await ScriptedServer.start(({ path }) => (path.includes('healthy') ? {} : new Promise(() => {})));
});
afterEach(() => database.db.query('UPDATE rule_run SET paused = true'));
afterAll(async () => {
  await server.stop();
  await database.drop();
});

async function openChannel(name: string, callTimeoutMs: number): Promise<string> {
  await registerChannel(database.db, { tenantId: 'default', name, kind: 'http', config: {} });
  const [channel] = await database.db.query<{ id: string }>(
    `UPDATE channel SET config = $2 WHERE tenant_id = 'default' AND name = $1 RETURNING id`,
    [name, JSON.stringify({ ...singleForm(server.origin), callTimeoutMs })],
  );
  return channel!.id;
}

async function queue(channelId: string, prefix: string, count: number): Promise<string> {
  const overrides = { channelId, targets: targetsOf(count, prefix) };
  return (await makeQueuedRun(database.db, world.home, overrides)).id;
}

/** Claims a batch and works it, until it is done or left behind; the run it was of. */
async function workOnce(kind: RuleTargets, signal: AbortSignal): Promise<string | null> {
  const work = await kind.claim('w');
  await work?.process(signal);
  return work?.run?.runId ?? null;
}

test('a healthy run goes on between ten of it, and another process still takes its share of those', async () => {
  const silent = await openChannel('silent', HOUR);
  const healthy = await queue(await openChannel('healthy', 15_000), 'healthy', 3 * PER_BATCH);
  const end = new AbortController();
  const kind = makeRuleTargets(database.db, new KeptLog(), { patienceMs: PATIENCE_MS });
  expect(await workOnce(kind, end.signal)).toBe(healthy);
  // Served already, so each of these comes before it.
  const hung: string[] = [];
  for (let index = 0; index < 10; index += 1) hung.push(await queue(silent, `hung-${index}`, PER_BATCH));
  let found = await workOnce(kind, end.signal);
  let begun = 0;
  for (; hung.includes(found!); found = await workOnce(kind, end.signal)) begun += 1;
  expect(begun).toBeGreaterThan(0);
  expect(begun).toBeLessThan(hung.length);
  expect(found).toBe(healthy);
  while ((await runOf(database.db, healthy))?.status !== 'APPLIED') {
    // Null where the last of it is still under way.
    expect([healthy, null]).toContain(await workOnce(kind, end.signal));
  }
  // Nothing else can be claimed here; it looks again soon, since the channel may answer.
  expect(await workOnce(kind, end.signal)).toBeNull();
  expect(await kind.nextDueMs()).toBeGreaterThan(0);
  const other = makeRuleTargets(database.db, new KeptLog(), { patienceMs: PATIENCE_MS });
  expect(await other.nextDueMs()).toBeLessThanOrEqual(0);
  expect(hung).toContain(await workOnce(other, end.signal));
  end.abort();
  await kind.drain();
  await other.drain();
  expect(await kind.nextDueMs()).toBeLessThanOrEqual(0);
});

test('of comparisons with it a process begins one, leaves it behind, and ends it when it is stopped', async () => {
  const { db } = database;
  let isSilent = false;
  const shop = await ScriptedServer.start(() => (isSilent ? new Promise(() => {}) : {}));
  await registerChannel(db, { tenantId: 'default', name: 'mute', kind: 'http', config: {} });
  const [channel] = await db.query<{ id: string }>(
    `UPDATE channel SET config = $1 WHERE name = 'mute' RETURNING id`,
    [JSON.stringify({ ...singleForm(shop.origin), callTimeoutMs: HOUR })],
  );
  const runs = [await queue(channel!.id, 'mute-a', 3), await queue(channel!.id, 'mute-b', 3)];
  await drain(makeRuleTargets(db, new KeptLog()));
  for (const runId of runs)
    await askToReconcile(db, world.home.viewer, { runId, repair: false, idempotencyKey: null });
  isSilent = true;
  const circuit = { toleratedThrottles: 5, openMs: HOUR };
  const makeKind = (): Reconciliations => {
    const channels = openChannels(db, { callTimeoutMs: HOUR, retry: DEFAULT_RETRY_POLICY, circuit });
    return new Reconciliations({ db, channels, leaseMs: HOUR, log: new KeptLog(), patienceMs: 1 });
  };
  const [kind, other] = [makeKind(), makeKind()];
  const end = new AbortController();
  expect(await (await kind.claim('w'))!.process(end.signal)).toBe('success');
  expect(kind.leasesOf('w')).toBe(1);
  expect(await kind.claim('w')).toBeNull();
  expect(await kind.nextDueMs()).toBeGreaterThan(0);
  expect(await other.nextDueMs()).toBeLessThanOrEqual(0);
  end.abort();
  await kind.drain();
  expect(kind.leasesOf('w')).toBe(0);
  // Handed back at no cost.
  expect(await db.query('SELECT attempts, lease_owner FROM reconciliation')).toEqual([
    { attempts: 0, lease_owner: null },
    { attempts: 0, lease_owner: null },
  ]);
  await shop.stop();
});
