// What a full run did not see: taken out of the catalog only when the run can vouch that it saw everything.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { consolidatePipelineRun } from '../../src/store/pipeline-run-control.js';
import type { PipelineRunRow } from '../../src/store/pipeline-run.js';
import type { StockChanges } from '../../src/sandbox/feed/stock.js';
import { FeedWorld } from '../support/feed-world.js';
import { JsonFeed, recordsOf, type JsonRecord } from '../support/json-feed.js';

let world: FeedWorld;
let feed: JsonFeed;
let source: { readonly sourceId: string };
let name: string;
let sources = 0;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());
beforeEach(async () => {
  feed = await JsonFeed.start([]);
  name = `json-${(sources += 1)}`;
  source = await world.source(name, 'http-json', feed.config());
});
afterEach(() => feed.stop());

/** No two sources have one in common: what one loses is nobody else's. */
function ownRecords(count: number): JsonRecord[] {
  return recordsOf(count).map((record, index) => ({ ...record, id: `${name}-${index}` }));
}

async function itemCount(): Promise<number> {
  return (await world.items(source)).size;
}

/** A full run after one that saw everything. */
async function secondRun(count: number, change: () => void): Promise<PipelineRunRow> {
  feed.records = ownRecords(count);
  expect(await world.run(source)).toMatchObject({ status: 'COMPLETED', recordsConsolidated: count });
  change();
  return world.run(source, 'full');
}

describe('goes when', () => {
  test('everything was seen', async () => {
    const run = await secondRun(70, () => feed.records.splice(5, 3));
    expect(run).toMatchObject({ status: 'COMPLETED', recordsDeleted: 3, recordsKept: 0, keptReason: null });
    expect(await itemCount()).toBe(67);
  });

  test('others are set aside whose id is known: those are still there', async () => {
    const run = await secondRun(70, () => {
      feed.records[3] = { ...feed.records[3]!, title: 'a\0b' };
      feed.records[4] = { ...feed.records[4]!, title: 'x'.repeat(300_000) };
      feed.records[5] = { ...feed.records[5]!, price: 'none' };
      feed.records.pop();
    });
    expect(run).toMatchObject({ recordsRejected: 3, recordsDeleted: 1 });
    expect(await itemCount()).toBe(69);
    expect((await world.rejected(run.id)).map(({ externalId }) => externalId)).toEqual(
      [3, 4, 5].map((number) => `${name}-${number}`),
    );
  });

  test('it is half of all, or few', async () => {
    expect(await secondRun(250, () => feed.records.splice(125))).toMatchObject({ recordsDeleted: 125 });
    expect(await world.run(source, 'full')).toMatchObject({ recordsDeleted: 0 });
    feed.records.splice(25);
    expect(await world.run(source, 'full')).toMatchObject({ recordsDeleted: 100 });
  });
});

describe('stays, and the run says why and how many, when', () => {
  test.each<[string, string, number, () => void]>([
    [
      'a record has no id that can be read',
      'records whose id cannot be read, and which may be any: 1',
      1,
      () => (feed.records[3] = { id: null, title: 'nobody' }),
    ],
    [
      'a record comes twice',
      'records that came twice, perhaps in the place of others: 1',
      1,
      () => (feed.records[3] = feed.records[4]!),
    ],
    [
      'there is no record at all on the first page',
      'it saw no record at all',
      70,
      () => (feed.script = ({ limit }) => (limit > 1 ? { items: [] } : null)),
    ],
  ])('%s', async (_, reason, count, change) => {
    const run = await secondRun(70, change);
    expect(run).toMatchObject({
      status: 'COMPLETED',
      recordsDeleted: 0,
      recordsKept: count,
      keptReason: reason,
    });
    expect(await itemCount()).toBe(70);
    const line = (await world.lines(run.id)).find(({ type }) => type === 'pipeline_run.keep_unseen');
    expect(line).toMatchObject({
      level: 'WARN',
      message: `${count} items that it did not see stay in the catalog: ${reason}`,
      payload: { reason, items: count },
    });
  });

  test.each([
    ['a header is renamed', (text: string) => text.replace('id', 'ident')],
    ['a file ends in the middle of a line', (text: string) => text.slice(0, -9)],
  ])('%s', async (_, change) => {
    const filesDir = await mkdtemp(join(tmpdir(), 'runledger-files-'));
    const path = join(filesDir, 'feed.csv');
    const lines = ownRecords(60).map(({ id }) => `${String(id)},x,1,EUR\n`);
    const text = `id,title,price,currency\n${lines.join('')}`;
    const worker = world.worker('w1', { filesDir });
    const csv = await world.source(`${name}-csv`, 'csv', { path: 'feed.csv' });
    await writeFile(path, text);
    expect(await world.run(csv, null, worker)).toMatchObject({ recordsConsolidated: 60 });
    await writeFile(path, change(text));
    const run = await world.run(csv, 'full', worker);
    expect(run).toMatchObject({ status: 'COMPLETED', recordsDeleted: 0 });
    expect(run.keptReason).toContain('records whose id cannot be read');
    expect((await world.items(csv)).size).toBe(60);
    await rm(filesDir, { recursive: true });
  });
});

test('more than half of many go only when a person insists', async () => {
  const run = await secondRun(220, () => feed.records.splice(109));
  const reason = '111 of the 220 items would go: consolidate it with force';
  expect(run).toMatchObject({ status: 'FAILED', error: reason, recordsDeleted: 0, recordsKept: 111 });
  expect(run.watermarkAfter).toBeNull();
  const types = (await world.lines(run.id)).map(({ type }) => type);
  expect(types).toEqual(expect.arrayContaining(['pipeline_run.keep_unseen', 'pipeline_run.alert']));
  const again = async (force: boolean): Promise<PipelineRunRow> => {
    await consolidatePipelineRun(world.db, world.viewer, { runId: run.id, force, idempotencyKey: null });
    await world.worker().drain();
    await world.expectSound(run.id);
    return world.find(run.id);
  };
  expect(await again(false)).toMatchObject({ status: 'FAILED', error: reason });
  expect(await itemCount()).toBe(220);
  expect(await again(true)).toMatchObject({
    status: 'COMPLETED',
    recordsDeleted: 111,
    recordsKept: 0,
    keptReason: null,
  });
  expect(await itemCount()).toBe(109);
  expect(await world.watermark(source)).not.toBeNull();
});

test('all of them go, where there is no record at all any more, only when a person insists', async () => {
  const run = await secondRun(120, () => (feed.records = []));
  expect(run).toMatchObject({ status: 'FAILED', error: expect.stringContaining('no records at all') });
  const { id: runId } = run;
  const consolidate = (force: boolean): Promise<unknown> =>
    consolidatePipelineRun(world.db, world.viewer, { runId, force, idempotencyKey: null });
  await expect(consolidate(false)).rejects.toMatchObject({ code: 'GUARDRAIL', field: ['input', 'force'] });
  expect(await itemCount()).toBe(120);
  const watermark = await world.watermark(source);
  await consolidate(true);
  await world.worker().drain();
  await world.expectSound(runId);
  expect(await world.find(runId)).toMatchObject({
    status: 'COMPLETED',
    recordsDeleted: 120,
    recordsKept: 0,
    keptReason: null,
  });
  expect(await itemCount()).toBe(0);
  expect((await world.watermark(source))!.getTime()).toBeGreaterThanOrEqual(watermark!.getTime());
  expect(await world.run(source, 'full')).toMatchObject({ status: 'COMPLETED', recordsProcessed: 0 });
});

describe('an item that leaves what is read while it is read', () => {
  /** A full run that is read by one worker, with what happens when its first partition is in. */
  async function rereadWith(partitions: number, change: (stock: StockChanges, stone: number) => void) {
    const stones = await world.feed({ size: 300 }, { partitions });
    const stone = 9_000 + partitions;
    const own = stones.changes.add(stone, 4_000_000, Date.now());
    await world.run(stones, 'full');
    const { id } = await world.start(stones, 'full');
    const worker = world.worker();
    await worker.step(worker.plans);
    while ((await world.partitions(id))[0]!.nextOffset < 60) await worker.step(worker.pages);
    while (partitions > 1 && (await world.find(id)).completedWorkers === 0) await worker.step(worker.pages);
    change(stones.changes, stone);
    await worker.drain();
    await world.expectSound(id);
    return { run: await world.find(id), isThere: (await world.items(stones)).has(own) };
  }

  test('stays where there are several ranges: its price may have moved it into one that was read before', async () => {
    const { run, isThere } = await rereadWith(2, (stock, stone) => stock.setPrice(stone, 15_000, Date.now()));
    expect(run).toMatchObject({
      status: 'COMPLETED',
      recordsDeleted: 0,
      recordsKept: 1,
      keptReason: 'records that left their range while it was read: 1',
    });
    expect(isThere).toBe(true);
  });

  test('goes where there is but one: there is nowhere else for it to be', async () => {
    const { run, isThere } = await rereadWith(1, (stock, stone) => stock.remove(stone, Date.now()));
    expect(run).toMatchObject({ status: 'COMPLETED', recordsDeleted: 1, keptReason: null });
    expect(isThere).toBe(false);
  });
});

test('a run beside another of its source takes nothing out', async () => {
  feed.records = ownRecords(70);
  await world.run(source);
  feed.records.pop();
  const [a, b] = [
    await world.start(source, 'full'),
    await world.start(source, 'full', { allowConcurrent: true }),
  ];
  await world.worker().drain();
  for (const { id } of [a, b]) {
    expect(await world.find(id)).toMatchObject({
      status: 'COMPLETED',
      recordsDeleted: 0,
      recordsKept: 1,
      keptReason: 'another run of the source was read at the same time',
    });
  }
});
