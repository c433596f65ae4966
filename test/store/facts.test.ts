// What looking costs: the reads that every scrape and every evaluation of alerts repeat must stay small however
// much history there is. Judged by what PostgreSQL itself says it has read.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { evaluateAlerts } from '../../src/store/alert.js';
import { claimNotices } from '../../src/store/alert-notice.js';
import { Database } from '../../src/store/db.js';
import { countDeadLettersByCode } from '../../src/store/dead-letter.js';
import { readFacts } from '../../src/store/facts.js';
import { pruneDueRuns } from '../../src/store/prune.js';
import { scheduleReconciliations } from '../../src/store/reconciliation-schedule.js';
import { revertDueRuns } from '../../src/store/roll-back.js';
import { readRunHeadsSince } from '../../src/store/run.js';
import { listDueTicks } from '../../src/store/schedule.js';
import { noticeNews } from '../../src/store/webhook-cursor.js';
import { sweepCursors } from '../../src/store/webhook-sweep.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, type World } from '../support/fixtures.js';
import { keepFor } from '../support/retention.js';

const RUNS = 30_000;
/** Of them, runs that left dead letters. */
const FAILED_RUNS = 500;
/** Runs that left dead letters and were pruned since. */
const PRUNED_RUNS = 2_000;
/** Of the ledger of years, all but a few lines older than an hour. */
const LINES = 60_000;

let database: TestDatabase;
let world: World;
/** One connection: what it has read can be told from what others have. */
let db: Database;

beforeAll(async () => {
  database = await createTestDatabase();
  db = new Database({ url: database.url, maxConnections: 1 });
  world = await seedWorld(database.db);
  await seedHistory();
}, 120_000);
afterAll(async () => {
  await db.close();
  await database.drop();
});

/** A year of runs that are over, of every kind, beside a few that are not. */
async function seedHistory(): Promise<void> {
  const { channelId, sourceId } = world.home;
  // Straight into the tables: the guards would write a ledger that nobody reads here.
  await db.query('SET session_replication_role = replica');
  const past = `now() - interval '2 hours' - n * interval '5 minutes'`;
  await db.query(
    `INSERT INTO rule_run (id, tenant_id, channel_id, status, actor, correlation_id, total_count, applied_count,
       failed_count, created_at, queued_at, started_at, finished_at, reconcile_at, auto_revert_at)
     SELECT gen_random_uuid(), 'default', $1, CASE WHEN n <= ${FAILED_RUNS} THEN 'PARTIAL' ELSE 'APPLIED' END, 'x', n::text,
       10, CASE WHEN n <= ${FAILED_RUNS} THEN 9 ELSE 10 END, CASE WHEN n <= ${FAILED_RUNS} THEN 1 ELSE 0 END,
       ${past}, ${past}, ${past}, ${past}, now() + interval '1 day', now() + interval '1 day'
     FROM generate_series(1, ${RUNS}) AS n`,
    [channelId],
  );
  await db.query(
    `INSERT INTO rule_run (id, tenant_id, channel_id, status, actor, correlation_id, total_count, failed_count,
       created_at, queued_at, started_at, finished_at, last_seq, pruned_at, pruned_seq)
     SELECT gen_random_uuid(), 'default', $1, 'FAILED', 'x', n::text, 1, 1, ${past}, ${past}, ${past}, ${past}, 1, now(), 1
     FROM generate_series(1, ${PRUNED_RUNS}) AS n`,
    [channelId],
  );
  await db.query(
    `INSERT INTO rule_target (run_id, tenant_id, external_id, before_amount, after_amount, currency, status, failed_at)
     SELECT id, tenant_id, 'x', 1, 1, 'EUR', 'FAILED', now() FROM rule_run WHERE failed_count > 0 AND pruned_at IS NULL LIMIT 1`,
  );
  await db.query(
    `INSERT INTO run_event (run_id, seq, tenant_id, run_kind, type, message, actor, created_at)
     SELECT $1, n, 'default', 'RULE', 'rule_run.note', 'x', 'x', now() - interval '1 hour' - (${LINES} - n) * interval '1 second'
     FROM generate_series(1, ${LINES}) AS n`,
    [channelId],
  );
  await db.query(
    `INSERT INTO run_metadata (run_id, tenant_id, source_id, run_type, expected_workers, status, created_at,
       started_at, completed_at, finished_at)
     SELECT gen_random_uuid(), 'default', $1, 'full', 1, 'COMPLETED', ${past}, ${past}, ${past}, ${past}
     FROM generate_series(1, ${RUNS}) AS n`,
    [sourceId],
  );
  await db.query(
    `INSERT INTO worker_runs (run_id, tenant_id, partition_id, status, completed_at)
     SELECT run_id, tenant_id, 'partition-0', 'completed', now() FROM run_metadata`,
  );
  await db.query(
    `INSERT INTO ops_run (tenant_id, project_id, env, status, claimed_by, queued_at, started_at, finished_at)
     SELECT 'default', 'p', 'e', 'success', 'w', ${past}, ${past}, ${past} FROM generate_series(1, ${RUNS}) AS n`,
  );
  await db.query('SET session_replication_role = origin');
  await makeQueuedRun(db, world.home);
  await db.query(
    `INSERT INTO webhook_endpoint (id, tenant_id, name, kinds, event_types)
     VALUES (gen_random_uuid(), 'default', 'all', '{RULE,PIPELINE,OPS}', '{*}')`,
  );
  await keepFor(db, world.home, 'RULE', 1);
  await keepFor(db, world.home, 'PIPELINE', 36_500);
  await keepFor(db, world.home, 'OPS', 36_500);
  for (const table of BIG_TABLES) await db.query(`VACUUM ANALYZE ${table}`);
}

const BIG_TABLES = [
  'rule_run',
  'rule_target',
  'run_metadata',
  'worker_runs',
  'partition_progress',
  'ops_run',
  'run_event',
] as const;

interface Reads {
  readonly table: string;
  /** Rows read by walking whole tables. */
  readonly scanned: number;
  /** Rows, and entries of indexes, read by looking them up. */
  readonly found: number;
}

async function readsOf(look: () => Promise<unknown>): Promise<Reads[]> {
  const count = async (): Promise<Reads[]> => {
    await db.query('SELECT pg_stat_force_next_flush()');
    await db.query('SELECT pg_stat_clear_snapshot()');
    return db.query<Reads & Record<string, unknown>>(
      `SELECT relname AS table, seq_tup_read::int AS scanned,
         greatest(idx_tup_fetch, (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid))::int AS found
       FROM pg_stat_user_tables t WHERE relname = ANY($1) ORDER BY relname`,
      [BIG_TABLES],
    );
  };
  const before = await count();
  await look();
  const after = await count();
  return after.map(({ table, scanned, found }, index) => ({
    table,
    scanned: scanned - before[index]!.scanned,
    found: found - before[index]!.found,
  }));
}

test.each<[string, () => Promise<unknown>, number]>([
  ['a scrape', () => readFacts(db), FAILED_RUNS],
  ['an evaluation of alerts', () => evaluateAlerts(db, () => {}), 2 * FAILED_RUNS],
  ['a pass of retention where all old prices stand', () => pruneDueRuns(db), 0],
  ['a look for news of webhooks', () => noticeNews(db, null), 0],
  ['a sweep of the cursors of webhooks', () => sweepCursors(db), 0],
  ['a look for notices', () => claimNotices(db, 20), 0],
  ['a look for ticks', () => listDueTicks(db), 0],
  ['a look for runs to reconcile', () => scheduleReconciliations(db), 0],
  ['a look for runs to set back', () => revertDueRuns(db), 0],
])('%s reads what is under way and the dead letters, not the history', async (_, look, deadLetters) => {
  await look();
  const reads = await readsOf(look);
  expect(reads.filter(({ scanned }) => scanned > 0)).toEqual([]);
  const found = reads.reduce((sum, each) => sum + each.found, 0);
  expect(found).toBeLessThanOrEqual(deadLetters + 50);
});

test('a count of dead letters by code reads the runs that have some, and those that were pruned not', async () => {
  const look = () => countDeadLettersByCode(db, world.home.viewer, 'default');
  await look();
  const [runs] = (await readsOf(look)).filter(({ table }) => table === 'rule_run');
  expect(runs!.scanned).toBe(0);
  expect(runs!.found).toBeLessThanOrEqual(2 * FAILED_RUNS + 50);
});

test('a sweep reads a slice of the cursors and the runs of these, however many there are', async () => {
  await db.query(
    `INSERT INTO webhook_cursor (endpoint_id, run_id, delivered_seq)
     SELECT endpoint.id, run.id, 1
     FROM webhook_endpoint endpoint, (SELECT id FROM rule_run WHERE status = 'APPLIED' LIMIT 5000) run
     ON CONFLICT DO NOTHING`,
  );
  await db.query('ANALYZE webhook_cursor');
  let next = '0';
  const reads = await readsOf(async () => void ({ next } = await sweepCursors(db)));
  expect(reads.filter(({ scanned }) => scanned > 0)).toEqual([]);
  expect(reads.reduce((sum, { found }) => sum + found, 0)).toBeLessThan(20_000);
  expect(Number(next)).toBeGreaterThan(0);
});

test('a look for lost bells reads the end of the ledger, by ranges of pages', async () => {
  const look = () => readRunHeadsSince(db, ['default'], 60_000);
  expect(await look()).toHaveLength(1);
  const [ledger] = (await readsOf(look)).filter(({ table }) => table === 'run_event');
  expect(ledger!.scanned).toBe(0);
  expect(ledger!.found).toBeLessThan(LINES / 10);
});
