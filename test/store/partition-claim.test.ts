// Claims of pages and what fences them: one worker a page, late and repeated results, lost leases, hand-back, and
// all of it at once.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { MAX_DELIVERIES } from '../../src/domain/partition.js';
import { FIRST_READING, type RangeCount } from '../../src/domain/partition-reading.js';
import {
  claimPage,
  extendPageLease,
  nextPageDelayMs,
  recoverPages,
  releasePage,
  type PageClaim,
} from '../../src/store/partition-claim.js';
import {
  failPartition,
  retryPage,
  settlePage,
  type PageResult,
  type ReadPage,
} from '../../src/store/partition-settle.js';
import { claimPlan, recoverPlans, releasePlan, settlePlan } from '../../src/store/pipeline-plan.js';
import { cancelPipelineRun, retryFailedPartitions } from '../../src/store/pipeline-run-control.js';
import { FeedWorld, type TestFeed } from '../support/feed-world.js';

let world: FeedWorld;
let feed: TestFeed;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());
beforeEach(async () => {
  // What a test leaves behind is not for the next one to claim.
  await world.db.query(
    `UPDATE run_metadata SET status = 'CANCELLED' WHERE status IN ('CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING')`,
  );
  feed = await world.feed();
});

const HOUR = 3_600_000;
const QUIET = { ring: false };

const plannedRun = (count?: number): Promise<string> => world.reading(feed, count);

async function claim(workerId = 'w1', leaseMs = HOUR): Promise<PageClaim> {
  const claimed = await claimPage(world.db, { workerId, leaseMs });
  if (!claimed) throw new Error('nothing to claim');
  return claimed;
}

const counted = (total: number): RangeCount => ({ total, planned: total, isFixed: false });

function pageOf({ offset, partitionId }: PageClaim, overrides: Partial<ReadPage> = {}): ReadPage {
  const records = Array.from({ length: 30 }, (_, index) => ({
    externalId: `${partitionId}-${offset + index}`,
    json: '{"title":"x"}',
  }));
  const page = { records, rejected: [], passed: 30, cursor: null, isLast: false };
  return { ...page, range: counted(60), reading: FIRST_READING, expectedTwice: 0, ...overrides };
}

const settle = (claimed: PageClaim, overrides: Partial<ReadPage> = {}): Promise<PageResult> =>
  settlePage(world.db, claimed, pageOf(claimed, overrides), QUIET);

async function rawCount(): Promise<number> {
  const [row] = await world.db.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM raw_item WHERE source_id = $1',
    [feed.sourceId],
  );
  return row!.count;
}

describe('a claim', () => {
  test('is of one partition by one worker; another gets another', async () => {
    await plannedRun(2);
    const [a, b] = [await claim('w1'), await claim('w2')];
    expect(new Set([a.partitionId, b.partitionId])).toEqual(new Set(['partition-0', 'partition-1']));
    expect(await claimPage(world.db, { workerId: 'w3', leaseMs: HOUR })).toBeNull();
    expect(await nextPageDelayMs(world.db)).toBeNull();
  });

  test('of many at once: nobody shares', async () => {
    const id = await plannedRun(10);
    const claims = await Promise.all(Array.from({ length: 10 }, (_, index) => claim(`w${index}`)));
    expect(new Set(claims.map(({ partitionId }) => partitionId)).size).toBe(10);
    expect((await world.lines(id)).filter(({ type }) => type === 'partition.start')).toHaveLength(10);
    await world.expectSound(id);
  });

  test('serves the run with the fewest pages under way', async () => {
    await plannedRun(5);
    const [first, second] = [await claim(), await claim()];
    expect(first.runId).toBe(second.runId);
    feed = await world.feed();
    const small = await plannedRun(1);
    expect((await claim()).runId).toBe(small);
  });

  test('waits for the disk where it writes the ledger: with the first page of a partition', async () => {
    await plannedRun();
    await world.db.query('CREATE TABLE commits (id serial, waits boolean)');
    // The servers of tests wait for no disk: what tells is whether the transaction has set it.
    await world.db.query(
      `CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         INSERT INTO public.commits (waits)
           SELECT source <> 'session' FROM pg_settings WHERE name = 'synchronous_commit';
         RETURN NULL; END $$`,
    );
    await world.db.query(
      'CREATE TRIGGER note_commit AFTER UPDATE ON worker_runs EXECUTE FUNCTION note_commit()',
    );
    await releasePage(world.db, await claim());
    await claim();
    const rows = await world.db.query('SELECT waits FROM commits ORDER BY id');
    await world.db.query('DROP FUNCTION note_commit CASCADE');
    await world.db.query('DROP TABLE commits');
    expect(rows).toEqual([{ waits: true }, { waits: true }, { waits: false }]);
  });

  test('waits for what is to be delivered later', async () => {
    await plannedRun();
    const claimed = await claim();
    await retryPage(world.db, claimed, { message: 'later', delayMs: HOUR });
    expect(await claimPage(world.db, { workerId: 'w1', leaseMs: HOUR })).toBeNull();
    expect(await nextPageDelayMs(world.db)).toBeGreaterThan(HOUR - 60_000);
  });
});

describe('the words of a failure', () => {
  const WORDS = `a\0b\ud83d ${'💎'.repeat(2_000)}`;

  test('are kept as far as they can be', async () => {
    const id = await plannedRun();
    expect(await retryPage(world.db, await claim(), { message: WORDS, delayMs: 0 })).toBe(true);
    const [waiting] = await world.partitions(id);
    expect(waiting!.errorMessage).toMatch(/^a\ufffdb\ufffd (💎)+…$/u);
    expect(waiting!.errorMessage!.length).toBeLessThanOrEqual(2_000);
    expect(await failPartition(world.db, await claim(), WORDS)).toBe(true);
    expect((await world.partitions(id))[0]).toMatchObject({
      status: 'failed',
      errorMessage: waiting!.errorMessage,
    });
    await world.expectSound(id);
  });
});

describe('a page', () => {
  test('moves the offset and keeps its records in one go', async () => {
    const id = await plannedRun();
    expect(await settle(await claim())).toBe('settled');
    expect((await world.partitions(id))[0]).toMatchObject({
      nextOffset: 30,
      recordsProcessed: 30,
      status: 'running',
    });
    expect(await rawCount()).toBe(30);
  });

  test('that is settled twice counts once', async () => {
    const id = await plannedRun();
    const claimed = await claim();
    await settle(claimed);
    expect(await settle(claimed)).toBe('late');
    expect((await world.partitions(id))[0]).toMatchObject({ nextOffset: 30, recordsProcessed: 30 });
  });

  test('whose offset is not the partition’s any more is skipped, and says so', async () => {
    const id = await plannedRun();
    const claimed = await claim();
    await world.db.query('UPDATE partition_progress SET next_offset = 60 WHERE run_id = $1', [id]);
    expect(await settle(claimed)).toBe('skipped');
    expect(await rawCount()).toBe(0);
    expect((await world.partitions(id))[0]).toMatchObject({ nextOffset: 60, recordsProcessed: 0 });
    expect((await world.lines(id)).at(-1)).toMatchObject({
      type: 'partition.skip_page',
      payload: { offset: 0 },
    });
    // It is free for whoever reads on from there.
    expect(await claim('w2')).toMatchObject({ offset: 60 });
  });

  test('of a partition that somebody completed is skipped; nobody can read it on, so it fails', async () => {
    const id = await plannedRun();
    await settle(await claim());
    const claimed = await claim();
    await world.db.query('UPDATE partition_progress SET completed = true WHERE run_id = $1', [id]);
    expect(await settle(claimed)).toBe('skipped');
    expect(await rawCount()).toBe(30);
    expect(await claimPage(world.db, { workerId: 'w2', leaseMs: HOUR })).toBeNull();
    expect((await world.partitions(id))[0]).toMatchObject({
      status: 'failed',
      errorMessage: 'its progress was completed by somebody else',
    });
    expect(await world.find(id)).toMatchObject({ status: 'FAILED', failedWorkers: 1 });
    await world.expectSound(id);
    // A person may have it read on from there.
    await retryFailedPartitions(world.db, world.viewer, { runId: id, idempotencyKey: null });
    expect(await settle(await claim(), { isLast: true })).toBe('settled');
    expect(await world.find(id)).toMatchObject({ status: 'CONSOLIDATING' });
    await world.expectSound(id);
  });

  test('that is the last ends the partition, and with the last of them the reading', async () => {
    const id = await plannedRun(2);
    const [a, b] = [await claim('w1'), await claim('w2')];
    await settle(a, { isLast: true, range: counted(30) });
    expect(await world.find(id)).toMatchObject({ status: 'WORKERS_RUNNING', completedWorkers: 1 });
    await settle(b, { isLast: true, range: counted(30) });
    expect(await world.find(id)).toMatchObject({ status: 'CONSOLIDATING', completedWorkers: 2 });
    await world.expectSound(id);
  });

  test('of a run that was stopped meanwhile is not kept, and its lease is gone', async () => {
    const id = await plannedRun();
    const claimed = await claim();
    await cancelPipelineRun(world.db, world.viewer, { runId: id, idempotencyKey: null });
    const leases = 'SELECT 1 FROM worker_runs WHERE run_id = $1 AND lease_owner IS NOT NULL';
    expect(await world.db.query(leases, [id])).toEqual([]);
    expect(await settle(claimed)).toBe('stopped');
    expect(await rawCount()).toBe(0);
    await world.expectSound(id);
  });
});

describe('a lease', () => {
  test('that expired is taken back, and the late worker changes nothing', async () => {
    const id = await plannedRun();
    const late = await claim('slow', 0);
    expect(await recoverPages(world.db, [])).toBe(1);
    const next = await claim('quick');
    expect(next).toMatchObject({ offset: 0, attempts: 2, partitionId: late.partitionId });
    expect(await settle(late)).toBe('late');
    expect(await failPartition(world.db, late, 'too late')).toBe(false);
    expect(await retryPage(world.db, late, { message: 'too late', delayMs: 0 })).toBe(false);
    expect(await settle(next)).toBe('settled');
    expect((await world.partitions(id))[0]).toMatchObject({
      nextOffset: 30,
      recordsProcessed: 30,
      attempts: 0,
    });
    expect((await world.lines(id)).map(({ type }) => type)).toContain('partition.late_result');
    await world.expectSound(id);
  });

  test('of a worker that is known to be dead is taken back at once', async () => {
    await plannedRun(2);
    await claim('dead');
    await claim('alive');
    expect(await recoverPages(world.db, ['dead'])).toBe(1);
    expect(await claim('w3')).toMatchObject({ attempts: 2 });
  });

  test('that is kept does not expire', async () => {
    await plannedRun();
    const claimed = await claim('w1', 0);
    await extendPageLease(world.db, claimed, HOUR);
    expect(await recoverPages(world.db, [])).toBe(0);
  });

  test('that is handed back costs no delivery', async () => {
    const id = await plannedRun();
    const claimed = await claim();
    await releasePage(world.db, claimed);
    await world.expectSound(id);
    expect(await claim('w2')).toMatchObject({ attempts: 1, offset: 0 });
  });

  test('that is lost five times fails the partition', async () => {
    const id = await plannedRun();
    for (let delivery = 1; delivery <= MAX_DELIVERIES; delivery += 1) {
      expect(await claim(`w${delivery}`, 0)).toMatchObject({ attempts: delivery });
      await recoverPages(world.db, []);
    }
    expect((await world.partitions(id))[0]).toMatchObject({
      status: 'failed',
      errorMessage: 'the lease of w5 expired',
    });
    expect(await world.find(id)).toMatchObject({ status: 'FAILED', failedWorkers: 1 });
    await world.expectSound(id);
  });
});

describe('a plan', () => {
  test('is made by one worker; one that comes late changes nothing', async () => {
    const { id } = await world.start(feed);
    const late = await claimPlan(world.db, { workerId: 'slow', leaseMs: 0 });
    expect(await claimPlan(world.db, { workerId: 'other', leaseMs: HOUR })).toBeNull();
    expect(await recoverPlans(world.db, [])).toBe(1);
    const next = await claimPlan(world.db, { workerId: 'quick', leaseMs: HOUR });
    expect(next).toMatchObject({ runId: id, attempts: 2 });
    const plan = { beganAt: new Date(), partitions: [{ partitionId: 'partition-0', payload: {} }] };
    expect(await settlePlan(world.db, late!, plan)).toBe(false);
    expect(await settlePlan(world.db, next!, plan)).toBe(true);
    expect(await world.partitions(id)).toHaveLength(1);
    await world.expectSound(id);
  });

  test('that is handed back costs no attempt', async () => {
    await world.start(feed);
    const claimed = await claimPlan(world.db, { workerId: 'w1', leaseMs: HOUR });
    await releasePlan(world.db, claimed!);
    expect(await claimPlan(world.db, { workerId: 'w2', leaseMs: HOUR })).toMatchObject({ attempts: 1 });
  });

  test('whose worker dies five times fails the run', async () => {
    const { id } = await world.start(feed);
    for (let attempt = 1; attempt <= MAX_DELIVERIES; attempt += 1) {
      await claimPlan(world.db, { workerId: `w${attempt}`, leaseMs: 0 });
      await recoverPlans(world.db, []);
    }
    expect(await world.find(id)).toMatchObject({ status: 'FAILED', error: 'the lease of w5 expired' });
  });
});

test('claims, settles, retries, lost leases, hand-backs and recovery at once: no page is lost or kept twice', async () => {
  const id = await plannedRun(6);
  const isLast = ({ offset }: PageClaim): boolean => offset + 30 >= 300;
  let turn = 0;
  const work = async (worker: string): Promise<void> => {
    while ((await world.find(id)).status === 'WORKERS_RUNNING') {
      const claimed = await claimPage(world.db, { workerId: worker, leaseMs: HOUR });
      if (!claimed) continue;
      turn += 1;
      // A page fails no more than twice: its deliveries must last.
      const kind = claimed.attempts > 2 ? 0 : turn % 7;
      if (kind === 3) await retryPage(world.db, claimed, { message: 'again', delayMs: 0 });
      else if (kind === 5) await releasePage(world.db, claimed);
      else if (kind === 6) {
        await recoverPages(world.db, [worker]);
        await settle(claimed, { isLast: isLast(claimed), range: counted(300) });
      } else {
        const page = { isLast: isLast(claimed), range: counted(300) };
        // Delivered twice, as by a queue that promises at least once.
        await Promise.all([settle(claimed, page), settle(claimed, page)]);
      }
    }
  };
  await Promise.all(['a', 'b', 'c', 'd'].map(work));
  expect(await world.find(id)).toMatchObject({
    status: 'CONSOLIDATING',
    completedWorkers: 6,
    recordsProcessed: 1_800,
    recordsDuplicated: 0,
  });
  expect(await rawCount()).toBe(1_800);
  await world.expectSound(id);
});
