// A clock that had run ahead and was put right: what was set to come in the time that was taken back comes all the same.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { partitionMachine } from '../../src/domain/partition.js';
import { clockWatchJob } from '../../src/runner/clock-watch.js';
import { claimTargets, findClaimableRun } from '../../src/store/claim.js';
import { recoverLeases } from '../../src/store/recover.js';
import { endStaleOpsRuns } from '../../src/store/stale-ops-run.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, makeRowIn, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { KeptLog } from './support.js';

const NEVER = new AbortController().signal;

let database: TestDatabase;
let world: World;
let log: KeptLog;

beforeEach(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  log = new KeptLog();
  await watch();
});
afterEach(() => database.drop());

const query = (sql: string, values: unknown[] = []) => database.db.query(sql, values);
const watch = () => clockWatchJob(database.db, log).run(NEVER);

/** As if all that the given columns hold had been written by a clock that ran so far ahead, and was put right now. */
async function putClockBack(ahead: string, columns: Readonly<Record<string, readonly string[]>>) {
  for (const [table, times] of Object.entries(columns)) {
    const moved = times.map((time) => `${time} = ${time} + interval '${ahead}'`);
    await query(`UPDATE ${table} SET ${moved.join(', ')}`);
  }
  await query(`UPDATE clock_mark SET seen_at = clock_timestamp() + interval '${ahead}'`);
}

test.each(['1 hour', '400 days'])(
  'a rule run: its retries, and what a lost worker holds (%s)',
  async (ahead) => {
    const { id } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(2) });
    const claim = () => claimTargets(database.db, { runId: id, workerId: 'w', limit: 2, leaseMs: 1 });
    const lost = (await claim())!;
    const [first, second] = lost.targets.map((target) => target.id);
    const retry = { event: 'retry', delayMs: 60_000, code: 'UPSTREAM', message: 'no' } as const;
    await settleIfClaimed(database.db, lost, [{ targetId: first!, settlement: retry }]);
    await putClockBack(ahead, {
      rule_target: ['next_attempt_at', 'lease_until'],
      rule_run: ['next_claim_at', 'lease_floor'],
    });
    expect(await findClaimableRun(database.db)).toBeNull();
    expect(await recoverLeases(database.db, [])).toBe(0);
    await watch();
    expect(log.entries).toMatchObject([
      { level: 'warn', message: expect.stringContaining('clock') as string, details: { count: 3 } },
    ]);
    await until(
      () => recoverLeases(database.db, []),
      (recovered) => recovered === 1,
    );
    expect((await findClaimableRun(database.db))?.runId).toBe(id);
    expect((await claim())!.targets).toMatchObject([{ id: second }]);
    expect(
      await query(
        `SELECT next_attempt_at BETWEEN now() AND now() + interval '2 minutes' AS soon FROM rule_target WHERE id = $1`,
        [first],
      ),
    ).toEqual([{ soon: true }]);
    await watch();
    expect(log.entries).toHaveLength(1);
  },
);

test('a channel: its budget, its circuit’s rest and its slots', async () => {
  await query(`UPDATE channel SET bucket_at = now(), bucket_tokens = 0, bucket_capacity = 10, bucket_restore_per_s = 1,
    circuit = 'OPEN', circuit_open_until = now() + interval '1 minute',
    slots = jsonb_build_object('w#1', now() + interval '400 days 1 minute')`);
  await putClockBack('400 days', { channel: ['bucket_at', 'circuit_open_until'] });
  await watch();
  expect(
    await query(
      `SELECT bucket_at BETWEEN now() - interval '1 minute' AND clock_timestamp() AS bucket,
         circuit_open_until < now() + interval '2 minutes' AS circuit,
         (slots ->> 'w#1')::timestamptz < now() + interval '2 minutes' AS slot
       FROM channel WHERE tenant_id = 'default'`,
    ),
  ).toEqual([{ bucket: true, circuit: true, slot: true }]);
});

test('a pipeline run, and an ops run whose worker fell silent', async () => {
  const { id } = await makeRowIn(database.db, world.home, partitionMachine, 'pending');
  const ops = await makeRowIn(database.db, world.home, opsRunMachine, 'claimed');
  await query(`UPDATE worker_runs SET next_attempt_at = now() + interval '1 minute' WHERE id = $1`, [id]);
  await putClockBack('400 days', {
    worker_runs: ['next_attempt_at'],
    ops_run: ['queued_at', 'started_at', 'heartbeat_at'],
  });
  await watch();
  expect(
    await query(
      `SELECT next_attempt_at < now() + interval '2 minutes' AS back FROM worker_runs WHERE id = $1`,
      [id],
    ),
  ).toEqual([{ back: true }]);
  const patience = { claimMs: 0, silenceMs: 0 };
  expect(await endStaleOpsRuns(database.db, patience)).toEqual({ cancelled: 1, requeued: 0 });
  expect(await query('SELECT status FROM ops_run WHERE id = $1', [ops.id])).toEqual([
    { status: 'cancelled' },
  ]);
});

test('what alert sinks and webhooks are still to be sent', async () => {
  const sink = `INSERT INTO alert_sink (id, tenant_id, name, kind, severities)
    VALUES (gen_random_uuid(), 'default', 's', 'WEBHOOK', '{WARNING}') RETURNING id`;
  const [{ id: sinkId }] = (await query(sink)) as [{ id: string }];
  await query(`INSERT INTO alert_notice (tenant_id, sink_id, event) VALUES ('default', $1, 'TEST')`, [
    sinkId,
  ]);
  const soon = `now() + interval '10 seconds'`;
  await query(
    `INSERT INTO webhook_endpoint (id, tenant_id, name, kinds, event_types, next_attempt_at, ping_at)
     VALUES (gen_random_uuid(), 'default', 'w', '{RULE}', '{*}', ${soon}, ${soon})`,
  );
  const { id } = await makeQueuedRun(database.db, world.home);
  await query(
    `INSERT INTO webhook_cursor (endpoint_id, run_id, waiting_since, next_attempt_at, lease_until)
     SELECT id, $1, now(), ${soon}, ${soon} FROM webhook_endpoint`,
    [id],
  );
  await putClockBack('30 minutes', {
    alert_notice: ['next_attempt_at'],
    webhook_endpoint: ['next_attempt_at', 'ping_at'],
    webhook_cursor: ['next_attempt_at', 'lease_until'],
  });
  await watch();
  const late = `> now() + interval '1 minute'`;
  expect(
    await query(
      `SELECT (SELECT bool_or(next_attempt_at ${late}) FROM alert_notice) AS notice,
         (SELECT bool_or(next_attempt_at ${late} OR ping_at ${late}) FROM webhook_endpoint) AS endpoint,
         (SELECT bool_or(next_attempt_at ${late} OR lease_until ${late}) FROM webhook_cursor) AS cursor`,
    ),
  ).toEqual([{ notice: false, endpoint: false, cursor: false }]);
});

test('what people have set, and what was set by the right clock, stays', async () => {
  const { id } = await makeQueuedRun(database.db, world.home);
  await query(
    `UPDATE rule_run SET start_at = now() + interval '500 days', next_claim_at = now() + interval '1 hour' WHERE id = $1`,
    [id],
  );
  const read = () => query('SELECT start_at, next_claim_at FROM rule_run WHERE id = $1', [id]);
  const before = await read();
  await putClockBack('400 days', {});
  await watch();
  expect(await read()).toEqual(before);
});

test('a clock that goes on is nothing to tell of', async () => {
  await query(`UPDATE clock_mark SET seen_at = seen_at - interval '400 days'`);
  await watch();
  await watch();
  expect(log.entries).toEqual([]);
});
