// Reconciliation over HTTP, against the sandbox: its `drift-…` items read back another price than was written.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, TestApp, until } from '../support/app.js';
import { makeRuleRun, seedWorld } from '../support/fixtures.js';

let app: TestApp;
beforeAll(async () => {
  app = await TestApp.start();
});
afterAll(() => app.stop());

const REPORT =
  'id runId trigger totalChecked mismatches repairRunId createdAt details { targetId externalId expected actual difference }';
const RECONCILE = `mutation ($input: RuleRunInput!) {
  reconcileRuleRun(input: $input) { report { ${REPORT} } pending userErrors { code field details } }
}`;

async function applyRun(externalIds: readonly string[]): Promise<string> {
  const { data } = await app.request('{ channels { id name } }');
  const channelId = data.channels.find(({ name }: { name: string }) => name === 'sandbox').id;
  const targets = externalIds.map((externalId, index) => ({
    externalId,
    before: { unit_amount: 1000, currency: 'EUR' },
    after: { unit_amount: 2000 + index, currency: 'EUR' },
  }));
  const create = 'mutation ($input: CreateRuleRunInput!) { createRuleRun(input: $input) { ruleRun { id } } }';
  const created = await app.request(create, { input: { channelId, targets } });
  const { id } = created.data.createRuleRun.ruleRun;
  const queue = 'mutation ($id: ID!) { queueRuleRun(input: { runId: $id }) { userErrors { code message } } }';
  expect((await app.request(queue, { id })).data.queueRuleRun.userErrors).toEqual([]);
  await until(
    () => statusOf(id),
    (status) => ['APPLIED', 'PARTIAL'].includes(status),
  );
  return id;
}

async function statusOf(id: string): Promise<string> {
  return (await app.request(`{ ruleRun(id: "${id}") { status } }`)).data.ruleRun.status;
}

async function reconcile(input: object) {
  return (await app.request(RECONCILE, { input })).data.reconcileRuleRun;
}

describe('reconcileRuleRun', () => {
  test('reports exactly the items that drifted, and the ledger tells of each', async () => {
    const ids = Array.from({ length: 40 }, (_, i) => (i % 10 === 3 ? `drift-${i}` : `plain-${i}`));
    const runId = await applyRun([...ids, 'fail-1']);
    const { report, pending, userErrors } = await reconcile({ runId });
    expect(userErrors).toEqual([]);
    expect(pending).toBe(false);
    expect(report).toMatchObject({
      runId,
      trigger: 'manual',
      totalChecked: 40,
      mismatches: 4,
      repairRunId: null,
    });
    const drifted = ids.filter((id) => id.startsWith('drift'));
    expect(report.details.map(({ externalId }: { externalId: string }) => externalId)).toEqual(drifted);
    for (const { expected, actual, difference } of report.details) {
      expect(actual).not.toBe(expected);
      expect(difference).toBe(actual - expected);
    }
    const read = `{ ruleRun(id: "${runId}") {
      reconciliations { ${REPORT} } events(first: 1000) { nodes { type level payload } }
    } }`;
    const { ruleRun } = (await app.request(read)).data;
    expect(ruleRun.reconciliations).toEqual([report]);
    const mismatches = ruleRun.events.nodes.filter(
      ({ type }: { type: string }) => type === 'automation.reconciliation.mismatch',
    );
    expect(mismatches.map(({ payload }: { payload: object }) => payload)).toEqual(
      report.details.map((detail: object) => expect.objectContaining(detail)),
    );
  });

  test('the same key again is the same report', async () => {
    const runId = await applyRun(['keyed-1']);
    const first = await reconcile({ runId, idempotencyKey: 'once' });
    expect(await reconcile({ runId, idempotencyKey: 'once' })).toEqual(first);
    const other = await reconcile({ runId, idempotencyKey: 'once', repair: true });
    expect(other.userErrors).toMatchObject([{ code: 'IDEMPOTENCY_MISMATCH' }]);
    expect((await reconcile({ runId })).report.id).not.toBe(first.report.id);
  });

  test('a repair is a run of its own', async () => {
    const runId = await applyRun(['drift-a', 'fine-a']);
    const { report } = await reconcile({ runId, repair: true });
    expect(report.mismatches).toBe(1);
    const read = `{ ruleRun(id: "${report.repairRunId}") {
      status source metadata targets { nodes { externalId before after } }
    } }`;
    const { data } = await until(
      () => app.request(read),
      (answer) => ['APPLIED', 'PARTIAL', 'FAILED'].includes(answer.data.ruleRun.status),
    );
    expect(data.ruleRun).toMatchObject({
      status: 'APPLIED',
      source: 'reconciliation',
      metadata: { repairOf: runId },
      targets: { nodes: [{ externalId: 'drift-a', after: { unit_amount: 2000, currency: 'EUR' } }] },
    });
    expect(await statusOf(runId)).toBe('APPLIED');
  });

  test('refuses a run of which nothing is applied, and an id of nothing', async () => {
    const { home } = await seedWorld(app.db);
    const { id } = await makeRuleRun(app.db, home);
    const { report, userErrors } = await reconcile({ runId: id });
    expect(report).toBeNull();
    expect(userErrors).toMatchObject([
      {
        code: 'ILLEGAL_TRANSITION',
        details: { event: 'reconcile', from: 'PREVIEW', allowed: ['queue', 'cancel'] },
      },
    ]);
    expect(await reconcile({ runId: 'no' })).toMatchObject({
      report: null,
      userErrors: [{ code: 'NOT_FOUND' }],
    });
    const foreign = await app.createKey('ADMIN', 'other');
    const answer = await app.request(RECONCILE, { input: { runId: id } }, foreign);
    expect(answer.data.reconcileRuleRun.userErrors).toMatchObject([{ code: 'NOT_FOUND' }]);
  });

  test('a channel that cannot be reached is an error that says so', async () => {
    const runId = await applyRun(['away-1']);
    await seedWorld(app.db);
    // The other channel, as it was registered, has no address.
    await app.db.query(
      `UPDATE rule_run SET channel_id = (SELECT id FROM channel WHERE tenant_id = 'default' AND name = 'shop') WHERE id = $1`,
      [runId],
    );
    const { errors } = await app.request(RECONCILE, { input: { runId, idempotencyKey: 'away' } });
    expect(errors).toMatchObject([{ extensions: { code: 'UNAVAILABLE' } }]);
    const again = await app.request(RECONCILE, { input: { runId, idempotencyKey: 'away' } });
    expect(again.errors).toMatchObject([{ extensions: { code: 'UNAVAILABLE' } }]);
  });
});

test('by the clock, without being asked', async () => {
  const runId = await applyRun(['drift-clock', 'fine-clock']);
  await app.db.query(
    `UPDATE rule_run SET queued_at = queued_at - interval '2 minutes', started_at = started_at - interval '2 minutes',
       finished_at = finished_at - interval '2 minutes', reconcile_at = finished_at - interval '1 minute' WHERE id = $1`,
    [runId],
  );
  const read = `{ ruleRun(id: "${runId}") { reconciliations { trigger totalChecked mismatches } } }`;
  const { data } = await until(
    () => app.request(read),
    (answer) => answer.data.ruleRun.reconciliations.length > 0,
  );
  expect(data.ruleRun.reconciliations).toEqual([{ trigger: 'immediate', totalChecked: 2, mismatches: 1 }]);
});

test('any process that runs work serves it', async () => {
  const api = await TestApp.start({ RUNLEDGER_ROLE: 'api' });
  const runner = await startApp(api.database.url, { RUNLEDGER_ROLE: 'runner' });
  const before = app;
  try {
    app = api;
    const runId = await applyRun(['drift-two', 'fine-two']);
    expect((await reconcile({ runId })).report).toMatchObject({ totalChecked: 2, mismatches: 1 });
  } finally {
    app = before;
    await runner.stop();
    await api.stop();
  }
});
