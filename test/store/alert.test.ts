// The evaluation of alerts over real rows: what is measured, per tenant and by its own figures, and that an
// alert is one row however many evaluate.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import type { Settlement } from '../../src/domain/rule-target.js';
import { evaluateAlerts, forgetOldAlerts, listAlerts } from '../../src/store/alert.js';
import { listPolicies, savePolicy, type PolicyInput } from '../../src/store/alert-policy.js';
import type { Database } from '../../src/store/db.js';
import { claimTargets } from '../../src/store/claim.js';
import { readFacts } from '../../src/store/facts.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { until } from '../support/app.js';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
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

async function setBack(runId: string): Promise<void> {
  const request = { runId, targetIds: null, onConflict: 'SKIP', idempotencyKey: null } as const;
  await rollBackRuleRun(database.db, world.home.viewer, request);
  const claim = await claimTargets(database.db, { runId, workerId: 'w', limit: 100, leaseMs: 60_000 });
  const settled = claim!.targets.map(({ id: targetId }) => ({
    targetId,
    settlement: { event: 'succeed' } as const,
  }));
  await settleIfClaimed(database.db, claim!, settled);
}

async function evaluate(db = database.db): Promise<string[]> {
  const changes: string[] = [];
  await evaluateAlerts(db, ({ event, alert }) => changes.push(`${event} ${alert.tenantId} ${alert.policy}`));
  return changes.sort();
}

function throttle(tenantId: string, times: number): Promise<unknown> {
  return query(
    `INSERT INTO channel_throttle (tenant_id, channel_id, count) SELECT tenant_id, id, $2 FROM channel WHERE tenant_id = $1`,
    [tenantId, times],
  );
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

  test('what is rolled back long after counts no more than before; what is rolled back at once still counts', async () => {
    const old = await endRun(world.home, 5, 5);
    const back = `- interval '3 days'`;
    await query(
      `UPDATE rule_run SET created_at = created_at ${back}, queued_at = queued_at ${back},
       started_at = started_at ${back}, finished_at = finished_at ${back} WHERE id = $1`,
      [old],
    );
    await setBack(old);
    expect(await evaluate()).toEqual([]);
    expect((await readFacts(database.db)).recent).toEqual({ applied: 0, failed: 0 });
    await setBack(await endRun(world.home, 5, 5));
    expect(await evaluate()).toEqual(['fire default CRITICAL_SUCCESS_RATE', 'fire default LOW_SUCCESS_RATE']);
    expect((await readFacts(database.db)).recent).toEqual({ applied: 5, failed: 5 });
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

  test('that nobody can retry any more are no backlog', async () => {
    const runId = await endRun(world.home, 2000, 51);
    expect(await evaluate()).toEqual(['fire default DLQ_BACKLOG']);
    await query('UPDATE rule_run SET auto_revert_at = finished_at WHERE id = $1', [runId]);
    expect(await evaluate()).toEqual(['resolve default DLQ_BACKLOG']);
    await query('UPDATE rule_run SET auto_revert_at = NULL WHERE id = $1', [runId]);
    await query('DELETE FROM alert');
    expect(await evaluate()).toEqual(['fire default DLQ_BACKLOG']);
    const request = { runId, idempotencyKey: null, targetIds: null, onConflict: 'SKIP' } as const;
    await rollBackRuleRun(database.db, world.home.viewer, request);
    expect(await evaluate()).toEqual(['resolve default DLQ_BACKLOG']);
  });
});

describe('what resolved long ago', () => {
  const alerts = () => query('SELECT policy FROM alert ORDER BY policy');
  const age = (days: number) =>
    query(
      `UPDATE alert SET fired_at = fired_at - $1 * interval '1 day', resolved_at = resolved_at - $1 * interval '1 day'`,
      [days],
    );

  beforeEach(async () => {
    await query(`INSERT INTO alert_sink (id, tenant_id, name, kind, severities)
      VALUES (gen_random_uuid(), 'default', 's', 'WEBHOOK', '{WARNING}')`);
    await throttle('default', 4);
    await evaluate();
    await query(`UPDATE channel_throttle SET at = at - interval '10 minutes'`);
    expect(await evaluate()).toEqual(['resolve default THROTTLE_BURST']);
    await age(91);
  });

  test('is forgotten, but not before it is told', async () => {
    await forgetOldAlerts(database.db);
    expect(await alerts()).toHaveLength(1);
    await query('UPDATE alert_notice SET next_attempt_at = NULL');
    await forgetOldAlerts(database.db);
    expect(await alerts()).toEqual([]);
  });

  test('is not what a clock that leaps makes look old', async () => {
    await query('UPDATE alert_notice SET next_attempt_at = NULL');
    // The last look was before the leap.
    await query(`INSERT INTO retention_clock (seen_at) VALUES (now() - interval '91 days')
      ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, held_until = NULL`);
    await forgetOldAlerts(database.db);
    await forgetOldAlerts(database.db);
    expect(await alerts()).toHaveLength(1);
  });
});

describe('429', () => {
  test('three in five minutes are well, four are a burst', async () => {
    await throttle('default', 3);
    expect(await evaluate()).toEqual([]);
    await throttle('default', 1);
    expect(await evaluate()).toEqual(['fire default THROTTLE_BURST']);
    await query(`UPDATE channel_throttle SET at = at - interval '5 minutes'`);
    expect(await evaluate()).toEqual(['resolve default THROTTLE_BURST']);
  });
});

test('what a clock wrote that had run ahead does not stay within the windows for as long', async () => {
  await endRun(world.home, 1, 9);
  await throttle('default', 4);
  const policies = ['CRITICAL_SUCCESS_RATE', 'LOW_SUCCESS_RATE', 'THROTTLE_BURST'];
  expect((await evaluate()).sort()).toEqual(policies.map((policy) => `fire default ${policy}`));
  await query(`UPDATE rule_run SET finished_at = finished_at + interval '1 year'`);
  expect((await readFacts(database.db)).recent).toEqual({ applied: 0, failed: 0 });
  await query(`UPDATE channel_throttle SET at = at + interval '1 year'`);
  expect((await evaluate()).sort()).toEqual(policies.map((policy) => `resolve default ${policy}`));
});

describe('an open circuit', () => {
  const openFor = (tenant: Tenant, seconds: number): Promise<unknown> =>
    query(
      `UPDATE channel SET circuit = 'OPEN', circuit_open_until = clock_timestamp() + $2 * interval '1 second'
       WHERE id = $1`,
      [tenant.channelId, seconds],
    );

  test('is told of by its channel’s name, to its tenant, while nothing is sent', async () => {
    await openFor(world.home, 60);
    expect(await evaluate()).toEqual(['fire default CIRCUIT_OPEN']);
    expect(await query('SELECT subject, severity, message FROM alert')).toEqual([
      {
        subject: world.home.channelId,
        severity: 'WARNING',
        message: 'The channel shop asked for fewer calls too often in a row, and gets none for a while',
      },
    ]);
    expect(await evaluate()).toEqual([]);
    // Nothing more is to be sent, so nobody looks whether it would close.
    await openFor(world.home, 0);
    expect(await evaluate()).toEqual(['resolve default CIRCUIT_OPEN']);
  });

  test('is another alert for another channel, and none while one batch is let through', async () => {
    await openFor(world.other, 60);
    await openFor(world.home, 60);
    await query(`UPDATE channel SET circuit = 'HALF_OPEN' WHERE id = $1`, [world.home.channelId]);
    expect(await evaluate()).toEqual(['fire other CIRCUIT_OPEN']);
  });
});

describe('a failed pipeline', () => {
  test('is told per source, and stands until a run of it completes', async () => {
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
    // Neither a newer run that goes on, nor one that was cancelled, nor a second try says that it is well.
    await makeRowIn(database.db, world.home, pipelineRunMachine, 'WORKERS_RUNNING');
    await makeRowIn(database.db, world.home, pipelineRunMachine, 'CANCELLED');
    expect(await evaluate()).toEqual([]);
    await fire(database.db, failed, 'retry_partitions');
    expect(await evaluate()).toEqual([]);
    for (const event of ['consolidate', 'complete']) await fire(database.db, failed, event);
    expect(await evaluate()).toEqual(['resolve default PIPELINE_FAILED']);
  });

  test('is over also where the run completed before the alert was written', async () => {
    const failed = await makeRowIn(database.db, world.home, pipelineRunMachine, 'FAILED');
    const holder = await connect(database.url);
    await holder.query('BEGIN; LOCK TABLE alert IN SHARE MODE');
    const fired = evaluate();
    await until(
      async () => (await holder.query('SELECT 1 FROM pg_locks WHERE NOT granted')).rowCount,
      (count) => count === 1,
    );
    for (const event of ['retry_partitions', 'consolidate', 'complete']) {
      await fire(database.db, failed, event);
    }
    await holder.query('COMMIT');
    await holder.end();
    expect(await fired).toEqual(['fire default PIPELINE_FAILED']);
    expect(await evaluate()).toEqual(['resolve default PIPELINE_FAILED']);
  });

  test('fires also where the next run has begun before anybody looked', async () => {
    await makeRowIn(database.db, world.home, pipelineRunMachine, 'FAILED');
    await makeRowIn(database.db, world.home, pipelineRunMachine, 'WORKERS_RUNNING');
    expect(await evaluate()).toEqual(['fire default PIPELINE_FAILED']);
  });

  test('is told per run where others drive it by SQL, for a day', async () => {
    await query(`UPDATE source SET kind = 'external' WHERE tenant_id = 'default'`);
    const failed = await makeRowIn(database.db, world.home, pipelineRunMachine, 'FAILED');
    await makeRowIn(database.db, world.home, pipelineRunMachine, 'COMPLETED');
    const other = await makeRowIn(database.db, world.home, pipelineRunMachine, 'FAILED');
    expect(await evaluate()).toEqual(['fire default PIPELINE_FAILED', 'fire default PIPELINE_FAILED']);
    const alerts = await query('SELECT subject, message FROM alert ORDER BY subject');
    expect(alerts).toEqual(
      [failed.id, other.id].sort().map((id) => ({ subject: id, message: `Pipeline run ${id} failed` })),
    );
    await fire(database.db, failed, 'retry_partitions');
    expect(await evaluate()).toEqual(['resolve default PIPELINE_FAILED']);
    await query(
      `UPDATE run_metadata SET started_at = NULL, finished_at = finished_at - interval '25 hours' WHERE status = 'FAILED'`,
    );
    expect(await evaluate()).toEqual(['resolve default PIPELINE_FAILED']);
  });
});

describe('a transaction that stays open', () => {
  const age = async (seconds: number): Promise<void> => {
    await query('DELETE FROM alert_policy');
    await save({ policy: 'OLD_TRANSACTION', threshold: seconds });
  };

  test('is told to whoever operates the server, with who holds it, while it holds back vacuum', async () => {
    await age(0);
    expect(await evaluate()).toEqual([]);
    const holder = await connect(database.url);
    await holder.query(`SET application_name = 'report'`);
    await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await holder.query('SELECT 1');
    expect(await evaluate()).toEqual(['fire default OLD_TRANSACTION']);
    const [alert] = await query('SELECT message FROM alert');
    expect(alert!['message']).toMatch(
      /^A transaction is open for \d+ s, more than 0: the session \d+ of report$/,
    );
    await holder.end();
    await until(
      () => evaluate(),
      (changes) => changes.includes('resolve default OLD_TRANSACTION'),
    );
  });

  test('for less than ten minutes is nothing, and it is no other tenant’s business', async () => {
    const holder = await connect(database.url);
    await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await holder.query('SELECT 1');
    expect(await evaluate()).toEqual([]);
    await holder.end();
    const policies = await listPolicies(database.db, world.other.viewer);
    expect(policies.map(({ policy }) => policy)).not.toContain('OLD_TRANSACTION');
    const refused = await faultOf(save({ policy: 'OLD_TRANSACTION' }, world.other));
    expect(refused).toMatchObject({ code: 'INVALID_INPUT' });
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

  test('nor again within the rest, by one who looked before it fired and was over', async () => {
    await throttle('default', 4);
    const late: Database = Object.create(database.db, {
      query: {
        value: async (sql: string, values: unknown[]) => {
          if (sql.includes('INSERT INTO alert ')) {
            expect(await evaluate()).toEqual(['fire default THROTTLE_BURST']);
            await query(`UPDATE channel_throttle SET at = at - interval '10 minutes'`);
            expect(await evaluate()).toEqual(['resolve default THROTTLE_BURST']);
          }
          return database.db.query(sql, values);
        },
      },
    });
    expect(await evaluate(late)).toEqual([]);
    expect(await query('SELECT 1 FROM alert')).toHaveLength(1);
  });

  test('a policy that cannot be evaluated keeps no other waiting, and is told', async () => {
    await throttle('default', 4);
    const broken: Database = Object.create(database.db, {
      query: {
        value: async (sql: string, values: unknown[]) => {
          if (sql.includes('failed_count > 0')) throw new Error('out of order');
          return database.db.query(sql, values);
        },
      },
    });
    const told: string[] = [];
    const evaluating = evaluateAlerts(broken, ({ alert }) => told.push(alert.policy));
    expect(await faultOf(evaluating)).toMatchObject({ errors: [{}, {}] });
    expect(told).toEqual(['THROTTLE_BURST']);
  });

  test('resolves when the clock was put back since it fired', async () => {
    await throttle('default', 4);
    await evaluate();
    await query(`UPDATE alert SET fired_at = fired_at + interval '1 hour'`);
    await query('DELETE FROM channel_throttle');
    expect(await evaluate()).toEqual(['resolve default THROTTLE_BURST']);
    // And rests by the clock as it is now, however far ahead the other one ended.
    await throttle('default', 4);
    expect(await evaluate()).toEqual(['fire default THROTTLE_BURST']);
  });

  test('that cannot be changed keeps no other tenant waiting, and is told', async () => {
    await throttle('default', 4);
    await throttle('other', 4);
    const broken: Database = Object.create(database.db, {
      query: {
        value: async (sql: string, values: unknown[]) => {
          if (sql.includes('INSERT INTO alert ') && values.includes('default'))
            throw new Error('out of order');
          return database.db.query(sql, values);
        },
      },
    });
    const told: string[] = [];
    const evaluating = evaluateAlerts(broken, ({ alert }) => told.push(alert.tenantId));
    expect(await faultOf(evaluating)).toMatchObject({ errors: [{ message: 'out of order' }] });
    expect(told).toEqual(['other']);
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
      { policy: 'CIRCUIT_OPEN', threshold: 0 },
      { policy: 'PIPELINE_FAILED', threshold: 0 },
      { policy: 'OLD_TRANSACTION', threshold: 600, windowSeconds: null },
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
