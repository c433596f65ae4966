// Rule runs over HTTP: made, filled, queued and read, field by field; their lists are in tests of their own.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { graphql } from '../generated/gql.js';
import { makeRowIn, newRuleRun, targetsOf } from '../support/fixtures.js';
import { claimTargets, type Claim } from '../../src/store/claim.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { createRuleRun } from '../../src/store/rule-run.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { add, create, inputFor, makeRun, queue } from './rule-run-documents.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

const WholeRuleRun = graphql(`
  query WholeRuleRun($id: ID!) {
    ruleRun(id: $id) {
      id
      kind
      projectId
      status
      channel {
        id
        name
        kind
        health {
          circuit
          openUntil
          consecutive429
          availableTokens
        }
      }
      rule {
        id
        name
        version
        definition
      }
      counts {
        total
        preview
        queued
        applying
        applied
        failed
        rolledBack
        cancelled
      }
      progress
      ratePerSecond
      etaSeconds
      paused
      allowedActions
      actor
      correlationId
      source
      error
      queuedAt
      startedAt
      finishedAt
      createdAt
      metadata
      lastSeq
      reconciliations {
        id
        runId
        trigger
        totalChecked
        mismatches
        details {
          targetId
          externalId
          expected
          actual
          difference
        }
        createdAt
      }
    }
  }
`);

let api: TestApi;
let operator: ApiClient;
let viewer: ApiClient;

beforeAll(async () => {
  api = await startApi();
  operator = await api.client('OPERATOR');
  viewer = await api.client('VIEWER');
});
afterAll(() => api.stop());

const runOf = async (id: string, client = viewer) => (await client.ask(WholeRuleRun, { id })).ruleRun!;

describe('a run', () => {
  test('begins in PREVIEW with the defaults of everything that was not said', async () => {
    const { ruleRun, userErrors } = await create(operator, inputFor(api.world.home));
    expect(userErrors).toEqual([]);
    const run = await runOf(ruleRun!.id);
    expect(run).toMatchObject({
      kind: 'RULE',
      projectId: 'default',
      status: 'PREVIEW',
      channel: { id: api.world.home.channelId, name: 'shop', kind: 'shopify' },
      rule: null,
      counts: { total: 3, preview: 3, queued: 0, applying: 0, applied: 0, failed: 0 },
      progress: 0,
      ratePerSecond: null,
      etaSeconds: null,
      paused: false,
      actor: 'key:default OPERATOR',
      correlationId: run.id,
      source: 'api',
      error: null,
      queuedAt: null,
      startedAt: null,
      finishedAt: null,
      metadata: {},
      reconciliations: [],
    });
    expect(Date.parse(run.createdAt)).not.toBeNaN();
  });

  test('keeps what its maker attached, and takes null for a default', async () => {
    const metadata = { ticket: 'OPS-7', nested: { list: [1, 'two', null] } };
    const id = await makeRun(operator, api.world.home, {
      projectId: 'spring',
      correlationId: 'batch-9',
      metadata,
    });
    expect(await runOf(id)).toMatchObject({ projectId: 'spring', correlationId: 'batch-9', metadata });
    const bare = await makeRun(operator, api.world.home, { projectId: null, targets: [], metadata: null });
    expect(await runOf(bare)).toMatchObject({ projectId: 'default', metadata: {}, counts: { total: 0 } });
  });

  test('takes more targets while in PREVIEW, then is queued', async () => {
    const id = await makeRun(operator, api.world.home);
    const added = await add(operator, id, targetsOf(2, 'more'));
    expect(added).toMatchObject({ ruleRun: { id, counts: { total: 5 } }, userErrors: [] });
    const queued = await queue(operator, id);
    expect(queued.ruleRun).toMatchObject({ status: 'QUEUED', counts: { queued: 5 } });
    expect(Date.parse(queued.ruleRun!.queuedAt!)).not.toBeNaN();
  });

  test.each([
    { state: 'PREVIEW', actions: ['CANCEL'] },
    { state: 'QUEUED', actions: ['CANCEL', 'PAUSE'] },
    { state: 'APPLYING', actions: ['CANCEL', 'PAUSE'] },
    { state: 'PARTIAL', actions: ['RETRY_FAILED', 'ROLL_BACK'] },
    { state: 'FAILED', actions: ['RETRY_ALL'] },
    { state: 'ROLLED_BACK', actions: [] },
  ])(
    'without targets in $state may be asked $actions, and nothing by a viewer',
    async ({ state, actions }) => {
      const { id } = await makeRowIn(api.db, api.world.home, ruleRunMachine, state);
      expect(await runOf(id, operator)).toMatchObject({ status: state, allowedActions: actions });
      expect((await runOf(id)).allowedActions).toEqual([]);
    },
  );

  test('with targets may be queued; paused it may be resumed', async () => {
    const id = await makeRun(operator, api.world.home);
    expect((await runOf(id, operator)).allowedActions).toEqual(['QUEUE', 'CANCEL']);
    await queue(operator, id);
    await api.db.query('UPDATE rule_run SET paused = true WHERE id = $1', [id]);
    expect(await runOf(id, operator)).toMatchObject({ paused: true, allowedActions: ['CANCEL', 'RESUME'] });
  });

  test('tells its rate and the time left while it is applied', async () => {
    const id = await makeRun(operator, api.world.home, { targets: targetsOf(4) });
    await queue(operator, id);
    await api.db.query(`UPDATE rule_run SET status = 'APPLYING' WHERE id = $1`, [id]);
    await api.db.query(
      `UPDATE rule_target SET status = 'APPLYING', attempts = 1, lease_owner = 'w', lease_epoch = 1,
         lease_until = now() + interval '1 minute' WHERE run_id = $1`,
      [id],
    );
    expect(await runOf(id)).toMatchObject({ progress: 0, ratePerSecond: 0, etaSeconds: null });
    await api.db.query(
      `UPDATE rule_target SET status = 'APPLIED' WHERE run_id = $1 AND external_id IN ('sku-1', 'sku-2')`,
      [id],
    );
    const run = await runOf(id);
    expect(run).toMatchObject({ progress: 0.5, counts: { applied: 2, applying: 2 } });
    // Two settled within the last moments, over at least a second.
    expect(run.ratePerSecond).toBeGreaterThan(0);
    expect(run.ratePerSecond).toBeLessThanOrEqual(2);
    expect(run.etaSeconds).toBeCloseTo(2 / run.ratePerSecond!, 6);
  });

  test('tells its rate and the time left also while it is set back, all of it or some', async () => {
    const id = await makeRun(operator, api.world.home, { targets: targetsOf(4) });
    await queue(operator, id);
    const { db } = api;
    const claim = await claimTargets(db, { runId: id, workerId: 'w', limit: 4, leaseMs: 60_000 });
    const succeed = (some: Claim) =>
      settleIfClaimed(
        db,
        some,
        some.targets.map(({ id: targetId }) => ({ targetId, settlement: { event: 'succeed' } as const })),
      );
    await succeed(claim!);
    const ask = (targetIds: string[] | null) =>
      rollBackRuleRun(db, api.world.home.viewer, {
        runId: id,
        targetIds,
        onConflict: 'SKIP',
        idempotencyKey: null,
      });
    await ask([claim!.targets[0]!.id, claim!.targets[1]!.id]);
    expect(await runOf(id)).toMatchObject({ status: 'APPLIED', ratePerSecond: 0, etaSeconds: null });
    await succeed((await claimTargets(db, { runId: id, workerId: 'w', limit: 1, leaseMs: 60_000 }))!);
    const some = await runOf(id);
    expect(some.ratePerSecond).toBeGreaterThan(0);
    expect(some.ratePerSecond).toBeLessThanOrEqual(1);
    expect(some.etaSeconds).toBeCloseTo(1 / some.ratePerSecond!, 6);
    await ask(null);
    await succeed((await claimTargets(db, { runId: id, workerId: 'w', limit: 1, leaseMs: 60_000 }))!);
    const all = await runOf(id);
    expect(all.etaSeconds).toBeCloseTo(2 / all.ratePerSecond!, 6);
  });

  test('shows its rule as it was then, and its reconciliations newest first', async () => {
    const run = await createRuleRun(api.db, api.world.home.viewer, newRuleRun(api.world.home));
    const rule = { id: run.id, name: 'Spring', version: 3, definition: { adjust: 1 } };
    const snapshot = { ...rule, projectId: 'default', enabled: true, priority: 0 };
    await api.db.query('UPDATE rule_run SET rule_snapshot = $2 WHERE id = $1', [run.id, snapshot]);
    const mismatch = { targetId: '1', externalId: 'sku-1', expected: 1500, actual: null, difference: null };
    for (const [index, trigger] of ['immediate', 'manual'].entries()) {
      await api.db.query(
        `INSERT INTO reconciliation_report (id, tenant_id, run_id, trigger, total_checked, mismatches, details)
         VALUES ($1, 'default', $2, $3, 3, 1, $4)`,
        [run.id.replace(/.$/, String(index)), run.id, trigger, JSON.stringify([mismatch])],
      );
    }
    const shown = await runOf(run.id);
    expect(shown.rule).toEqual(rule);
    expect(shown.reconciliations.map(({ trigger }) => trigger)).toEqual(['manual', 'immediate']);
    expect(shown.reconciliations[0]).toMatchObject({ totalChecked: 3, mismatches: 1, details: [mismatch] });
  });

  test('shows the newest of very many reconciliations, and of what they found as much as is asked for', async () => {
    const { id } = await createRuleRun(api.db, api.world.home.viewer, newRuleRun(api.world.home));
    const found = [1, 2, 3].map((n) => ({
      targetId: `${n}`,
      externalId: `sku-${n}`,
      expected: 1,
      actual: 2,
    }));
    const unread = { targetId: '4', externalId: 'sku-4', code: 'INVALID', message: 'no' };
    await api.db.query(
      `INSERT INTO reconciliation_report (id, tenant_id, run_id, trigger, total_checked, mismatches, unread, details)
       SELECT ('018f0000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'default', $1, 'manual', n, 3, 1, $2
       FROM generate_series(1, 40) AS n`,
      [id, JSON.stringify([found[0], unread, found[1], found[2]])],
    );
    const query = `query ($id: ID!, $first: Int) { ruleRun(id: $id) { reconciliations {
      totalChecked details(first: $first) { externalId } unread unreadItems(first: 5) { externalId code message } } } }`;
    interface Shown {
      ruleRun: { reconciliations: Record<string, unknown>[] };
    }
    const { data } = await viewer.send<Shown>(query, { id, first: 2 });
    const reports = data!.ruleRun.reconciliations;
    expect(reports.map(({ totalChecked }) => totalChecked)).toEqual(
      Array.from({ length: 32 }, (_, n) => 40 - n),
    );
    const { targetId: _, ...shownUnread } = unread;
    expect(reports[0]).toMatchObject({
      details: [{ externalId: 'sku-1' }, { externalId: 'sku-2' }],
      unread: 1,
      unreadItems: [shownUnread],
    });
    const { errors } = await viewer.send(query, { id, first: 10_001 });
    expect(errors![0]!.extensions.code).toBe('BAD_USER_INPUT');
  });
});
