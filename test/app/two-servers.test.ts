// Two servers share a run of 10,000 targets, a twentieth of them with faults of every kind; one is killed on
// the way, and the other ends it.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { ServerProcess, until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { expectRightEnd, queueMix, readRun, waitForEnd, type Mix } from './mixed-run.js';

const MIX: Mix = { total: 10_000, ofEachFault: 62, hanging: 4 };
// Long enough for a busy machine: a call that is only slow must not cost a flaky target its last attempt.
const SETTINGS = { RUNLEDGER_CALL_TIMEOUT_MS: '5000' };

let database: TestDatabase;
const servers: ServerProcess[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
});
afterEach(() => Promise.all(servers.splice(0).map((server) => server.end('SIGKILL'))));
afterAll(() => database.drop());

async function workersAtWork(): Promise<number> {
  const [row] = await database.db.query<{ hosts: number }>(
    `SELECT count(DISTINCT actor)::int AS hosts FROM run_event WHERE type = 'rule_target.claim'`,
  );
  return row!.hosts;
}

test('10,000 targets end right with two servers, one of which is killed', async () => {
  const [first, second] = await Promise.all([
    ServerProcess.spawn(database.url, SETTINGS),
    ServerProcess.spawn(database.url, SETTINGS),
  ]);
  servers.push(first, second);
  const id = await queueMix(first.url, MIX);
  await until(
    () => readRun(first.url, id),
    ({ progress }) => (progress as number) > 0.3,
  );
  await first.end('SIGKILL');
  await waitForEnd(second.url, id);
  await expectRightEnd(database.db, second.url, id, MIX);
  expect(await workersAtWork()).toBeGreaterThan(1);
}, 240_000);
