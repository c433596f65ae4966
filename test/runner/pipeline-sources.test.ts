// Every kind of source through the runner, and http-json sources that never end or shrink while they are read.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { PipelineRunRow } from '../../src/store/pipeline-run.js';
import { FeedWorld } from '../support/feed-world.js';
import { JsonFeed, recordOf, recordsOf } from '../support/json-feed.js';

let world: FeedWorld;
let feed: JsonFeed;
let runs = 0;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());
beforeEach(async () => {
  feed = await JsonFeed.start([]);
});
afterEach(() => feed.stop());

async function jsonRun(config: object = {}): Promise<PipelineRunRow & { items: string[] }> {
  const source = await world.source(`json-${(runs += 1)}`, 'http-json', feed.config(config));
  const run = await world.run(source);
  return { ...run, items: [...(await world.items(source)).keys()] };
}

async function errorsOf({ id }: PipelineRunRow): Promise<(string | null)[]> {
  return (await world.partitions(id)).map(({ errorMessage }) => errorMessage);
}

const COUNTED = { total: 'total' };
const BY_CURSOR = { paging: { kind: 'cursor' } };
const idsOf = (count: number): Set<unknown> => new Set(recordsOf(count).map(({ id }) => id));

describe('through the runner', () => {
  test.each([200, 1_000])('http-json by offset, counted, %i records', async (size) => {
    const source = await world.source(`items-${size}`, 'http-json', {
      url: world.sandbox.feedUrl(`items-${size}`, 'items', { size }),
      items: 'data.items',
      total: 'data.total',
      since: 'updated_since',
    });
    expect(await world.run(source)).toMatchObject({
      status: 'COMPLETED',
      recordsProcessed: size,
      recordsDuplicated: 0,
      recordsMissing: 0,
      recordsConsolidated: size,
    });
    expect((await world.items(source)).size).toBe(size);
    world.sandbox.feedChanges(`items-${size}`).setPrice(3, 5_000, Date.now());
    expect(await world.run(source)).toMatchObject({ runType: 'incremental', recordsProcessed: 1 });
  });

  test('http-json by cursor', async () => {
    feed.records = recordsOf(100);
    feed.script = ({ cursor, limit }) => {
      const start = Number(cursor ?? 0);
      const end = start + limit;
      return { items: feed.records.slice(start, end), next: end < 100 ? end : null };
    };
    expect(new Set((await jsonRun(BY_CURSOR)).items)).toEqual(idsOf(100));
  });

  test('csv, downloaded', async () => {
    const url = world.sandbox.feedUrl('csv', 'items.csv', { size: 200 });
    const source = await world.source('csv', 'csv', { url });
    expect(await world.run(source)).toMatchObject({
      status: 'COMPLETED',
      recordsProcessed: 200,
      recordsRejected: 0,
    });
    expect((await world.items(source)).size).toBe(200);
  });

  test('ndjson, from disk', async () => {
    const filesDir = await mkdtemp(join(tmpdir(), 'runledger-files-'));
    const text = recordsOf(200).map((record) => `${JSON.stringify(record)}\n`);
    await writeFile(join(filesDir, 'feed.ndjson'), text.join(''));
    const source = await world.source('ndjson', 'ndjson', { path: 'feed.ndjson', defaultCurrency: 'EUR' });
    const run = await world.run(source, null, world.worker('w1', { filesDir }));
    expect(run).toMatchObject({ status: 'COMPLETED', expectedWorkers: 3, recordsProcessed: 200 });
    expect(new Set((await world.items(source)).keys())).toEqual(idsOf(200));
    await rm(filesDir, { recursive: true });
  });

  test('csv, from disk, with ids that come twice: each is there once, and nothing is missing', async () => {
    const filesDir = await mkdtemp(join(tmpdir(), 'runledger-files-'));
    const lines = recordsOf(100).map((_, index) => `r-${index % 80},Item,1.00,EUR\n`);
    await writeFile(join(filesDir, 'feed.csv'), ['id,title,price,currency\n', ...lines].join(''));
    const source = await world.source('twice', 'csv', { path: 'feed.csv' });
    const run = await world.run(source, null, world.worker('w1', { filesDir }));
    expect(run).toMatchObject({ status: 'COMPLETED', recordsDuplicated: 20, recordsMissing: 0 });
    expect((await world.items(source)).size).toBe(80);
    await rm(filesDir, { recursive: true });
  });
});

describe('a feed that grows while it is read', () => {
  // By as many as a page has, it gives the one before again.
  test.each([20, 30])(
    'by %i before the reader: what was there at first is all read, and the rest is the next run’s',
    async (growth) => {
      feed.records = recordsOf(120);
      const late = recordsOf(120 + growth).slice(120);
      feed.script = ({ offset }) => {
        if (offset === 60) feed.records.unshift(...late.splice(0));
        return null;
      };
      const run = await jsonRun({ ...COUNTED, policy: { partitions: 1 } });
      expect(run).toMatchObject({
        status: 'COMPLETED',
        recordsDuplicated: growth,
        recordsMissing: growth,
      });
      expect(new Set(run.items)).toEqual(idsOf(120));
    },
  );
});

describe('a feed that shrinks while it is read', () => {
  test.each([
    ['one range', { policy: { partitions: 1 } }],
    ['ranges side by side', {}],
  ])('loses no record to the gap, in %s', async (_, policy) => {
    feed.records = recordsOf(300);
    // Records go when the reader has come behind them: the others move to lower offsets.
    const goneBefore = new Map([
      [3, 7],
      [7, 12],
      [8, 1],
    ]);
    feed.script = () => {
      feed.records.splice(0, goneBefore.get(feed.asked.length) ?? 0);
      return null;
    };
    const run = await jsonRun({ ...COUNTED, ...policy });
    expect(run).toMatchObject({ status: 'COMPLETED', recordsMissing: 0, recordsDuplicated: 0 });
    const left = new Set(feed.records.map(({ id }) => id));
    expect(left.size).toBe(280);
    for (const id of left) expect(run.items).toContain(id);
    const back = (await world.lines(run.id)).filter(({ type }) => type === 'partition.go_back');
    expect(back[0]).toMatchObject({ level: 'WARN', payload: { by: 21, counted: 293 } });
  });

  test('behind the reader reads nothing as a duplicate', async () => {
    feed.records = recordsOf(120);
    feed.script = ({ offset }) => {
      if (offset === 60) feed.records.splice(110, 10);
      return null;
    };
    const run = await jsonRun({ ...COUNTED, policy: { partitions: 1 } });
    expect(run).toMatchObject({ status: 'COMPLETED', recordsDuplicated: 0, recordsMissing: 0 });
    expect(new Set(run.items)).toEqual(idsOf(110));
  });

  test('and grows again and again fails its partition, instead of being read for ever', async () => {
    feed.records = recordsOf(100);
    feed.script = () => ({ items: recordsOf(30), total: feed.asked.length % 2 === 0 ? 100 : 10 });
    const run = await jsonRun({ ...COUNTED, policy: { partitions: 1 } });
    expect(run.status).toBe('FAILED');
    expect(await errorsOf(run)).toEqual([expect.stringContaining('changes faster than it can be read')]);
  });
});

describe('a source that never ends', () => {
  const ONCE = { policy: { retry: { maxAttempts: 2 } } };

  test.each([
    ['records without ids, the offset ignored', { items: Array(30).fill({ title: 'x' }) }],
    ['the same records under ever new cursors', { items: recordsOf(30) }],
  ])('%s', async (_, answer) => {
    let pages = 0;
    feed.script = () => ({ ...answer, next: `cursor-${(pages += 1)}` });
    const config = 'next' in answer || answer.items[0]!['id'] !== undefined ? BY_CURSOR : {};
    const run = await jsonRun({ ...config, ...ONCE });
    expect(run.status).toBe('FAILED');
    expect(await errorsOf(run)).toEqual([
      'the source repeats itself: the page is the same as the one before',
    ]);
  });

  test('records without ids, counted, the offset ignored', async () => {
    feed.script = () => ({ items: Array(30).fill({ title: 'x' }), total: 60 });
    const run = await jsonRun({ ...COUNTED, policy: { partitions: 1, retry: { maxAttempts: 2 } } });
    expect(run.status).toBe('FAILED');
    expect(await errorsOf(run)).toEqual([expect.stringContaining('the source does not end')]);
  });

  test('no items under ever new cursors', async () => {
    let pages = 0;
    feed.script = () => ({ items: pages++ === 0 ? recordsOf(1) : [], next: `cursor-${pages}` });
    const run = await jsonRun({ ...BY_CURSOR, ...ONCE });
    expect(await errorsOf(run)).toEqual(['the source gave an empty page and says that it is not the last']);
    expect(feed.asked.length).toBe(3);
  });
});

describe('what cannot be kept', () => {
  test('of a page, for it is nested without end, is set aside alone', async () => {
    const deep = `{"id":"deep","a":${'['.repeat(10_000)}${']'.repeat(10_000)}}`;
    const good = recordsOf(2).map((record) => JSON.stringify(record));
    feed.script = (_, response) => {
      response.end(`{"items":[${good[0]},${deep},${good[1]}]}`);
      return {};
    };
    const run = await jsonRun();
    expect(run).toMatchObject({ status: 'COMPLETED', recordsProcessed: 3, recordsRejected: 1 });
    expect(new Set(run.items)).toEqual(idsOf(2));
  });

  test('of whole pages, for none has an id, is set aside', async () => {
    feed.records = [...Array<never>(60).fill(null as never), ...recordsOf(10)];
    const run = await jsonRun({ ...COUNTED, policy: { partitions: 1 } });
    expect(run).toMatchObject({ status: 'COMPLETED', recordsProcessed: 70, recordsRejected: 60 });
    expect(new Set(run.items)).toEqual(idsOf(10));
  });

  test('in a failure of the source is replaced', async () => {
    feed.records = recordsOf(10);
    feed.script = ({ limit }, response) => {
      if (limit > 1) response.end(`<html>\0\ud83d${'x'.repeat(50)}`);
      return limit > 1 ? {} : null;
    };
    const run = await jsonRun({ policy: { retry: { maxAttempts: 2 } } });
    expect(run.status).toBe('FAILED');
    expect(await errorsOf(run)).toEqual([expect.stringContaining('is no JSON')]);
  });

  test('as a cursor fails the partition', async () => {
    feed.script = () => ({ items: [recordOf(1)], next: 'a\0b' });
    const run = await jsonRun({ ...BY_CURSOR, policy: { retry: { maxAttempts: 2 } } });
    expect(run.status).toBe('FAILED');
    expect(await errorsOf(run)).toEqual(['the source gave a cursor that cannot be kept: "a\\u0000b"']);
  });

  test('in the database fails the partition, not the process', async () => {
    await world.db.query(`ALTER TABLE raw_item ADD CONSTRAINT no_r1 CHECK (external_id <> 'r1') NOT VALID`);
    feed.records = recordsOf(3);
    const run = await jsonRun({ policy: { retry: { maxAttempts: 2 } } });
    await world.db.query('ALTER TABLE raw_item DROP CONSTRAINT no_r1');
    expect(run.status).toBe('FAILED');
    expect(await errorsOf(run)).toEqual([expect.stringContaining('the page cannot be kept')]);
  });
});
