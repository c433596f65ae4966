// Pruning leaves the database to others for half of the time: after every batch there is a rest.
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { pruneDueRuns } from '../../src/store/prune.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { seedWorld, type World } from '../support/fixtures.js';
import { endedRun, keepFor } from '../support/retention.js';

const rests: number[] = [];
vi.mock(import('node:timers/promises'), async (original) => {
  const actual = await original();
  const rest = (ms?: number, ...rest: unknown[]) => {
    rests.push(ms!);
    return (actual.setTimeout as (...all: unknown[]) => Promise<void>)(0, ...rest);
  };
  return { ...actual, setTimeout: rest as typeof actual.setTimeout };
});

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

test('after each batch as long as it took, and never for long', async () => {
  await endedRun(database.db, world.home, 'FAILED', 31, 20);
  await keepFor(database.db, world.home, 'RULE', 30);
  let batches = 0;
  await pruneDueRuns(database.db, { batchSize: 7, onProgress: () => (batches += 1) });
  expect(batches).toBeGreaterThan(3);
  expect(rests).toHaveLength(batches);
  expect(rests.every((ms) => ms > 0 && ms <= 2_000)).toBe(true);
});

test('a stop does not wait for the rest', async () => {
  await endedRun(database.db, world.home, 'FAILED', 31, 20);
  rests.length = 0;
  const stop = new AbortController();
  await pruneDueRuns(database.db, { batchSize: 7, signal: stop.signal, onProgress: () => stop.abort() });
  expect(rests).toHaveLength(1);
});
