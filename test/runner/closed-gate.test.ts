// A run that is due by its row while its channel's gate lets nothing through: others are served meanwhile.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { RuleTargets } from '../../src/runner/rule-targets.js';
import { startSandbox } from '../../src/sandbox/server.js';
import { registerChannel } from '../../src/store/channel.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { singleForm } from '../connectors/http/support.js';
import { ScriptedServer } from '../connectors/support.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { drain, makeRuleTargets, NEVER, pointAt } from './shop-world.js';
import { KeptLog } from './support.js';

let database: TestDatabase;
let world: World;
let server: ScriptedServer;
let kind: RuleTargets;
/** A run of another channel, which was served already: whatever else is due comes before it. */
let other: string;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  server = await ScriptedServer.start(({ method }) => (method === 'GET' ? { body: { price: '15.00' } } : {}));
});
beforeEach(() => {
  kind = makeRuleTargets(database.db, new KeptLog());
});
afterEach(() => database.db.query('UPDATE rule_run SET paused = true'));
afterAll(async () => {
  await server.stop();
  await database.drop();
});

function openHttp(name: string, policy: object = {}): Promise<string> {
  const config = { ...singleForm(server.origin), policy } as unknown as Record<string, string>;
  return registerChannel(database.db, { tenantId: 'default', name, kind: 'http', config });
}

async function serveOther(): Promise<void> {
  const channelId = await openHttp('other');
  other = (await makeQueuedRun(database.db, world.home, { channelId, targets: targetsOf(50, 'other') })).id;
  const work = await kind.claim('w');
  expect(work).toMatchObject({ run: { runId: other } });
  await work!.process(NEVER);
}

async function fill(channelId: string, tokens: number): Promise<void> {
  await database.db.query(
    'UPDATE channel SET bucket_tokens = $2, bucket_restore_per_s = 0.0001, bucket_at = clock_timestamp() WHERE id = $1',
    [channelId, tokens],
  );
}

test('a shop whose points pay for no write holds up no other channel', async () => {
  const sandbox = await startSandbox({ restorePerSecond: 5 });
  const shop = await pointAt(database.db, sandbox);
  const run = await makeQueuedRun(database.db, world.home, { channelId: shop, targets: targetsOf(300) });
  await (await kind.claim('w'))!.process(NEVER);
  await fill(shop, 0);
  await serveOther();
  await database.db.query('UPDATE rule_run SET last_served_at = NULL WHERE id = $1', [run.id]);
  // Of the twelve that a write of one costs.
  await fill(shop, 6);
  expect(await kind.nextDueMs()).toBeLessThanOrEqual(0);
  expect(await kind.claim('w')).toMatchObject({ run: { runId: other } });
  await fill(shop, 12);
  expect(await kind.claim('w')).toMatchObject({ leases: 1, run: { runId: run.id } });
  await sandbox.stop();
});

test('what is to be set back is due when the rate limit lets it be read and written', async () => {
  const slow = await openHttp('slow');
  const { id: runId } = await makeQueuedRun(database.db, world.home, {
    channelId: slow,
    targets: targetsOf(8),
  });
  await drain(kind);
  await openHttp('slow', { rateLimit: { perSecond: 0.0001, burst: 8 } });
  const request = { runId, targetIds: null, onConflict: 'OVERWRITE', idempotencyKey: null } as const;
  await rollBackRuleRun(database.db, world.home.viewer, request);
  expect(await kind.claim('w')).toMatchObject({ leases: 4, run: { runId } });
  await fill(slow, 1.5);
  expect(await kind.claim('w')).toBeNull();
  expect(await kind.nextDueMs()).toBeGreaterThan(0);
  await serveOther();
  await fill(slow, 2);
  expect(await kind.claim('w')).toMatchObject({ leases: 1, run: { runId } });
});
