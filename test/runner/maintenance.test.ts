// Periodic jobs: each tick is run once, by whichever replica comes first, whatever a job does.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Maintenance, type MaintenanceJob } from '../../src/runner/maintenance.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { KeptLog, signalled, whenAborted } from './support.js';

let database: TestDatabase;
let log: KeptLog;

beforeAll(async () => {
  database = await createTestDatabase();
});
beforeEach(async () => {
  log = new KeptLog();
  await database.db.query('DELETE FROM maintenance_job');
});
afterAll(() => database.drop());

const HOUR = 3_600_000;

function replica(...jobs: MaintenanceJob[]): Maintenance {
  return new Maintenance({ db: database.db, jobs, everyMs: 1, log });
}

/** As if an hour had passed. */
function passTime(): Promise<unknown> {
  return database.db.query(`UPDATE maintenance_job SET next_at = next_at - interval '1 hour'`);
}

test('a new job is due at once, then once per interval', async () => {
  let runs = 0;
  const job = { name: 'a', everyMs: HOUR, run: async () => void (runs += 1) };
  const maintenance = replica(job);
  expect(await maintenance.runOnce()).toEqual(['a']);
  expect(await maintenance.runOnce()).toEqual([]);
  await passTime();
  expect(await maintenance.runOnce()).toEqual(['a']);
  expect(runs).toBe(2);
});

test('a clock that had run ahead by a year and was put right keeps no job waiting, and is noticed by one replica', async () => {
  let runs = 0;
  const job = { name: 'a', everyMs: HOUR, run: async () => void (runs += 1) };
  const replicas = Array.from({ length: 4 }, () => replica(job));
  await replicas[0]!.runOnce();
  await database.db.query(`UPDATE maintenance_job SET next_at = next_at + interval '1 year'`);
  const taken = await Promise.all(replicas.map((each) => each.runOnce()));
  expect(taken.flat()).toEqual(['a']);
  expect(runs).toBe(2);
});

test('of many replicas exactly one runs each tick', async () => {
  const runs = new Map<string, number>();
  const jobs = ['a', 'b', 'c'].map((name) => ({
    name,
    everyMs: HOUR,
    run: async () => void runs.set(name, (runs.get(name) ?? 0) + 1),
  }));
  const replicas = Array.from({ length: 8 }, (_, index) =>
    replica(...(index % 2 === 0 ? jobs : jobs.toReversed())),
  );
  for (let tick = 1; tick <= 10; tick += 1) {
    await Promise.all(replicas.map((each) => each.runOnce()));
    expect([...runs.values()]).toEqual([tick, tick, tick]);
    await passTime();
  }
});

test('a job that fails is logged, holds nobody back and comes again', async () => {
  let failures = 0;
  let runs = 0;
  const maintenance = replica(
    {
      name: 'bad',
      everyMs: HOUR,
      run: () => {
        failures += 1;
        throw new Error('boom');
      },
    },
    { name: 'good', everyMs: HOUR, run: async () => void (runs += 1) },
  );
  await maintenance.runOnce();
  await passTime();
  await maintenance.runOnce();
  expect({ failures, runs }).toEqual({ failures: 2, runs: 2 });
  expect(log.entries.map(({ level, details }) => [level, details['job']])).toEqual([
    ['error', 'bad'],
    ['error', 'bad'],
  ]);
});

test('a job that outlasts its interval is not started beside itself; stop cuts it', async () => {
  const started = signalled();
  let runs = 0;
  const maintenance = replica({
    name: 'slow',
    everyMs: HOUR,
    run: async (signal) => {
      runs += 1;
      started.resolve();
      await whenAborted(signal);
    },
  });
  maintenance.start();
  await started.promise;
  await passTime();
  expect(await maintenance.runOnce()).toEqual([]);
  await maintenance.stop();
  expect(runs).toBe(1);
});
