// kill -9 at random moments of a run, and a restart after each: the run ends as if nothing had happened.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { useServers } from '../support/servers.js';
import { expectRightEnd, queueMix, readRun, THOUSAND, waitForEnd } from './mixed-run.js';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

const spawnServer = useServers(() => database.url);

/** Kills come when so much of the run is done; the moment within a claim is chance. */
const KILL_AT = [0.2, 0.8];

test('a server killed in the middle of a run and started again ends it in the right state', async () => {
  // What a killed server held is free again soon.
  const settings = { RUNLEDGER_LEASE_MS: '2000' };
  let server = await spawnServer(settings);
  const id = await queueMix(server.url, THOUSAND);
  for (const share of KILL_AT) {
    const { url } = server;
    await until(
      () => readRun(url, id),
      ({ progress }) => (progress as number) >= share,
    );
    await server.end('SIGKILL');
    server = await spawnServer(settings);
  }
  await waitForEnd(server.url, id);
  await expectRightEnd(database.db, server.url, id, THOUSAND);
  expect(await server.end('SIGTERM')).toBe(0);
}, 120_000);

test('SIGTERM in the middle hands the leases back at no cost, and another server goes on at once', async () => {
  // Leases that nobody hands back would hold this up for longer than the test may take.
  const mix = { ...THOUSAND, hanging: 0 };
  const slow = { RUNLEDGER_LEASE_MS: '600000' };
  const first = await spawnServer(slow);
  const id = await queueMix(first.url, mix);
  await until(
    () => readRun(first.url, id),
    ({ progress }) => (progress as number) > 0,
  );
  expect(await first.end('SIGTERM')).toBe(0);
  const [left] = await database.db.query<{ leased: number; lost: number }>(
    `SELECT count(lease_owner)::int AS leased, coalesce(sum(lost_leases), 0)::int AS lost
     FROM rule_target WHERE run_id = $1`,
    [id],
  );
  expect(left).toEqual({ leased: 0, lost: 0 });
  const second = await spawnServer(slow);
  await waitForEnd(second.url, id);
  await expectRightEnd(database.db, second.url, id, mix);
}, 120_000);
