// Ten targets behind a hundred thousand: whoever looks for work next finds the ten, and soon somebody does.
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { RuleTargets } from '../../src/runner/rule-targets.js';
import { Runner } from '../../src/runner/runner.js';
import type { Work } from '../../src/runner/work.js';
import { registerChannel } from '../../src/store/channel.js';
import { queueRuleRun } from '../../src/store/rule-run.js';
import { singleForm } from '../connectors/http/support.js';
import { ScriptedServer } from '../connectors/support.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, makeRuleRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { makeRuleTargets, runOf } from './shop-world.js';
import { KeptLog } from './support.js';

const MANY = 100_000;
const WORKERS = ['w1', 'w2', 'w3', 'w4'];

let database: TestDatabase;
let world: World;
let kind: RuleTargets;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  await database.db.query(
    `UPDATE channel SET kind = 'shopify', config = '{"endpoint": "http://127.0.0.1:9/admin/api/2026-10/graphql.json", "accessToken": "t"}'`,
  );
  kind = makeRuleTargets(database.db, new KeptLog());
});
afterAll(() => database.drop());

async function queueMany(): Promise<string> {
  const { id } = await makeRuleRun(database.db, world.home, { targets: targetsOf(1) });
  await database.db.query(
    `INSERT INTO rule_target (run_id, tenant_id, external_id, before_amount, after_amount, currency)
     SELECT $1, 'default', 'many-' || n, 1000, 1200, 'EUR' FROM generate_series(2, $2) AS n`,
    [id, MANY],
  );
  return (await queueRuleRun(database.db, world.home.viewer, { runId: id, idempotencyKey: null })).id;
}

/** What each worker finds when all of them look at once. */
async function claimAll(): Promise<Work[]> {
  const found = await Promise.all(WORKERS.map((worker) => kind.claim(worker)));
  return found.filter((work) => work !== null);
}

test('a run of ten that is queued behind one of a hundred thousand is claimed next, and whole', async () => {
  const large = await queueMany();
  expect(await runOf(database.db, large)).toMatchObject({ queuedCount: MANY });
  for (let round = 0; round < 2; round += 1) {
    for (const work of await claimAll()) expect(work.run?.runId).toBe(large);
  }
  const { id: small } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(10, 'small') });
  const next = await kind.claim('w1');
  expect(next).toMatchObject({ leases: 10, run: { runId: small } });
  // With nothing left to claim of it, the others go on with the large one.
  for (const work of await claimAll()) expect(work.run?.runId).toBe(large);
  // Nor does a second small one wait for more than its turn.
  const { id: other } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(10, 'other') });
  expect(await kind.claim('w2')).toMatchObject({ leases: 10, run: { runId: other } });
});

test.each([700, 200])(
  'a channel that takes %i ms for a call gets few of the large run’s before the first of the ten',
  async (ms) => {
    const server = await ScriptedServer.start(() => delay(ms, {}));
    const config = singleForm(server.origin) as unknown as Record<string, string>;
    const channelId = await registerChannel(database.db, {
      tenantId: 'default',
      name: `slow-${ms}`,
      kind: 'http',
      config,
    });
    await makeQueuedRun(database.db, world.home, { channelId, targets: targetsOf(5_000, 'large') });
    const log = new KeptLog();
    const kinds = [makeRuleTargets(database.db, log, { patienceMs: 500 })];
    const runner = new Runner({
      db: database.db,
      kinds,
      workers: WORKERS.length,
      log,
      timing: { graceMs: 0, maxIdleMs: 50 },
    });
    onTestFinished(async () => {
      await runner.stop();
      await server.stop();
      await database.db.query('UPDATE rule_run SET paused = true');
    });
    runner.start();
    // Each loop has begun a batch.
    while (server.calls.length < WORKERS.length * 8) await delay(5);
    await makeQueuedRun(database.db, world.home, { channelId, targets: targetsOf(10, 'small') });
    const before = server.calls.length;
    const firstSmall = (): number => server.calls.findIndex(({ path }) => path.includes('small'));
    while (firstSmall() < 0) await delay(5);
    // A batch of sixteen for each loop, and as many as may be left behind.
    expect(firstSmall() - before).toBeLessThanOrEqual(2 * WORKERS.length * 16);
  },
);
