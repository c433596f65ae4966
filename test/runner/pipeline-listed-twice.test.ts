// Sources that list records more than once: told apart from those that shift while they are read by its being the
// same records every time.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FeedWorld } from '../support/feed-world.js';
import { JsonFeed, recordOf, recordsOf } from '../support/json-feed.js';

let world: FeedWorld;
let feed: JsonFeed;
let sources = 0;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());
beforeEach(async () => {
  // What another source has would be handed over to it.
  await world.db.query('DELETE FROM raw_item');
  feed = await JsonFeed.start([]);
});
afterEach(() => feed.stop());

function newSource(policy: object = {}): Promise<{ readonly sourceId: string }> {
  return world.source(`json-${(sources += 1)}`, 'http-json', feed.config({ total: 'total', policy }));
}

const typesOf = async (runId: string): Promise<string[]> =>
  (await world.lines(runId)).map(({ type }) => type);

describe('the same ones every time', () => {
  test.each([
    ['on one page', (count: number) => [recordOf(5), ...recordsOf(count)]],
    ['far apart', (count: number) => [...recordsOf(count), recordOf(5)]],
  ])('%s: the watermark is held once, and what is gone goes', async (_, recordsWith) => {
    const source = await newSource();
    feed.records = recordsWith(99);
    const first = await world.run(source);
    expect(first).toMatchObject({ status: 'COMPLETED', recordsDuplicated: 1, watermarkAfter: null });
    expect(await typesOf(first.id)).toContain('pipeline_run.keep_watermark');
    feed.records = recordsWith(97);
    const second = await world.run(source);
    expect(second).toMatchObject({
      status: 'COMPLETED',
      runType: 'full',
      recordsDuplicated: 1,
      recordsMissing: 0,
      recordsDeleted: 2,
      keptReason: null,
    });
    expect(second.watermarkAfter).not.toBeNull();
    const line = (await world.lines(second.id)).find(({ type }) => type === 'partition.listed_twice');
    expect(line).toMatchObject({ level: 'INFO', payload: { records: 1 } });
    expect((await world.items(source)).size).toBe(97);
    expect(await world.run(source)).toMatchObject({ status: 'COMPLETED', runType: 'incremental' });
  });

  test('so many that they are taken for a fault: another run takes them for what they are', async () => {
    const source = await newSource({ partitions: 1 });
    feed.records = [...recordsOf(980), ...recordsOf(20)];
    const first = await world.run(source);
    expect(first).toMatchObject({ status: 'FAILED', recordsDuplicated: 20 });
    expect((await world.partitions(first.id))[0]!.errorMessage).toBe(
      'the source counts 1000 records and gave 980 different ones',
    );
    const second = await world.run(source);
    expect(second).toMatchObject({ status: 'COMPLETED', recordsDuplicated: 20, recordsMissing: 0 });
    expect(second.watermarkAfter).not.toBeNull();
    expect((await world.items(source)).size).toBe(980);
  });
});

test('another one every time: each may stand in the place of one that never came', async () => {
  const source = await newSource();
  for (const twice of [5, 6, 7]) {
    feed.records = [...recordsOf(99), recordOf(twice)];
    const run = await world.run(source);
    expect(run).toMatchObject({ status: 'COMPLETED', recordsDuplicated: 1, watermarkAfter: null });
    expect(await typesOf(run.id)).toContain('pipeline_run.keep_watermark');
  }
  feed.records = [...recordsOf(98), recordOf(8), recordOf(9)];
  expect(await world.run(source)).toMatchObject({
    recordsDeleted: 0,
    recordsKept: 1,
    keptReason: 'records that the source counted and never gave: 2',
  });
});
