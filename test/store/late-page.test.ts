// A worker that settles a page of a partition which it is just losing. Its statement waits for whoever takes it back,
// and has locked the partition by the time it sees that the page is not its own any more. Whoever holds the run and
// waits for that partition must not have to wait for a worker that waits for the run.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type pg from 'pg';
import { FIRST_READING } from '../../src/domain/partition-reading.js';
import { Database } from '../../src/store/db.js';
import { claimPage, type PageClaim } from '../../src/store/partition-claim.js';
import { settlePage, type PageResult } from '../../src/store/partition-settle.js';
import { cancelPipelineRun, retryFailedPartitions } from '../../src/store/pipeline-run-control.js';
import { connect } from '../support/database.js';
import { FeedWorld } from '../support/feed-world.js';
import { countDeadlocks, untilBlocked } from './locks.js';

const HOUR = 3_600_000;

let world: FeedWorld;
/** Of the sessions that meet; ended before deadlocks are counted. */
let db: Database;
let holder: pg.Client;
let claim: PageClaim;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());

beforeEach(async () => {
  db = new Database({ url: world.database.url });
  holder = await connect(world.database.url);
  await world.reading(await world.feed());
  claim = (await claimPage(world.db, { workerId: 'late', leaseMs: HOUR }))!;
});

const settle = (): Promise<PageResult> => {
  const records = [{ externalId: 'stone-1', json: '{}' }];
  const page = { records, rejected: [], passed: 30, cursor: null, isLast: false };
  const range = { total: 60, planned: 60, isFixed: false };
  return settlePage(db, claim, { ...page, range, reading: FIRST_READING, expectedTwice: 0 }, { ring: false });
};
const request = (): Parameters<typeof cancelPipelineRun>[2] => ({ runId: claim.runId, idempotencyKey: null });
const retry = (): Promise<unknown> => retryFailedPartitions(db, world.viewer, request());
const cancel = (): Promise<unknown> => cancelPipelineRun(db, world.viewer, request());

/** Lets both begin, in this order, while `holder` has the run; answers what became of the page. */
async function meet(first: () => Promise<unknown>, second: () => Promise<unknown>): Promise<unknown[]> {
  const deadlocks = await countDeadlocks(world.db);
  const begun = [first()];
  await untilBlocked(world.db, 1);
  begun.push(second());
  await untilBlocked(world.db, 2);
  await holder.query('COMMIT');
  const results = await Promise.all(begun);
  await Promise.all([holder.end(), db.close()]);
  expect(await countDeadlocks(world.db)).toBe(deadlocks);
  await world.expectSound(claim.runId);
  return results;
}

const lockRun = async (): Promise<void> => {
  await holder.query('BEGIN');
  await holder.query('SELECT 1 FROM run_metadata WHERE run_id = $1 FOR NO KEY UPDATE', [claim.runId]);
};

/** As recovery does after the last delivery. */
async function takeBack(): Promise<void> {
  await lockRun();
  await holder.query(
    `UPDATE worker_runs SET status = 'failed', error_message = 'the lease of late expired' WHERE id = $1`,
    [claim.id],
  );
  for (const status of ['CONSOLIDATION_SKIPPED', 'FAILED']) {
    await holder.query('UPDATE run_metadata SET status = $2 WHERE run_id = $1', [claim.runId, status]);
  }
}

test('a page that comes while its partition fails, after the request to retry it', async () => {
  await takeBack();
  expect(await meet(retry, settle)).toContain('late');
  expect((await world.partitions(claim.runId))[0]).toMatchObject({ status: 'pending', nextOffset: 0 });
});

test('before that request', async () => {
  await takeBack();
  expect(await meet(settle, retry)).toContain('late');
  expect((await world.partitions(claim.runId))[0]).toMatchObject({ status: 'pending', nextOffset: 0 });
});

test('a page whose offset is not the partition’s any more, while its run is cancelled', async () => {
  await world.db.query('UPDATE partition_progress SET next_offset = 30 WHERE run_id = $1', [claim.runId]);
  await lockRun();
  expect(await meet(cancel, settle)).toContain('stopped');
  expect(await world.find(claim.runId)).toMatchObject({ status: 'CANCELLED' });
});
