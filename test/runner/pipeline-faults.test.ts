// Sources that misbehave: a partition fails with a clear message, or a record is set aside with its reason, and
// nothing else is harmed.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { stoneId } from '../../src/sandbox/feed/records.js';
import {
  cancelPipelineRun,
  consolidatePipelineRun,
  retryFailedPartitions,
  startPipelineRun,
} from '../../src/store/pipeline-run-control.js';
import { registerSource } from '../../src/store/source.js';
import { FeedWorld } from '../support/feed-world.js';

let world: FeedWorld;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());

const ONE = { partitions: 1 };

describe('failures that pass', () => {
  test.each([
    ['down:4', 'HTTP 503'],
    ['throttle:4', 'HTTP 429'],
    ['garble:4', 'is no JSON'],
  ])('%s: the page is delivered again, up to five times', async (faults, message) => {
    const feed = await world.feed(
      { size: 40, faults: `${faults}@35` },
      { partitions: 1, retry: { baseMs: 1 } },
    );
    // The sandbox names a delay of a second with its 429: the wait is real, so it is done once here.
    const run = await world.run(feed);
    expect(run).toMatchObject({ status: 'COMPLETED', recordsProcessed: 40, failedWorkers: 0 });
    const retries = (await world.lines(run.id)).filter(({ type }) => type === 'partition.retry_page');
    expect(retries.map(({ payload }) => payload['attempt'])).toEqual([1, 2, 3, 4]);
    expect(retries[0]).toMatchObject({
      level: 'WARN',
      message: expect.stringContaining(message),
      payload: { partitionId: 'partition-0', offset: 30 },
    });
    if (faults.startsWith('throttle')) expect(retries[0]!.payload['delayMs']).toBe(1_000);
  });

  test('of the plan: it is made again', async () => {
    const name = 'late';
    const config = { ...world.sandbox.feedConfig(name, { size: 20 }), password: 'wrong' };
    const sourceId = await registerSource(world.db, { tenantId: 'default', name, kind: 'nivoda', config });
    const { id } = await world.start({ sourceId });
    const worker = world.worker();
    // A server that is not there yet.
    const gone = world.sandbox.feedConfig(name).endpoint.replace(/:\d+\//, ':9/');
    await world.db.query('UPDATE source SET config = $2, updated_at = clock_timestamp() WHERE id = $1', [
      sourceId,
      JSON.stringify({ ...config, endpoint: gone }),
    ]);
    await worker.step(worker.plans);
    expect(await world.find(id)).toMatchObject({
      status: 'CREATED',
      error: expect.stringContaining('reached'),
    });
    await world.pointAt(name, { size: 20 });
    await worker.drain();
    expect(await world.find(id)).toMatchObject({ status: 'COMPLETED', recordsProcessed: 20, error: null });
  });
});

describe('failures that do not', () => {
  test('five deliveries are all there are; the partition fails, and with it the run', async () => {
    const feed = await world.feed({ size: 300, faults: 'down@35' });
    const run = await world.run(feed);
    expect(run).toMatchObject({
      status: 'FAILED',
      failedWorkers: 1,
      completedWorkers: run.expectedWorkers - 1,
      recordsConsolidated: 0,
      watermarkAfter: null,
      error: `1 of ${run.expectedWorkers} partitions failed: consolidation is skipped`,
    });
    expect(await world.watermark(feed)).toBeNull();
    expect((await world.items(feed)).size).toBe(0);
    const [failed] = (await world.partitions(run.id)).filter(({ status }) => status === 'failed');
    expect(failed).toMatchObject({
      attempts: 5,
      errorMessage: 'the source answered HTTP 503',
      completed: false,
    });
    const lines = await world.lines(run.id);
    expect(lines.slice(-3).map(({ type, level }) => [type, level])).toEqual([
      ['pipeline_run.skip_consolidation', 'WARN'],
      ['pipeline_run.fail', 'ERROR'],
      ['pipeline_run.alert', 'ERROR'],
    ]);
    expect(lines.at(-1)!.message).toContain('it has no watermark yet');
  });

  test('a permanent one fails the partition at once', async () => {
    const run = await world.run(await world.feed({ size: 40, faults: 'deny@35' }, ONE));
    expect((await world.partitions(run.id))[0]).toMatchObject({
      status: 'failed',
      attempts: 1,
      nextOffset: 30,
    });
  });

  test('of the plan: the run fails, and another can be started', async () => {
    const name = 'forbidden';
    const config = { ...world.sandbox.feedConfig(name), password: 'wrong' };
    const sourceId = await registerSource(world.db, { tenantId: 'default', name, kind: 'nivoda', config });
    const run = await world.run({ sourceId });
    expect(run).toMatchObject({
      status: 'FAILED',
      expectedWorkers: 0,
      error: expect.stringContaining('could not be planned: the source refused: Wrong username'),
    });
    await world.start({ sourceId });
    await world.worker().drain();
  });

  test('a configuration that cannot be used fails the run, with the reason', async () => {
    const sourceId = await registerSource(world.db, {
      tenantId: 'default',
      name: 'odd',
      kind: 'nivoda',
      config: {},
    });
    const run = await world.run({ sourceId });
    expect(run).toMatchObject({
      status: 'FAILED',
      error: expect.stringContaining('Not a nivoda source: endpoint'),
    });
  });

  test('retryFailedPartitions goes on from the page that failed', async () => {
    const feed = await world.feed({ size: 100, faults: 'deny@35' }, ONE);
    const failed = await world.run(feed);
    const requests = world.sandbox.feedRequests(feed.name);
    await world.pointAt(feed.name, { size: 100 }, ONE);
    await retryFailedPartitions(world.db, world.viewer, { runId: failed.id, idempotencyKey: null });
    await world.worker().drain();
    expect(await world.find(failed.id)).toMatchObject({
      status: 'COMPLETED',
      recordsProcessed: 100,
      failedWorkers: 0,
    });
    // A login, and the pages from offset 30 on.
    expect(world.sandbox.feedRequests(feed.name) - requests).toBe(1 + 3);
    await world.expectSound(failed.id);
  });

  test('neither is taken up again beside another run of the source', async () => {
    const feed = await world.feed({ size: 100, faults: 'deny@35' }, ONE);
    const failed = await world.run(feed);
    const request = { runId: failed.id, idempotencyKey: null };
    const other = await world.start(feed);
    const conflict = { code: 'CONFLICT', details: { runId: other.id } };
    const retry = (): Promise<unknown> => retryFailedPartitions(world.db, world.viewer, request);
    await expect(retry()).rejects.toMatchObject(conflict);
    await expect(
      consolidatePipelineRun(world.db, world.viewer, { ...request, force: true }),
    ).rejects.toMatchObject(conflict);
    expect(await world.find(failed.id)).toMatchObject({ status: 'FAILED', failedWorkers: 1 });
    await cancelPipelineRun(world.db, world.viewer, { runId: other.id, idempotencyKey: null });
    await retry();
    expect(await world.find(failed.id)).toMatchObject({ status: 'WORKERS_RUNNING' });
    await world.worker().drain();
  });

  test('consolidatePipelineRun by force keeps what there is, and leaves the watermark and the rest alone', async () => {
    const feed = await world.feed({ size: 300 });
    await world.run(feed);
    const watermark = await world.watermark(feed);
    feed.changes.setPrice(290, 1_234, Date.now());
    feed.changes.remove(5, Date.now());
    await world.pointAt(feed.name, { size: 300, faults: 'deny@40' });
    const failed = await world.run(feed, 'full');
    expect(failed.status).toBe('FAILED');
    await consolidatePipelineRun(world.db, world.viewer, {
      runId: failed.id,
      force: true,
      idempotencyKey: null,
    });
    await world.worker().drain();
    expect(await world.find(failed.id)).toMatchObject({
      status: 'COMPLETED',
      recordsDeleted: 0,
      watermarkAfter: watermark,
    });
    expect(await world.watermark(feed)).toEqual(watermark);
    const items = await world.items(feed);
    expect(items.get(stoneId(290)) ?? items.get(stoneId(5))).toBeDefined();
    expect(items.size).toBe(300);
    expect((await world.lines(failed.id)).map(({ type }) => type)).toContain('pipeline_run.keep_unseen');
    await world.expectSound(failed.id);
  });

  test('the next run reprocesses, and nothing is doubled', async () => {
    const feed = await world.feed({ size: 120, faults: 'deny@100' });
    expect((await world.run(feed)).status).toBe('FAILED');
    await world.pointAt(feed.name, { size: 120 });
    const run = await world.run(feed);
    expect(run).toMatchObject({
      status: 'COMPLETED',
      runType: 'full',
      recordsProcessed: 120,
      recordsDuplicated: 0,
    });
    const [row] = await world.db.query<{ count: number }>(
      'SELECT count(*)::int AS count FROM raw_item WHERE source_id = $1',
      [feed.sourceId],
    );
    expect(row!.count).toBe(120);
    expect((await world.items(feed)).size).toBe(120);
  });
});

describe('records', () => {
  test('that are garbage are set aside, each with its reason; the others are not harmed', async () => {
    const feed = await world.feed({ size: 280, faults: 'garbage:10' }, ONE);
    const run = await world.run(feed);
    expect(run).toMatchObject({
      status: 'COMPLETED',
      recordsProcessed: 280,
      recordsRejected: 28,
      recordsConsolidated: 252,
      recordsMissing: 0,
    });
    const rejected = await world.rejected(run.id);
    expect(rejected).toHaveLength(28);
    const reasons = new Set(rejected.map(({ reason }) => reason));
    expect([...reasons].sort()).toEqual([
      'price: -1 is no amount of USD in minor units',
      'price: 0.5 is no amount of USD in minor units',
      'the record has a character that cannot be stored',
      'the record has no usable id',
      'the record is no object',
    ]);
    expect(rejected.every(({ payload }) => typeof payload === 'object')).toBe(true);
  });

  test('of an unknown currency are set aside', async () => {
    const feed = await world.feed({ size: 100, faults: 'currency:25' }, ONE);
    const run = await world.run(feed);
    expect(run).toMatchObject({ status: 'COMPLETED', recordsRejected: 4, recordsConsolidated: 96 });
    expect((await world.rejected(run.id)).map(({ reason, partitionId }) => [reason, partitionId])).toEqual(
      Array(4).fill(['currency: XYZ is no currency', null]),
    );
  });

  test('that come twice on one page are kept once', async () => {
    const feed = await world.feed({ size: 60, faults: 'duplicate' }, ONE);
    const run = await world.run(feed);
    expect(run).toMatchObject({
      status: 'COMPLETED',
      recordsProcessed: 60,
      recordsDuplicated: 2,
      recordsConsolidated: 58,
    });
    // Two never came, in whose place others came twice.
    expect(run.recordsMissing).toBe(2);
  });
});

describe('pages', () => {
  test('that repeat the one before: the partition fails and says so, and nothing is taken out of the catalog', async () => {
    const feed = await world.feed({ size: 120 }, ONE);
    await world.run(feed);
    await world.pointAt(feed.name, { size: 120, faults: 'repeat' }, ONE);
    const run = await world.run(feed, 'full');
    expect(run).toMatchObject({ status: 'FAILED', recordsProcessed: 30, recordsDeleted: 0 });
    expect((await world.partitions(run.id))[0]).toMatchObject({
      attempts: 5,
      errorMessage: 'the source repeats itself: the page is the same as the one before',
    });
    expect((await world.items(feed)).size).toBe(120);
  });

  test('that skip records look like the last though they are not: the partition fails and says so', async () => {
    const feed = await world.feed({ size: 100 }, ONE);
    await world.run(feed);
    const watermark = await world.watermark(feed);
    await world.pointAt(feed.name, { size: 100, faults: 'skip:10@35' }, ONE);
    const run = await world.run(feed, 'full');
    expect(run).toMatchObject({ status: 'FAILED', recordsDeleted: 0, failedWorkers: 1 });
    expect((await world.partitions(run.id))[0]).toMatchObject({
      attempts: 5,
      nextOffset: 30,
      errorMessage: 'the source ends after 57 records, though it counts 100',
    });
    expect(await world.watermark(feed)).toEqual(watermark);
    expect((await world.items(feed)).size).toBe(100);
  });

  test('that lack a few: they are counted as missing, and nothing is taken out of the catalog', async () => {
    const feed = await world.feed({ size: 90 }, ONE);
    await world.run(feed);
    await world.pointAt(feed.name, { size: 90, faults: 'duplicate' }, ONE);
    const run = await world.run(feed, 'full');
    expect(run).toMatchObject({ status: 'COMPLETED', recordsDeleted: 0, recordsMissing: 3 });
    expect((await world.items(feed)).size).toBe(90);
    expect((await world.lines(run.id)).map(({ type }) => type)).toEqual(
      expect.arrayContaining(['partition.shortfall', 'pipeline_run.keep_unseen']),
    );
  });

  test('that lack a few: the watermark stays, for the next run to ask for them again', async () => {
    const feed = await world.feed({ size: 5 }, ONE);
    await world.run(feed);
    await world.db.query(`UPDATE source SET watermark = watermark - interval '1 hour' WHERE id = $1`, [
      feed.sourceId,
    ]);
    const watermark = await world.watermark(feed);
    for (let index = 0; index < 5; index += 1) feed.changes.setPrice(index, 5_000 + index, Date.now());
    await world.pointAt(feed.name, { size: 5, faults: 'duplicate' }, ONE);
    const run = await world.run(feed);
    expect(run).toMatchObject({ status: 'COMPLETED', runType: 'incremental', recordsMissing: 1 });
    expect(run.watermarkAfter).toEqual(watermark);
    expect(await world.watermark(feed)).toEqual(watermark);
    const line = (await world.lines(run.id)).find(({ type }) => type === 'pipeline_run.keep_watermark');
    expect(line).toMatchObject({ level: 'WARN', payload: { records: 1 } });
    await world.pointAt(feed.name, { size: 5 }, ONE);
    expect((await world.run(feed)).recordsProcessed).toBe(5);
    const prices = Array.from({ length: 5 }, (_, index) => [stoneId(index), 5_000 + index] as const);
    expect(await world.items(feed)).toEqual(new Map(prices));
    expect((await world.watermark(feed))!.getTime()).toBeGreaterThan(watermark!.getTime());
  });

  test('that lack many: the partition fails, and goes on failing until it is forced', async () => {
    const feed = await world.feed({ size: 390, faults: 'duplicate' }, ONE);
    const run = await world.run(feed);
    expect(run).toMatchObject({ status: 'FAILED', recordsMissing: 13 });
    expect((await world.partitions(run.id))[0]).toMatchObject({
      status: 'failed',
      completed: false,
      errorMessage: 'the source counts 390 records and gave 377 different ones',
    });
    const request = { runId: run.id, idempotencyKey: null };
    await retryFailedPartitions(world.db, world.viewer, request);
    await world.worker().drain();
    expect(await world.find(run.id)).toMatchObject({ status: 'FAILED' });
    await consolidatePipelineRun(world.db, world.viewer, { ...request, force: true });
    await world.worker().drain();
    expect(await world.find(run.id)).toMatchObject({ status: 'COMPLETED', recordsConsolidated: 377 });
    await world.expectSound(run.id);
  });

  test('in another order every time: the partition fails, and everything stays as it was', async () => {
    const feed = await world.feed({ size: 120 }, ONE);
    await world.run(feed);
    const [items, watermark] = [await world.items(feed), await world.watermark(feed)];
    await world.pointAt(feed.name, { size: 120, faults: 'reorder' }, ONE);
    const run = await world.run(feed, 'full');
    expect(run).toMatchObject({ status: 'FAILED', recordsDeleted: 0, recordsConsolidated: 0 });
    expect(run.recordsDuplicated).toBeGreaterThan(0);
    expect((await world.partitions(run.id))[0]!.errorMessage).toContain(
      'the source changes faster than it can be read',
    );
    expect(await world.items(feed)).toEqual(items);
    expect(await world.watermark(feed)).toEqual(watermark);
  });

  test('that change under our feet: every record that is left is in the catalog', async () => {
    // With every page the feed loses its first record, and the others move up.
    const feed = await world.feed({ size: 150, faults: 'shift' }, ONE);
    const run = await world.run(feed);
    expect(run).toMatchObject({ status: 'COMPLETED', recordsDuplicated: 0, recordsMissing: 0 });
    const items = await world.items(feed);
    const indices = Array.from({ length: 150 }, (_, index) => index);
    const left = indices.filter((index) => !feed.changes.get(index)?.removed);
    expect(left.length).toBeLessThan(150);
    expect(left.filter((index) => !items.has(stoneId(index)))).toEqual([]);
    expect((await world.lines(run.id)).map(({ type }) => type)).toContain('partition.go_back');
  });

  test('without end, the last again and again: the partition fails and says so', async () => {
    const run = await world.run(await world.feed({ size: 90, faults: 'endless' }, ONE));
    expect(run).toMatchObject({ status: 'FAILED', failedWorkers: 1 });
    expect((await world.partitions(run.id))[0]!.errorMessage).toContain('the source repeats itself');
  });

  test('without end, ever new ones: the partition fails and says so', async () => {
    const run = await world.run(await world.feed({ size: 60, faults: 'grow' }, ONE));
    expect(run).toMatchObject({ status: 'FAILED', failedWorkers: 1 });
    expect((await world.partitions(run.id))[0]!.errorMessage).toContain('the source does not end');
  });
});

test('two sources with the same records: each page is its own, and the catalog has each item once', async () => {
  const [a, b] = [await world.feed({ size: 90 }), await world.feed({ size: 90 })];
  for (const { sourceId } of [a, b]) {
    await startPipelineRun(world.db, world.viewer, {
      projectId: 'default',
      sourceId,
      runType: null,
      allowConcurrent: false,
      metadata: {},
      idempotencyKey: null,
    });
  }
  await Promise.all([world.worker('w1').drain(), world.worker('w2').drain()]);
  const both = [await world.items(a), await world.items(b)];
  expect(both[0]!.size + both[1]!.size).toBe(90);
});
