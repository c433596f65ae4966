// Processes that have different keys, as while a key is being replaced: what one cannot open it leaves to the other.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { ConnectorKinds } from '../../src/connectors/kinds.js';
import { openChannel } from '../../src/connectors/registry.js';
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';
import { Reconciliations } from '../../src/runner/reconciliations.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';
import { saveChannel } from '../../src/store/channel-config.js';
import { askToReconcile, listReconciliations } from '../../src/store/reconciliation.js';
import { SecretBox } from '../../src/store/secret-box.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, type World } from '../support/fixtures.js';
import { drain, HOUR, makeRuleTargets, NEVER, openChannels, pointAt, runOf } from './shop-world.js';
import { KeptLog } from './support.js';

const circuit = { toleratedThrottles: 5, openMs: HOUR };
const defaults = { callTimeoutMs: HOUR, retry: DEFAULT_RETRY_POLICY, circuit };
const [withFormer, withNew] = [SecretBox.generateKey(), SecretBox.generateKey()].map(
  (key) => new SecretBox([key]),
) as [SecretBox, SecretBox];

let database: TestDatabase;
let world: World;
let sandbox: Sandbox;
let sealedId: string;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(async () => {
  sandbox = await startSandbox();
  await pointAt(database.db, sandbox);
  const kinds = new ConnectorKinds(({ kind, config }) => openChannel(kind, config, defaults));
  const config = { endpoint: sandbox.adminUrl, accessToken: sandbox.accessToken };
  const input = { id: null, name: `sealed at ${sandbox.url}`, kind: 'shopify', config };
  sealedId = (await saveChannel(database.db, withNew, world.home.viewer, kinds, input)).id;
});
afterEach(() => sandbox.stop());
afterAll(() => database.drop());

test('targets stay queued for the process that has the key, and another channel has its turn', async () => {
  const log = new KeptLog();
  const [wrong, right] = [withFormer, withNew].map((secrets) =>
    makeRuleTargets(database.db, log, { secrets }),
  );
  const { id } = await makeQueuedRun(database.db, world.home, { channelId: sealedId });
  expect(await wrong!.claim('w')).toBeNull();
  expect(log.entries).toMatchObject([
    {
      level: 'warn',
      details: { channelId: sealedId, reason: expect.stringContaining('RUNLEDGER_SECRET_KEY') },
    },
  ]);
  expect(await wrong!.nextDueMs()).toBeNull();
  const plain = await makeQueuedRun(database.db, world.home);
  await drain(wrong!);
  expect(await runOf(database.db, plain.id)).toMatchObject({ status: 'APPLIED' });
  expect(await runOf(database.db, id)).toMatchObject({ status: 'QUEUED' });
  await drain(right!);
  expect(await runOf(database.db, id)).toMatchObject({ status: 'APPLIED' });
  expect(log.entries).toHaveLength(1);
});

test('a comparison is handed back at no cost, and made by the process that has the key', async () => {
  const { db } = database;
  const { viewer } = world.home;
  const { id: runId } = await makeQueuedRun(db, world.home, { channelId: sealedId });
  await drain(makeRuleTargets(db, new KeptLog(), { secrets: withNew }));
  await askToReconcile(db, viewer, { runId, repair: false, idempotencyKey: null });
  const [wrong, right] = [withFormer, withNew].map((secrets) => {
    const channels = openChannels(db, defaults, secrets);
    return new Reconciliations({ db, channels, leaseMs: HOUR, log: new KeptLog(), patienceMs: HOUR });
  });
  expect(await (await wrong!.claim('w'))!.process(NEVER)).toBe('failure');
  const rows = await db.query('SELECT attempts, lease_owner AS owner FROM reconciliation');
  expect(rows).toEqual([{ attempts: 0, owner: null }]);
  expect(await wrong!.nextDueMs()).toBeNull();
  expect(await wrong!.claim('w')).toBeNull();
  await drain(right!);
  const reports = (await listReconciliations(db, viewer, [runId])).get(runId);
  expect(reports).toMatchObject([{ totalChecked: 3, mismatches: 0 }]);
});
