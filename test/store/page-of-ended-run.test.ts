// Pages that were claimed while their run was ended: whatever comes of them, nothing of the run changes any more.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { FIRST_READING } from '../../src/domain/partition-reading.js';
import { claimPage, recoverPages, type PageClaim } from '../../src/store/partition-claim.js';
import { failPartition, retreat, retryPage } from '../../src/store/partition-settle.js';
import { FeedWorld } from '../support/feed-world.js';

let world: FeedWorld;
let claim: PageClaim;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());

/** Leaves the lease, as of a claim that the request to cancel did not see yet. */
beforeEach(async () => {
  const id = await world.reading(await world.feed());
  claim = (await claimPage(world.db, { workerId: 'w1', leaseMs: 0 }))!;
  await world.db.query(`UPDATE run_metadata SET status = 'CANCELLED' WHERE run_id = $1`, [id]);
});

async function expectLetGo(): Promise<void> {
  const { runId } = claim;
  const leases = 'SELECT 1 FROM worker_runs WHERE run_id = $1 AND lease_owner IS NOT NULL';
  expect(await world.db.query(leases, [runId])).toEqual([]);
  expect(await world.partitions(runId)).toMatchObject([{ status: 'running', nextOffset: 0 }]);
  expect((await world.lines(runId)).at(-1)).toMatchObject({ type: 'pipeline_run.cancel' });
  await world.expectSound(runId);
}

test('one that fails', async () => {
  expect(await failPartition(world.db, claim, 'no')).toBe(false);
  await expectLetGo();
});

test('one that is to be delivered again', async () => {
  expect(await retryPage(world.db, claim, { message: 'no', delayMs: 0 })).toBe(false);
  await expectLetGo();
});

test('one that goes back', async () => {
  expect(await retreat(world.db, claim, { by: 1, reading: FIRST_READING, reason: 'no' })).toBe(false);
  await expectLetGo();
});

test('one whose worker died, at its last delivery', async () => {
  await world.db.query('UPDATE worker_runs SET attempts = 5 WHERE id = $1', [claim.id]);
  expect(await recoverPages(world.db, [])).toBe(1);
  await expectLetGo();
});
