// The metrics: true to the database, counted where the work is done, bounded in labels and in cost, and shown
// to those who may see them.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { partitionMachine } from '../../src/domain/partition.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import type { Viewer } from '../../src/domain/viewer.js';
import { AppError } from '../../src/errors.js';
import type { Credentials } from '../../src/server/auth.js';
import type { GraphqlServer } from '../../src/server/http.js';
import { Metrics, type MetricsSources } from '../../src/server/metrics.js';
import { claimTargets } from '../../src/store/claim.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { readFacts } from '../../src/store/facts.js';
import { recordHeartbeats } from '../../src/store/worker.js';
import { Database } from '../../src/store/db.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { endedRun } from '../support/retention.js';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, makeRowIn, seedWorld, targetsOf, viewerOf, type World } from '../support/fixtures.js';
import { Stage, startTestServer, testLog } from './support.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

const NO_SOCKETS = { sockets: 0, subscriptions: 0, deliveries: 0, executions: 0 };

function makeMetrics(overrides: Partial<MetricsSources> = {}): Metrics {
  return new Metrics({
    readFacts: () => readFacts(database.db),
    readPool: () => database.db.poolUse,
    isListening: () => true,
    readLeases: () => [],
    log: testLog(new Stage()),
    factsForMs: 0,
    ...overrides,
  });
}

/** Samples by name and labels, as a scraper reads them. */
function parse(text: string): Map<string, number> {
  const samples = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    samples.map((line) => {
      const at = line.lastIndexOf(' ');
      return [line.slice(0, at), Number(line.slice(at + 1))];
    }),
  );
}

const read = async (metrics: Metrics) => parse(await metrics.render(NO_SOCKETS));

describe('facts of the database', () => {
  test('an empty database is all zeros, and nothing has failed', async () => {
    const samples = await read(makeMetrics());
    expect(samples.get('rules_dlq_size')).toBe(0);
    expect(samples.get('rules_apply_success_rate')).toBe(100);
    expect(samples.get('runledger_database_up')).toBe(1);
    for (const kind of ['RULE', 'PIPELINE', 'OPS', 'RECONCILIATION']) {
      expect(samples.get(`runledger_queue_depth{kind="${kind}"}`)).toBe(0);
      expect(samples.get(`runledger_queue_oldest_seconds{kind="${kind}"}`)).toBe(0);
    }
    expect(samples.get('runledger_channels{circuit="CLOSED"}')).toBe(2);
    expect(samples.get('runledger_channels{circuit="OPEN"}')).toBe(0);
  });

  test('targets that wait, are in hand and have failed, over all tenants', async () => {
    const { db } = database;
    const run = await makeQueuedRun(db, world.home, { targets: targetsOf(10) });
    await makeQueuedRun(db, world.other, { targets: targetsOf(5) });
    await db.query(
      `UPDATE rule_run SET queued_at = queued_at - interval '1 hour', created_at = created_at - interval '1 hour' WHERE id = $1`,
      [run.id],
    );
    const claim = await claimTargets(db, { runId: run.id, workerId: 'w', limit: 6, leaseMs: 60_000 });
    const settlements = claim!.targets.slice(0, 4).map(({ id }, index) => ({
      targetId: id,
      settlement:
        index < 3
          ? ({ event: 'succeed' } as const)
          : ({ event: 'exhaust', code: 'AUTH', message: 'no' } as const),
    }));
    await settleIfClaimed(db, claim!, settlements);
    const samples = await read(makeMetrics());
    expect(samples.get('runledger_queue_depth{kind="RULE"}')).toBe(4 + 5);
    expect(samples.get('runledger_leases{kind="RULE"}')).toBe(2);
    expect(samples.get('runledger_queue_oldest_seconds{kind="RULE"}')).toBeGreaterThanOrEqual(3600);
    expect(samples.get('rules_dlq_size')).toBe(1);
    expect(samples.get('rules_apply_success_rate')).toBe(75);
  });

  test('a run that ended long ago counts for the dead letters, not for the rate', async () => {
    const { db } = database;
    const run = await makeQueuedRun(db, world.home, { targets: targetsOf(4) });
    const claim = await claimTargets(db, { runId: run.id, workerId: 'w', limit: 10, leaseMs: 60_000 });
    const settlement = { event: 'exhaust', code: 'AUTH', message: 'no' } as const;
    await settleIfClaimed(
      db,
      claim!,
      claim!.targets.map(({ id }) => ({ targetId: id, settlement })),
    );
    expect((await read(makeMetrics())).get('rules_apply_success_rate')).toBe(37.5);
    const shift = `- interval '2 hours'`;
    await db.query(
      `UPDATE rule_run SET created_at = created_at ${shift}, queued_at = queued_at ${shift},
       started_at = started_at ${shift}, finished_at = finished_at ${shift} WHERE id = $1`,
      [run.id],
    );
    const samples = await read(makeMetrics());
    expect(samples.get('rules_apply_success_rate')).toBe(75);
    expect(samples.get('rules_dlq_size')).toBe(5);
  });

  test('partitions, ops runs, workers and circuits', async () => {
    const { db } = database;
    const part = await makeRowIn(db, world.home, partitionMachine, 'running');
    await db.query(`UPDATE run_metadata SET status = 'WORKERS_RUNNING' WHERE run_id = $1`, [part.runId]);
    await db.query('UPDATE worker_runs SET records_processed = 120 WHERE id = $1', [part.id]);
    await db.query(
      `INSERT INTO partition_progress (run_id, partition_id, tenant_id, updated_at)
       VALUES ($1, 'partition-0', 'default', now() - interval '11 minutes')`,
      [part.runId],
    );
    await makeRowIn(db, world.home, opsRunMachine, 'queued');
    await makeRowIn(db, world.home, opsRunMachine, 'claimed');
    await makeRowIn(db, world.home, opsRunMachine, 'success');
    const home = { host: 'h', pidSpace: '', pid: 1 };
    await recordHeartbeats(db, home, [{ id: 'w1', state: 'PROCESSING', activeLeases: 2 }]);
    await recordHeartbeats(db, home, [{ id: 'w2', state: 'IDLE', activeLeases: 0 }]);
    await db.query(`UPDATE worker SET heartbeat_at = heartbeat_at - interval '1 minute' WHERE id = 'w2'`);
    await db.query(
      // One whose rest is over is tried by the next batch, of which there may be none.
      `UPDATE channel SET circuit = 'OPEN',
         circuit_open_until = now() + CASE tenant_id WHEN 'other' THEN 1 ELSE -1 END * interval '1 minute'`,
    );
    const samples = await read(makeMetrics());
    expect(samples.get('runledger_partitions{status="running"}')).toBe(1);
    expect(samples.get('runledger_partitions{status="pending"}')).toBe(0);
    expect(samples.get('runledger_partitions_stuck')).toBe(1);
    expect(samples.get('runledger_partition_records')).toBe(120);
    expect(samples.get('runledger_queue_depth{kind="OPS"}')).toBe(1);
    expect(samples.get('runledger_leases{kind="OPS"}')).toBe(1);
    expect(samples.get('runledger_workers{state="PROCESSING"}')).toBe(1);
    expect(samples.get('runledger_workers{state="IDLE"}')).toBe(0);
    expect(samples.get('runledger_channels{circuit="OPEN"}')).toBe(1);
    expect(samples.get('runledger_channels{circuit="HALF_OPEN"}')).toBe(1);
  });

  test('what waits of pipelines: partitions also between two pages, and runs to plan or to consolidate', async () => {
    const { db } = database;
    const waits = async () => {
      const { queues } = await readFacts(db);
      const { depth, leased } = queues.find(({ kind }) => kind === 'PIPELINE')!;
      return { depth, leased };
    };
    const before = await waits();
    const expectMore = async (depth: number, leased: number) =>
      expect(await waits()).toEqual({ depth: before.depth + depth, leased: before.leased + leased });
    await makeRowIn(db, world.home, pipelineRunMachine, 'CREATED');
    await makeRowIn(db, world.home, pipelineRunMachine, 'CONSOLIDATING');
    await expectMore(2, 0);
    const part = await makeRowIn(db, world.home, partitionMachine, 'running');
    await db.query(`UPDATE run_metadata SET status = 'WORKERS_RUNNING' WHERE run_id = $1`, [part.runId]);
    await expectMore(3, 0);
    await db.query(
      `UPDATE worker_runs SET lease_owner = 'w', lease_until = now() + interval '1 minute', lease_epoch = 1 WHERE id = $1`,
      [part.id],
    );
    await expectMore(2, 1);
    // What others drive by SQL is theirs to know.
    await db.query(
      `UPDATE worker_runs SET lease_owner = NULL, lease_until = NULL, lease_epoch = NULL WHERE id = $1`,
      [part.id],
    );
    await db.query(`UPDATE source SET kind = 'external' WHERE tenant_id = 'default'`);
    const { depth } = await waits();
    await db.query(`UPDATE source SET kind = 'http' WHERE tenant_id = 'default'`);
    expect(depth).toBe(0);
  });

  test('alerts that fire, and what sinks are still to be told', async () => {
    const { db } = database;
    await db.query(
      `INSERT INTO alert (id, tenant_id, policy, severity, message, value, threshold, resolved_at) VALUES
         (gen_random_uuid(), 'default', 'DLQ_CRITICAL', 'CRITICAL', 'm', 101, 100, NULL),
         (gen_random_uuid(), 'other', 'DLQ_CRITICAL', 'CRITICAL', 'm', 101, 100, NULL),
         (gen_random_uuid(), 'default', 'DLQ_BACKLOG', 'WARNING', 'm', 51, 50, now() + interval '1 second')`,
    );
    await db.query(
      `INSERT INTO alert_sink (id, tenant_id, name, kind, severities) VALUES (gen_random_uuid(), 'default', 's', 'WEBHOOK', '{}')`,
    );
    await db.query(
      `INSERT INTO alert_notice (tenant_id, sink_id, event, next_attempt_at)
       SELECT tenant_id, id, 'TEST', due FROM alert_sink, unnest(ARRAY[now(), NULL]) AS due`,
    );
    const samples = await read(makeMetrics());
    expect(samples.get('runledger_alerts_firing{severity="CRITICAL"}')).toBe(2);
    expect(samples.get('runledger_alerts_firing{severity="WARNING"}')).toBe(0);
    expect(samples.get('runledger_alert_notices_waiting')).toBe(1);
  });

  test('a transaction that stays open is seen', async () => {
    await database.db.transaction('test', async (connection) => {
      await connection.query('SELECT pg_sleep(0.05)');
      const samples = await read(makeMetrics());
      expect(samples.get('runledger_oldest_transaction_seconds')).toBeGreaterThanOrEqual(0.05);
      expect(samples.get('runledger_pool_connections{state="busy"}')).toBeGreaterThanOrEqual(1);
    });
  });
});

describe('what holds back vacuum', () => {
  test('is seen by the number of transactions since', async () => {
    const { db } = database;
    const holder = await connect(database.url);
    await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await holder.query('SELECT 1');
    for (let index = 0; index < 5; index += 1) await db.query('SELECT pg_current_xact_id()');
    const samples = await read(makeMetrics());
    await holder.end();
    expect(samples.get('runledger_oldest_xmin_age')).toBeGreaterThanOrEqual(5);
  });
});

describe('the cost of looking', () => {
  test('many who look at once, and soon after, share one read', async () => {
    let reads = 0;
    const metrics = makeMetrics({
      readFacts: () => {
        reads += 1;
        return readFacts(database.db);
      },
      factsForMs: 60_000,
    });
    await Promise.all(Array.from({ length: 20 }, () => metrics.render(NO_SOCKETS)));
    await metrics.render(NO_SOCKETS);
    expect(reads).toBe(1);
  });

  test('a database that fails hides its gauges, and the process’s own are shown', async () => {
    let isAway = false;
    const metrics = makeMetrics({
      readFacts: () => (isAway ? Promise.reject(new Error('away')) : readFacts(database.db)),
    });
    expect((await read(metrics)).has('rules_dlq_size')).toBe(true);
    isAway = true;
    const samples = await read(metrics);
    expect(samples.get('runledger_database_up')).toBe(0);
    expect(samples.has('rules_dlq_size')).toBe(false);
    expect(samples.has('rules_apply_count')).toBe(true);
    isAway = false;
    expect((await read(metrics)).has('rules_dlq_size')).toBe(true);
  });
});

describe('the queues', () => {
  test('targets to set back, all of a run or some, and comparisons with a channel', async () => {
    const { db } = database;
    const [all, some] = [
      await endedRun(db, world.home, 'APPLIED', 0, 5),
      await endedRun(db, world.home, 'APPLIED', 0, 5),
    ];
    const targets = await db.query<{ id: string }>('SELECT id::text FROM rule_target WHERE run_id = $1', [
      some,
    ]);
    const rollBack = (runId: string, targetIds: string[] | null) =>
      rollBackRuleRun(db, world.home.viewer, { runId, idempotencyKey: null, targetIds, onConflict: 'SKIP' });
    const before = (await read(makeMetrics())).get('runledger_queue_depth{kind="RULE"}')!;
    await rollBack(all, null);
    await rollBack(
      some,
      targets.slice(0, 2).map(({ id }) => id),
    );
    await db.query(`UPDATE rule_run SET rollback_asked_at = now() - interval '3 hours' WHERE id = $1`, [all]);
    const { id } = await makeQueuedRun(db, world.home);
    await db.query(
      `INSERT INTO reconciliation (id, tenant_id, run_id, trigger, actor, created_at)
       VALUES (gen_random_uuid(), 'default', $1, 'manual', 'a', now() - interval '2 hours')`,
      [id],
    );
    const samples = await read(makeMetrics());
    expect(samples.get('runledger_queue_depth{kind="RULE"}')! - before).toBe(5 + 2 + 3);
    expect(samples.get('runledger_queue_oldest_seconds{kind="RULE"}')).toBeGreaterThanOrEqual(3 * 3600);
    expect(samples.get('runledger_queue_depth{kind="RECONCILIATION"}')).toBe(1);
    expect(samples.get('runledger_queue_oldest_seconds{kind="RECONCILIATION"}')).toBeGreaterThanOrEqual(
      2 * 3600,
    );
    await db.query('DELETE FROM reconciliation');
  });

  test('a read that a lock holds up is ended, and its connection is free again', async () => {
    const holder = await connect(database.url);
    await holder.query('BEGIN; LOCK TABLE channel IN ACCESS EXCLUSIVE MODE');
    const db = new Database({ url: database.url, maxConnections: 1 });
    await expect(readFacts(db, { longestMs: 50 })).rejects.toThrow(/statement timeout/);
    expect(await db.query('SELECT 1 AS one')).toEqual([{ one: 1 }]);
    await db.close();
    await holder.end();
  });
});

describe('what this process did', () => {
  test('is counted', async () => {
    const metrics = makeMetrics({ readLeases: () => [3, 0] });
    const { runner } = metrics;
    const before = Object.fromEntries(parse(await metrics.render(NO_SOCKETS)));
    for (const event of ['succeed', 'retry', 'exhaust'])
      expect(before).toMatchObject({ [`runledger_target_outcomes_total{event="${event}"}`]: 0 });
    for (const result of ['taken', 'refused'])
      expect(before).toMatchObject({ [`runledger_webhook_seconds_count{result="${result}"}`]: 0 });
    runner.onClaim('rule_target', 4);
    runner.onSettle({
      kind: 'rule_target',
      ms: 6,
      events: { succeed: 7, retry: 2, exhaust: 1 },
      runMs: null,
    });
    runner.onSettle({ kind: 'rule_target', ms: 6, events: { succeed: 2 }, runMs: 1500 });
    runner.onRecover({ givenUp: 3, runMs: 500 });
    runner.onRecover({ givenUp: 0, runMs: null });
    runner.onSettle({ kind: 'partition', ms: 6, events: { complete: 1 }, runMs: 5 });
    runner.onWork('rule_target', 'failure', 20);
    runner.onThrottle(3);
    metrics.noteLag(-1);
    const samples = parse(
      await metrics.render({ sockets: 2, subscriptions: 5, deliveries: 40, executions: 4 }),
    );
    expect(Object.fromEntries(samples)).toMatchObject({
      rules_apply_count: 15,
      rules_target_retries: 2,
      rules_429_count: 3,
      rules_apply_duration_ms_count: 2,
      rules_apply_duration_ms_sum: 2000,
      'runledger_target_outcomes_total{event="succeed"}': 9,
      'runledger_target_outcomes_total{event="exhaust"}': 4,
      'runledger_claim_seconds_count{kind="rule_target"}': 1,
      'runledger_settle_seconds_count{kind="rule_target"}': 2,
      'runledger_work_seconds_count{kind="rule_target",result="failure"}': 1,
      'runledger_worker_leases{worker="1"}': 3,
      runledger_listener_lag_seconds_sum: 0,
      runledger_listener_up: 1,
      runledger_sockets: 2,
      runledger_subscriptions: 5,
      runledger_deliveries_total: 40,
      runledger_subscription_executions_total: 4,
    });
    expect(samples.has('nodejs_eventloop_lag_p99_seconds')).toBe(true);
  });
});

test('the documented metrics have their names and kinds', async () => {
  const text = await makeMetrics().render(NO_SOCKETS);
  const kinds = new Map(
    [...text.matchAll(/^# TYPE (rules_\S+) (\S+)$/gm)].map(([, name, kind]) => [name, kind]),
  );
  expect(Object.fromEntries(kinds)).toEqual({
    rules_apply_count: 'counter',
    rules_apply_duration_ms: 'histogram',
    rules_apply_success_rate: 'gauge',
    rules_dlq_size: 'gauge',
    rules_target_retries: 'counter',
    rules_429_count: 'counter',
  });
});

test('no label holds an id, a tenant or a name', async () => {
  const text = await makeMetrics().render(NO_SOCKETS);
  expect(text).not.toMatch(/[0-9a-f]{8}-[0-9a-f]{4}|tenant|shop|default/);
});

const KEYS: Readonly<Record<string, Viewer>> = {
  good: viewerOf('default', 'VIEWER'),
  tenant: viewerOf('acme', 'ADMIN'),
  worker: viewerOf('default', 'WORKER'),
};

async function authenticate({ token }: Credentials): Promise<Viewer> {
  const viewer = KEYS[token ?? ''];
  if (!viewer) throw new AppError('UNAUTHENTICATED', 'An API key is needed.');
  return viewer;
}

describe('/metrics', () => {
  let url: string;
  let server: GraphqlServer;

  beforeEach(async () => {
    ({ server } = await startTestServer({ metrics: makeMetrics() }));
    url = new URL('/metrics', server.url).href;
    return () => server.stop();
  });

  test('is for callers on this machine', async () => {
    const answer = await fetch(url);
    expect(answer.status).toBe(200);
    expect(answer.headers.get('content-type')).toContain('text/plain; version=0.0.4');
    expect(await answer.text()).toContain('# TYPE rules_apply_count counter');
  });

  test.each([
    ['no key', undefined, 401],
    ['an unknown key', 'Bearer bad', 401],
    ['a key of the operating tenant', 'Bearer good', 200],
    ['a key of another tenant', 'Bearer tenant', 403],
    ['a worker’s key', 'Bearer worker', 403],
  ])('from elsewhere, %s', async (_, authorization, status) => {
    await server.stop();
    ({ server } = await startTestServer({ metrics: makeMetrics(), authenticate }));
    const headers = { 'x-forwarded-for': '203.0.113.9', ...(authorization ? { authorization } : {}) };
    const answer = await fetch(new URL('/metrics', server.url), { headers });
    expect(answer.status).toBe(status);
  });
});

describe('the dashboard', () => {
  /** Names of metrics, without what a histogram adds to its own. */
  const namesIn = (text: string) =>
    new Set(
      (text.match(/\b(rules|runledger|nodejs|process)_[a-z0-9_]+/g) ?? []).map((name) =>
        name.replace(/_(bucket|sum|count)$/, ''),
      ),
    );

  test('asks for metrics that there are, and for all of ours', async () => {
    const path = fileURLToPath(new URL('../../docs/grafana-dashboard.json', import.meta.url));
    const { panels } = JSON.parse(await readFile(path, 'utf8')) as {
      panels: { targets?: { expr: string }[] }[];
    };
    const asked = namesIn(panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)).join('\n'));
    const text = await makeMetrics().render(NO_SOCKETS);
    const shown = new Set(
      [...text.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1]!.replace(/_count$/, '')),
    );
    expect([...asked].filter((name) => !shown.has(name))).toEqual([]);
    const ours = [...shown].filter((name) => /^(rules|runledger)_/.test(name));
    expect(ours.filter((name) => !asked.has(name))).toEqual([]);
  });

  test('and the guide says what each of ours means', async () => {
    const path = fileURLToPath(new URL('../../docs/guides/operations.md', import.meta.url));
    const told = namesIn(await readFile(path, 'utf8'));
    const text = await makeMetrics().render(NO_SOCKETS);
    const shown = [...text.matchAll(/^# TYPE ((?:rules|runledger)_\S+)/gm)].map(([, name]) => name!);
    expect(shown.filter((name) => !told.has(name.replace(/_count$/, '')))).toEqual([]);
    const ours = [...told].filter((name) => /^(rules|runledger)_/.test(name));
    const names = new Set(shown.map((name) => name.replace(/_count$/, '')));
    expect(ours.filter((name) => !names.has(name))).toEqual([]);
  });
});
