// A feed whose records move to lower offsets while it is read, though it counts as many as before: some go, and as
// many others come.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { FeedCall } from '../../src/runner/observer.js';
import { stoneId } from '../../src/sandbox/feed/records.js';
import type { PipelineRunType } from '../../src/domain/pipeline-run.js';
import type { PipelineRunRow } from '../../src/store/pipeline-run.js';
import { FeedWorld, type TestFeed } from '../support/feed-world.js';

let world: FeedWorld;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());

const ONE = { partitions: 1 };

/** A run that is read page by page, with what happens before each of them. */
async function runWith(
  feed: TestFeed,
  runType: PipelineRunType,
  before: (page: number) => void,
): Promise<PipelineRunRow> {
  const { id } = await world.start(feed, runType);
  const worker = world.worker();
  await worker.step(worker.plans);
  for (let page = 0; (await world.find(id)).status === 'WORKERS_RUNNING'; page += 1) {
    before(page);
    await worker.step(worker.pages);
  }
  await worker.drain();
  await world.expectSound(id);
  return world.find(id);
}

async function goneBack({ id }: PipelineRunRow): Promise<{ message: string; payload: object }[]> {
  return (await world.lines(id)).filter(({ type }) => type === 'partition.go_back');
}

describe('one record that goes and another that comes between two pages pass over none', () => {
  test('in a full run: the catalog loses nothing that lives', async () => {
    const feed = await world.feed({ size: 150 }, ONE);
    await world.run(feed);
    let added = '';
    const run = await runWith(feed, 'full', (page) => {
      if (page !== 2) return;
      feed.changes.remove(5, Date.now());
      added = feed.changes.add(150, 4_000_000, Date.now());
    });
    expect(run).toMatchObject({
      status: 'COMPLETED',
      recordsDuplicated: 0,
      recordsMissing: 0,
      recordsDeleted: 0,
    });
    const items = await world.items(feed);
    expect(items.size).toBe(151);
    expect(items.has(stoneId(60))).toBe(true);
    expect(items.has(added)).toBe(true);
    expect(await goneBack(run)).toMatchObject([
      {
        message:
          'the source has other records before position 60 than were read: partition-0 goes back by 32, lest one be passed over',
        level: 'WARN',
        payload: { partitionId: 'partition-0', position: 60, by: 32, counted: 150 },
      },
    ]);
  });

  test('in an incremental run: what changed is read before the watermark moves past it', async () => {
    const feed = await world.feed({ size: 150 }, ONE);
    await world.run(feed);
    for (let index = 0; index < 100; index += 1) feed.changes.setPrice(index, 5_000 + index, Date.now());
    const run = await runWith(feed, 'incremental', (page) => {
      if (page !== 2) return;
      feed.changes.remove(5, Date.now());
      feed.changes.setPrice(120, 9_999, Date.now());
    });
    expect(run).toMatchObject({ status: 'COMPLETED', recordsDuplicated: 0, recordsMissing: 0 });
    expect(await world.watermark(feed)).toEqual(run.watermarkAfter);
    const items = await world.items(feed);
    expect(items.get(stoneId(60))).toBe(5_060);
    expect(items.get(stoneId(120))).toBe(9_999);
    expect(await goneBack(run)).toHaveLength(1);
  });

  test('on the page that would have been empty', async () => {
    const feed = await world.feed({ size: 60 }, ONE);
    let added = '';
    const run = await runWith(feed, 'full', (page) => {
      if (page !== 2) return;
      feed.changes.remove(5, Date.now());
      added = feed.changes.add(60, 4_000_000, Date.now());
    });
    expect(run).toMatchObject({ status: 'COMPLETED', recordsMissing: 0 });
    expect((await world.items(feed)).has(added)).toBe(true);
  });
});

describe('a feed that never rests', () => {
  /** Before every page the first of the list go, and as many come at its end. */
  async function restless(size: number, rate: number, until: number) {
    const feed = await world.feed({ size }, ONE);
    let first = 0;
    const run = await runWith(feed, 'full', (page) => {
      for (let n = 0; page > 0 && page < until && n < rate; n += 1) {
        feed.changes.remove(first++, Date.now());
        feed.changes.add(size, 4_000_000, Date.now());
      }
    });
    return { run, items: await world.items(feed), first };
  }

  test('is read to its end, as long as it moves by less than a page', async () => {
    const { run, items, first } = await restless(300, 3, 12);
    expect(run).toMatchObject({ status: 'COMPLETED', recordsMissing: 0 });
    const last = 300 + first;
    const left = Array.from({ length: last - first }, (_, index) => stoneId(first + index));
    expect(left.filter((id) => !items.has(id))).toEqual([]);
  });

  test('fails its partition with the reason when it moves by more, again and again', async () => {
    const { run } = await restless(100, 35, Infinity);
    expect(run).toMatchObject({ status: 'FAILED', watermarkAfter: null });
    expect((await world.partitions(run.id))[0]!.errorMessage).toContain('changes faster than it can be read');
  });
});

test('what another run of the source has read since is no gap: a run goes back by a page, not to its beginning', async () => {
  const feed = await world.feed({ size: 300 }, ONE);
  const worker = world.worker();
  const begin = async (pages: number): Promise<string> => {
    const { id } = await world.start(feed, 'full', { allowConcurrent: true });
    await worker.step(worker.plans);
    for (let page = 0; page < pages; page += 1) await worker.step(worker.pages);
    return id;
  };
  const first = await begin(6);
  const page = await worker.claimed(worker.pages);
  const other = await begin(6);
  feed.changes.remove(5, Date.now());
  feed.changes.add(300, 4_000_000, Date.now());
  await page.process(new AbortController().signal);
  await worker.drain();
  const runs = await Promise.all([first, other].map((id) => world.find(id)));
  for (const run of runs) expect(run).toMatchObject({ status: 'COMPLETED', recordsMissing: 0 });
  const [lines, others] = await Promise.all(runs.map(goneBack));
  expect(lines).toHaveLength(1);
  // None, where the first has read by then what it comes to.
  expect(others!.length).toBeLessThanOrEqual(1);
});

test('a feed that rests is asked for each of its pages once, where they always began', async () => {
  const feed = await world.feed({ size: 100 }, ONE);
  const { id } = await world.start(feed);
  const calls: FeedCall[] = [];
  const worker = world.worker('w1', { observer: { onFeedCall: (call) => calls.push(call) } });
  await worker.step(worker.plans);
  calls.length = 0;
  const requests = world.sandbox.feedRequests(feed.name);
  const offsets: number[] = [];
  while (await worker.step(worker.pages)) offsets.push((await world.partitions(id))[0]!.nextOffset);
  expect(calls.map((call) => 'offset' in call && call.offset)).toEqual([0, 30, 60, 90]);
  expect(offsets).toEqual([30, 60, 90, 100]);
  expect(world.sandbox.feedRequests(feed.name) - requests).toBe(4);
  await worker.drain();
  expect(await world.find(id)).toMatchObject({ status: 'COMPLETED', recordsProcessed: 100 });
});
