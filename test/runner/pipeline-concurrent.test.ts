// Two runs of one source at the same time, by `allowConcurrent`: whatever is settled last, the catalog has what was
// fetched last.
import type { ServerResponse } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FeedWorld } from '../support/feed-world.js';
import { JsonFeed, recordsOf } from '../support/json-feed.js';

let world: FeedWorld;
let feed: JsonFeed;

beforeAll(async () => {
  world = await FeedWorld.create();
  feed = await JsonFeed.start(recordsOf(40));
});
afterAll(async () => {
  feed.stop();
  await world.drop();
});

test('an older page that is settled later does not undo a newer one', async () => {
  const source = await world.source('both', 'http-json', feed.config({ total: 'total' }));
  const [a, b] = [world.worker('a'), world.worker('b')];
  const first = await world.start(source, 'full');
  await a.step(a.plans);
  // The source takes its time over the first page of the first run.
  const asked = new Promise<ServerResponse>((resolve) => {
    feed.script = (_, response) => {
      resolve(response);
      return 'held';
    };
  });
  const old = (await a.claimed(a.pages)).process(new AbortController().signal);
  const response = await asked;
  const answer = JSON.stringify({ items: feed.records.slice(0, 30), total: 40 });
  feed.script = () => null;
  feed.records[3] = { ...feed.records[3]!, price: '2.00' };
  const second = await world.start(source, 'full', { allowConcurrent: true });
  await b.step(b.plans);
  expect([await b.step(b.pages), await b.step(b.pages), await b.step(b.pages)]).toEqual([true, true, false]);
  expect(await world.find(second.id)).toMatchObject({ status: 'CONSOLIDATING', recordsProcessed: 40 });
  response.end(answer);
  expect(await old).toBe('success');
  await Promise.all([a.drain(), b.drain()]);
  for (const { id } of [first, second]) {
    expect(await world.find(id)).toMatchObject({
      status: 'COMPLETED',
      recordsProcessed: 40,
      recordsMissing: 0,
    });
    await world.expectSound(id);
  }
  const items = await world.items(source);
  expect(items.size).toBe(40);
  expect(items.get('r3')).toBe(200);
  const [{ watermarkAfter }] = [await world.find(second.id)];
  expect(await world.watermark(source)).toEqual(watermarkAfter);
});
