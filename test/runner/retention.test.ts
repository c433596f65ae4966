// Retention as a job: one replica at a time, told in the log, and wary of a clock that leaps.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Maintenance } from '../../src/runner/maintenance.js';
import { Retention } from '../../src/runner/retention.js';
import { Database } from '../../src/store/db.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { seedWorld, type World } from '../support/fixtures.js';
import { endedRun, keepFor, NOTHING, rowsOf } from '../support/retention.js';
import { KeptLog } from './support.js';

const NEVER = new AbortController().signal;

let database: TestDatabase;
let world: World;
let log: KeptLog;

beforeEach(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  log = new KeptLog();
  await keepFor(database.db, world.home, 'RULE', 30);
});
afterEach(() => database.drop());

const told = () => log.entries.map(({ level, message }) => [level, message]);
const isGone = async (runId: string) => (await rowsOf(database.db, runId))['run_event'] === 0;

test('of two replicas one prunes, and says so', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31);
  const { run_event: lines } = await rowsOf(database.db, runId);
  const other = new Database({ url: database.url });
  const replicas = [database.db, other].map(
    (db) => new Maintenance({ db, jobs: [new Retention({ db, log })], everyMs: 1, log }),
  );
  const taken = await Promise.all(replicas.map((replica) => replica.runOnce()));
  await other.close();
  expect(taken.flat()).toEqual(['retention']);
  expect(await rowsOf(database.db, runId)).toEqual(NOTHING);
  expect(log.entries).toMatchObject([
    { level: 'info', message: 'pruned what had outlived its policy', details: { runs: 1, rows: lines! + 3 } },
  ]);
});

test('a pass with nothing to do is silent; a long one says how far it has come', async () => {
  await new Retention({ db: database.db, log }).run(NEVER);
  expect(told()).toEqual([]);
  await endedRun(database.db, world.home, 'FAILED', 31, 20);
  await new Retention({ db: database.db, log, batchSize: 10, tellEveryMs: 0 }).run(NEVER);
  expect(told()).toContainEqual(['info', 'pruning goes on']);
  expect(told().at(-1)).toEqual(['info', 'pruned what had outlived its policy']);
});

test('a process that stops ends its pass after the batch at hand', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31);
  await new Retention({ db: database.db, log }).run(AbortSignal.abort());
  expect(await isGone(runId)).toBe(false);
});

test('a clock that leaps ahead deletes nothing for a day; one that is put right loses no time', async () => {
  const job = new Retention({ db: database.db, log });
  await job.run(NEVER);
  const runId = await endedRun(database.db, world.home, 'FAILED', 31);
  // The last look was a year ago, by a clock that is a year ahead.
  await database.db.query(`UPDATE retention_clock SET seen_at = seen_at - interval '1 year'`);
  await job.run(NEVER);
  await job.run(NEVER);
  expect(await isGone(runId)).toBe(false);
  expect(told().map(([level]) => level)).toEqual(['warn', 'warn']);
  // The clock goes back by that year.
  await database.db.query(
    `UPDATE retention_clock SET seen_at = seen_at + interval '1 year', held_until = held_until + interval '1 year'`,
  );
  await job.run(NEVER);
  expect(await isGone(runId)).toBe(true);
});

test('a server that was away for long goes on after a day', async () => {
  const job = new Retention({ db: database.db, log });
  const runId = await endedRun(database.db, world.home, 'FAILED', 31);
  await database.db.query(`INSERT INTO retention_clock (seen_at) VALUES (now() - interval '3 days')`);
  await job.run(NEVER);
  expect(await isGone(runId)).toBe(false);
  // A day of looks later.
  await database.db.query(`UPDATE retention_clock SET held_until = held_until - interval '1 day'`);
  await job.run(NEVER);
  expect(await isGone(runId)).toBe(true);
});
