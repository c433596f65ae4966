// The evaluation of alerts over real rows: what is measured, per tenant and by its own figures, and that an
// alert is one row however many evaluate.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import type { Settlement } from '../../src/domain/rule-target.js';
import { evaluateAlerts, listAlerts } from '../../src/store/alert.js';
import { listPolicies, savePolicy, type PolicyInput } from '../../src/store/alert-policy.js';
import { claimTargets } from '../../src/store/claim.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import {
  fire,
  makeQueuedRun,
  makeRowIn,
  seedWorld,
  targetsOf,
  type Tenant,
  type World,
} from '../support/fixtures.js';
import { faultOf } from './rows.js';

let database: TestDatabase;
let world: World;

beforeEach(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterEach(() => database.drop());

const query = (sql: string, values: unknown[] = []) => database.db.query(sql, values);

/** A run that ended with so many of its targets applied and so many failed. */
async function endRun(tenant: Tenant, applied: number, failed: number): Promise<string> {
  const { id: runId } = await makeQueuedRun(database.db, tenant, { targets: targetsOf(applied + failed) });
  const claim = await claimTargets(database.db, {
    runId,
    workerId: 'w',
    limit: applied + failed,
    leaseMs: 60_000,
  });
  const exhaust: Settlement = { event: 'exhaust', code: 'AUTH', message: 'no' };
  const settled = claim!.targets.map(({ id: targetId }, index) => ({
    targetId,
    settlement: index < applied ? ({ event: 'succeed' } as const) : exhaust,
  }));
  await settleIfClaimed(database.db, claim!, settled);
  return runId;
}

async function evaluate(): Promise<string[]> {
  const changes = await evaluateAlerts(database.db);
  return changes.map(({ event, alert }) => `${event} ${alert.tenantId} ${alert.policy}`).sort();
}

function throttle(tenantId: string, times: number): Promise<unknown> {
  return query('UPDATE channel SET consecutive_429 = consecutive_429 + $2 WHERE tenant_id = $1', [
    tenantId,
    times,
  ]);
}

const save = (input: Partial<PolicyInput> & Pick<PolicyInput, 'policy'>, tenant = world.home) =>
  savePolicy(database.db, tenant.viewer, {
    enabled: true,
    threshold: null,
    windowSeconds: null,
    cooldownSeconds: null,
    ...input,
  });

test('nothing fires where nothing happened', async () => {
  expect(await evaluate()).toEqual([]);
});

describe('success rate', () => {
  test('97 of 100 is well, 96 is low, 89 is critical', async () => {
    await endRun(world.home, 97, 3);
    expect(await evaluate()).toEqual([]);
    await endRun(world.other, 96, 4);
    expect(await evaluate()).toEqual(['fire other LOW_SUCCESS_RATE']);
    await endRun(world.other, 82, 18);
    expect(await evaluate()).toEqual(['fire other CRITICAL_SUCCESS_RATE']);
    expect(await evaluate()).toEqual([]);
  });

  test('a run under way is judged by what is settled', async () => {
    const { id: runId } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(10) });
    const claim = await claimTargets(database.db, { runId, workerId: 'w', limit: 1, leaseMs: 60_000 });
    await settleIfClaimed(database.db, claim!, [
      { targetId: claim!.targets[0]!.id, settlement: { event: 'exhaust', code: 'AUTH', message: 'no' } },
    ]);
    expect(await evaluate()).toEqual(['fire default CRITICAL_SUCCESS_RATE', 'fire default LOW_SUCCESS_RATE']);
  });

  test('what ended before the window does not count, and the window is the tenant’s', async () => {
    const runId = await endRun(world.home, 0, 10);
    const back = `- interval '2 hours'`;
    await query(
      `UPDATE rule_run SET created_at = created_at ${back}, queued_at = queued_at ${back},
       started_at = started_at ${back}, finished_at = finished_at ${back} WHERE id = $1`,
      [runId],
    );
    expect(await evaluate()).toEqual([]);
    await save({ policy: 'LOW_SUCCESS_RATE', windowSeconds: 3 * 3600 });
    expect(await evaluate()).toEqual(['fire default LOW_SUCCESS_RATE']);
  });
});

describe('dead letters', () => {
  test('50 are well, 51 are a backlog, 101 are critical; each tenant has its own', async () => {
    await endRun(world.home, 2000, 50);
    expect(await evaluate()).toEqual([]);
    await endRun(world.home, 100, 1);
    expect(await evaluate()).toEqual(['fire default DLQ_BACKLOG']);
    await endRun(world.home, 2000, 50);
    expect(await evaluate()).toEqual(['fire default DLQ_CRITICAL']);
  });
});

describe('429', () => {
  test('three in five minutes are well, four are a burst', async () => {
    await throttle('default', 3);
    expect(await evaluate()).toEqual([]);
    await query('UPDATE channel SET consecutive_429 = 0');
    await throttle('default', 1);
    expect(await evaluate()).toEqual(['fire default THROTTLE_BURST']);
    await query(`UPDATE channel_throttle SET at = at - interval '5 minutes'`);
    expect(await evaluate()).toEqual(['resolve default THROTTLE_BURST']);
  });
});

describe('a failed pipeline', () => {
  test('is told per source, and is over when the source has a newer run', async () => {
    const failed = await makeRowIn(database.db, world.home, pipelineRunMachine, 'FAILED');
    expect(await evaluate()).toEqual(['fire default PIPELINE_FAILED']);
    const { nodes } = await listAlerts(database.db, world.home.viewer, {
      first: 10,
      after: null,
      filter: { isFiring: true, policy: null },
    });
    expect(nodes).toMatchObject([
      {
        subject: world.home.sourceId,
        severity: 'CRITICAL',
        message: expect.stringContaining('feed') as string,
      },
    ]);
    await fire(database.db, failed, 'retry_partitions');
    expect(await evaluate()).toEqual(['resolve default PIPELINE_FAILED']);
  });
});

describe('one alert', () => {
  test('however many evaluate at once', async () => {
    await endRun(world.home, 0, 60);
    const changes = (await Promise.all(Array.from({ length: 5 }, () => evaluate()))).flat();
    expect(changes.sort()).toEqual([
      'fire default CRITICAL_SUCCESS_RATE',
      'fire default DLQ_BACKLOG',
      'fire default LOW_SUCCESS_RATE',
    ]);
    expect(await query('SELECT 1 FROM alert')).toHaveLength(3);
  });

  test('rests after it has resolved, for as long as the tenant says', async () => {
    await save({ policy: 'THROTTLE_BURST', cooldownSeconds: 600 });
    await throttle('default', 4);
    await evaluate();
    await query(`UPDATE channel_throttle SET at = at - interval '6 minutes'`);
    expect(await evaluate()).toEqual(['resolve default THROTTLE_BURST']);
    await throttle('default', 4);
    expect(await evaluate()).toEqual([]);
    await query(
      `UPDATE alert SET fired_at = fired_at - interval '11 minutes', resolved_at = resolved_at - interval '11 minutes'`,
    );
    expect(await evaluate()).toEqual(['fire default THROTTLE_BURST']);
  });
});

describe('policies', () => {
  test('are the documented ones until a tenant has set its own', async () => {
    expect(await listPolicies(database.db, world.home.viewer)).toMatchObject([
      { policy: 'LOW_SUCCESS_RATE', enabled: true, threshold: 97, cooldownSeconds: 300 },
      { threshold: 90 },
      { threshold: 50, windowSeconds: null },
      { threshold: 100 },
      { threshold: 3, windowSeconds: 300 },
      { policy: 'PIPELINE_FAILED', threshold: 0 },
    ]);
    await save({ policy: 'DLQ_BACKLOG', threshold: 5 });
    await save({ policy: 'DLQ_CRITICAL', enabled: false });
    await endRun(world.home, 1000, 10);
    await endRun(world.other, 1000, 10);
    expect(await evaluate()).toEqual(['fire default DLQ_BACKLOG']);
    await save({ policy: 'DLQ_BACKLOG', enabled: false });
    expect(await evaluate()).toEqual(['resolve default DLQ_BACKLOG']);
  });

  test.each<[string, Partial<PolicyInput> & Pick<PolicyInput, 'policy'>]>([
    ['a threshold below zero', { policy: 'DLQ_BACKLOG', threshold: -1 }],
    ['a threshold that is no number', { policy: 'DLQ_BACKLOG', threshold: Number.NaN }],
    ['a window of no time', { policy: 'LOW_SUCCESS_RATE', windowSeconds: 0 }],
    ['a window for what is so now', { policy: 'DLQ_BACKLOG', windowSeconds: 600 }],
    ['a cool-down of a week', { policy: 'DLQ_BACKLOG', cooldownSeconds: 7 * 86_400 }],
  ])('%s is refused', async (_, input) => {
    expect(await faultOf(save(input))).toMatchObject({ code: 'INVALID_INPUT' });
    expect(await query('SELECT 1 FROM alert_policy')).toEqual([]);
  });
});
