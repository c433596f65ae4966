// The completion of a run that did not see everything: by one worker, while others look on, take it over, stop it or
// do the same for another source.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { importCatalogItems } from '../../src/store/catalog-item.js';
import { completeIfDone, recoverCompletions } from '../../src/store/completion.js';
import { findConsolidatingRuns, nextConsolidationDelayMs } from '../../src/store/consolidation.js';
import { Database } from '../../src/store/db.js';
import { noteSeen } from '../../src/store/raw-item.js';
import { connect } from '../support/database.js';
import { FeedWorld, type TestFeed } from '../support/feed-world.js';
import { countDeadlocks, untilBlocked } from './locks.js';

type Holder = Awaited<ReturnType<typeof connect>>;

let world: FeedWorld;
let feed: TestFeed;
let runId: string;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());
beforeEach(async () => {
  await world.db.query(`UPDATE run_metadata SET status = 'CANCELLED' WHERE finished_at IS NULL`);
  await world.db.query('DELETE FROM raw_item');
  await world.db.query('DELETE FROM catalog_item');
  feed = await world.feed();
  runId = await unseenBy(feed);
  await world.db.query(
    `INSERT INTO catalog_item (id, tenant_id, source_id, external_id, title, unit_amount, currency)
     SELECT gen_random_uuid(), 'default', source_id, external_id, 'x', 100, 'EUR' FROM raw_item`,
  );
});

/** A full run that saw neither of the two records that its source had. */
async function unseenBy({ sourceId }: TestFeed): Promise<string> {
  const run = await world.consolidating({ sourceId });
  await world.db.query(
    `INSERT INTO raw_item (source_id, external_id, run_id, payload, fetched_at, consolidated_at)
     SELECT $1, id, gen_random_uuid(), '{}', now() - interval '1 day', now() FROM unnest(ARRAY['a', 'b']) AS id`,
    [sourceId],
  );
  return run.runId;
}

function complete(workerId: string, { id = runId, leaseMs = 60_000 } = {}): Promise<boolean> {
  return completeIfDone(world.db, { runId: id, workerId, leaseMs });
}

/** Does the work while somebody has the record, for whom a completion waits. */
async function whileHeld(externalId: string, work: (holder: Holder) => Promise<void>): Promise<void> {
  const holder = await connect(world.database.url);
  await holder.query('BEGIN');
  await holder.query('SELECT 1 FROM raw_item WHERE source_id = $1 AND external_id = $2 FOR UPDATE', [
    feed.sourceId,
    externalId,
  ]);
  await work(holder);
  await holder.query('ROLLBACK');
  await holder.end();
}

test('one completes it; the others need not look at it meanwhile', async () => {
  let done!: Promise<boolean>;
  await whileHeld('a', async () => {
    done = complete('w1');
    await untilBlocked(world.db, 1);
    expect(await complete('w2')).toBe(false);
    expect(await findConsolidatingRuns(world.db, [])).toEqual([]);
    expect(await nextConsolidationDelayMs(world.db, [])).toBeNull();
    await world.expectSound(runId);
  });
  expect(await done).toBe(true);
  expect(await world.find(runId)).toMatchObject({ status: 'COMPLETED', recordsDeleted: 2 });
  await world.expectSound(runId);
});

test('another completes it where the first is slow, or dead; together they do no harm', async () => {
  let done!: Promise<boolean[]>;
  await whileHeld('a', async () => {
    const slow = complete('slow', { leaseMs: 0 });
    await untilBlocked(world.db, 1);
    expect(await recoverCompletions(world.db, [])).toBe(1);
    const other = complete('other');
    await untilBlocked(world.db, 2);
    expect(await recoverCompletions(world.db, [])).toBe(0);
    expect(await recoverCompletions(world.db, ['other'])).toBe(1);
    done = Promise.all([slow, other]);
  });
  expect(await done).toEqual([true, true]);
  expect(await world.find(runId)).toMatchObject({ status: 'COMPLETED', recordsDeleted: 2 });
  await world.expectSound(runId);
});

test('nothing goes when the run is cancelled meanwhile', async () => {
  let done!: Promise<boolean>;
  await whileHeld('a', async () => {
    done = complete('w1');
    await untilBlocked(world.db, 1);
    await world.db.query(`UPDATE run_metadata SET status = 'CANCELLED' WHERE run_id = $1`, [runId]);
  });
  await done;
  expect(await world.find(runId)).toMatchObject({ status: 'CANCELLED', recordsDeleted: 0 });
  expect((await world.items(feed)).size).toBe(2);
  await world.expectSound(runId);
});

test('nothing goes when the clock was put back since the run began: its own records are from before', async () => {
  await world.db.query(`UPDATE raw_item SET run_id = $1 WHERE external_id = 'a'`, [runId]);
  expect(await complete('w1')).toBe(true);
  expect(await world.find(runId)).toMatchObject({
    status: 'COMPLETED',
    recordsDeleted: 0,
    recordsKept: 2,
    keptReason: 'the clock was put back while it read',
  });
  expect((await world.items(feed)).size).toBe(2);
});

test('it can be tried again at once where it broke', async () => {
  await world.db.query(
    `CREATE FUNCTION refuse_item() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN RAISE EXCEPTION 'not now'; END $$;
     CREATE TRIGGER refuse_item BEFORE UPDATE ON catalog_item FOR EACH ROW EXECUTE FUNCTION refuse_item()`,
  );
  await expect(complete('w1')).rejects.toThrow('not now');
  await world.db.query('DROP TRIGGER refuse_item ON catalog_item');
  expect(await complete('w2')).toBe(true);
});

test('a record that is seen while it waits to go stays', async () => {
  let done!: Promise<boolean>;
  const { sourceId } = feed;
  await whileHeld('a', async (holder) => {
    done = complete('w1');
    await untilBlocked(world.db, 1);
    const [now] = await world.db.query<{ at: string }>('SELECT clock_timestamp()::text AS at');
    await noteSeen(holder as never, { runId, sourceId, claimedAt: now!.at }, [{ externalId: 'a' }]);
    await holder.query('COMMIT');
  });
  expect(await done).toBe(true);
  expect([...(await world.items(feed)).keys()]).toEqual(['a']);
});

test('of two sources that had the same, the one takes nothing that the other waits for', async () => {
  const other = await world.feed();
  const otherRun = await unseenBy(other);
  let done!: Promise<boolean[]>;
  await whileHeld('b', async (holder) => {
    const first = complete('w1');
    await untilBlocked(world.db, 1);
    const second = complete('w2', { id: otherRun });
    await untilBlocked(world.db, 2);
    const { rowCount } = await holder.query(
      'SELECT 1 FROM raw_item WHERE source_id = $1 FOR UPDATE SKIP LOCKED',
      [other.sourceId],
    );
    expect(rowCount).toBe(2);
    done = Promise.all([first, second]);
  });
  expect(await done).toEqual([true, true]);
  for (const id of [runId, otherRun]) await world.expectSound(id);
  expect(await world.db.query('SELECT 1 FROM catalog_item WHERE deleted_at IS NULL')).toEqual([]);
});

test('items are taken out in the order in which they are imported, whatever the order of words in the database', async () => {
  await world.db.query('ALTER TABLE catalog_item ALTER COLUMN external_id TYPE text COLLATE "en-x-icu"');
  await world.db.query(`UPDATE raw_item SET external_id = 'B' WHERE external_id = 'b'`);
  await world.db.query(`UPDATE catalog_item SET external_id = 'B' WHERE external_id = 'b'`);
  const deadlocks = await countDeadlocks(world.db);
  const db = new Database({ url: world.database.url });
  const holder = await connect(world.database.url);
  await holder.query('BEGIN');
  await holder.query(`SELECT 1 FROM catalog_item WHERE external_id = 'a' FOR UPDATE`);
  const done = completeIfDone(db, { runId, workerId: 'w1', leaseMs: 60_000 });
  await untilBlocked(world.db, 1);
  const items = ['a', 'B'].map((externalId) => ({ externalId, title: 'x', unitAmount: 1, currency: 'EUR' }));
  const imported = importCatalogItems(db, world.viewer, items);
  await untilBlocked(world.db, 2);
  await holder.query('COMMIT');
  await Promise.all([done, imported]);
  await Promise.all([holder.end(), db.close()]);
  expect(await countDeadlocks(world.db)).toBe(deadlocks);
});
