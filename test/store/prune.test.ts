// Pruning under way: small batches, cut short at any point, done by several at once, against people who ask
// something of the same runs.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AppError } from '../../src/errors.js';
import { Database } from '../../src/store/db.js';
import { listRunEvents } from '../../src/store/ledger.js';
import { pruneDueRuns } from '../../src/store/prune.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { findRuleRun } from '../../src/store/rule-run-row.js';
import { until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { seedWorld, type World } from '../support/fixtures.js';
import { endedRun, keepFor, NOTHING, rowsOf } from '../support/retention.js';
import { expectInvariants } from './invariants.js';

let database: TestDatabase;
let world: World;

beforeEach(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterEach(() => database.drop());

const runOf = async (id: string) => (await findRuleRun(database.db, world.home.viewer, id))!;
const rollBack = (runId: string) =>
  rollBackRuleRun(database.db, world.home.viewer, {
    runId,
    idempotencyKey: null,
    targetIds: null,
    onConflict: 'SKIP',
  });

/** Pruned to the end, once, with a record that adds up. */
async function expectPruned(runId: string): Promise<void> {
  expect(await rowsOf(database.db, runId)).toEqual(NOTHING);
  const { lastSeq, totalCount } = await runOf(runId);
  const audits = await database.db.query('SELECT lines, targets FROM retention_audit WHERE run_id = $1', [
    runId,
  ]);
  expect(audits).toEqual([{ lines: lastSeq, targets: totalCount }]);
  await expectInvariants(database.db, runId);
}

test('no transaction deletes more than a batch', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31, 20);
  await keepFor(database.db, world.home, 'RULE', 30);
  const seen = [0];
  await pruneDueRuns(database.db, { batchSize: 7, onProgress: ({ rows }) => seen.push(rows) });
  const batches = seen.slice(1).map((rows, index) => rows - seen[index]!);
  expect(Math.max(...batches)).toBe(7);
  expect(batches.length).toBeGreaterThan(10);
  await expectPruned(runId);
});

test('a pass ends when it is told to or its time is up, and the next one goes on', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31, 20);
  await keepFor(database.db, world.home, 'RULE', 30);
  const stop = new AbortController();
  const cut = await pruneDueRuns(database.db, {
    batchSize: 5,
    signal: stop.signal,
    onProgress: () => stop.abort(),
  });
  expect(cut).toEqual({ runs: 0, rows: 5 });
  // What is half gone is shown as gone, and the doctor knows of it.
  const { prunedAt, lastSeq } = await runOf(runId);
  expect(prunedAt).not.toBeNull();
  const pages = await listRunEvents(database.db, world.home.viewer, [runId], { first: 10, after: 0 });
  expect(pages.get(runId)!.nodes).toEqual([]);
  expect(await rowsOf(database.db, runId)).toMatchObject({ run_event: lastSeq - 5, rule_target: 20 });
  await expectInvariants(database.db, runId);
  expect(await pruneDueRuns(database.db, { longestMs: 0 })).toEqual({ runs: 0, rows: 0 });
  // Whatever the policy says by now: it was marked under the one before.
  await keepFor(database.db, world.home, 'RULE', null);
  expect(await pruneDueRuns(database.db)).toEqual({ runs: 1, rows: lastSeq - 5 + 20 });
  await expectPruned(runId);
});

test('a process that is killed in the middle leaves nothing half said, and the next one goes on', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31, 200);
  await keepFor(database.db, world.home, 'RULE', 30);
  const main = fileURLToPath(new URL('./prune-process.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', main, database.url], { stdio: 'ignore' });
  const lines = async () => (await rowsOf(database.db, runId))['run_event']!;
  const all = await lines();
  await until(lines, (left) => left < all - 10);
  child.kill('SIGKILL');
  await once(child, 'exit');
  const left = await lines();
  expect(left).toBeGreaterThan(0);
  expect(left).toBeLessThan(all);
  await expectInvariants(database.db, runId);
  expect(await database.db.query('SELECT lines FROM retention_work')).toEqual([{ lines: all - left }]);
  await pruneDueRuns(database.db);
  await expectPruned(runId);
});

test('several who prune at once delete everything once', async () => {
  const runs: string[] = [];
  for (let n = 0; n < 12; n += 1) runs.push(await endedRun(database.db, world.home, 'FAILED', 31 + n, 10));
  await keepFor(database.db, world.home, 'RULE', 30);
  const others = Array.from({ length: 3 }, () => new Database({ url: database.url }));
  const passes = await Promise.all([database.db, ...others].map((db) => pruneDueRuns(db, { batchSize: 4 })));
  for (const db of others) await db.close();
  // What one leaves to another in the middle of it, some pass ends.
  await pruneDueRuns(database.db);
  const removed = await database.db.query<{ rows: number }>(
    'SELECT sum(lines + targets)::int AS rows FROM retention_audit',
  );
  expect(passes.reduce((sum, { rows }) => sum + rows, 0)).toBeLessThanOrEqual(removed[0]!.rows);
  for (const runId of runs) await expectPruned(runId);
});

describe('against a request to roll back', () => {
  beforeEach(() => keepFor(database.db, world.home, 'RULE', 30, 30));

  test('a run that somebody holds is passed over without waiting, and kept once it is being rolled back', async () => {
    const runId = await endedRun(database.db, world.home, 'APPLIED', 31);
    await database.db.transaction('key:slow', async (connection) => {
      await connection.query('SELECT 1 FROM rule_run WHERE id = $1 FOR NO KEY UPDATE', [runId]);
      await connection.query(
        `UPDATE rule_run SET rolling_back = true, rollback_asked_at = now(), rollback_on_conflict = 'SKIP',
           next_claim_at = now() WHERE id = $1`,
        [runId],
      );
      expect(await pruneDueRuns(database.db)).toEqual({ runs: 0, rows: 0 });
    });
    expect(await pruneDueRuns(database.db)).toEqual({ runs: 0, rows: 0 });
    expect(await runOf(runId)).toMatchObject({ prunedAt: null, rollingBack: true });
  });

  test('a request that comes while a run is being marked waits, and is refused', async () => {
    const runId = await endedRun(database.db, world.home, 'APPLIED', 31);
    let asked: Promise<unknown> = Promise.resolve();
    await database.db.transaction('system', async (connection) => {
      await connection.query(`SELECT retention_begin('RULE', $1)`, [runId]);
      asked = rollBack(runId).catch((error: unknown) => error);
      await until(
        () =>
          database.db.query(
            `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
          ),
        (waiting) => waiting.length > 0,
      );
    });
    expect(await asked).toMatchObject({ code: 'CONFLICT' });
    await pruneDueRuns(database.db);
    await expectPruned(runId);
  });

  test('whoever is first, a run is rolled back whole or pruned whole', async () => {
    const runs: string[] = [];
    for (let n = 0; n < 30; n += 1) runs.push(await endedRun(database.db, world.home, 'APPLIED', 31, 2));
    // The last is asked for before, the first is pruned before; in between it is a race.
    const answers = new Map<string, unknown>([[runs.at(-1)!, await rollBack(runs.at(-1)!)]]);
    let hasBegun: () => void = () => {};
    const begun = new Promise<void>((resolve) => (hasBegun = resolve));
    const passes = [1, 2].map(() => pruneDueRuns(database.db, { onProgress: () => hasBegun() }));
    await begun;
    const asking = runs
      .slice(0, -1)
      .toReversed()
      .map(async (runId) => answers.set(runId, await rollBack(runId).catch((error: unknown) => error)));
    await Promise.all([...passes, ...asking]);
    await pruneDueRuns(database.db);
    const pruned: boolean[] = [];
    for (const runId of runs) {
      const run = await runOf(runId);
      pruned.push(run.prunedAt !== null);
      expect(answers.get(runId) instanceof AppError).toBe(run.prunedAt !== null);
      expect(run.rollingBack).toBe(run.prunedAt === null);
      if (run.prunedAt === null) await expectInvariants(database.db, runId);
      else await expectPruned(runId);
    }
    expect(new Set(pruned).size).toBe(2);
  });
});
