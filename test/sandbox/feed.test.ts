// The sandbox's feed: what it holds, how it changes and how it misbehaves when asked to.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseFaults } from '../../src/sandbox/feed/faults.js';
import type { FeedOptions } from '../../src/sandbox/feed/feed.js';
import { FeedRecords, stoneId } from '../../src/sandbox/feed/records.js';
import { Stock, StockChanges, type StockQuery } from '../../src/sandbox/feed/stock.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';

let sandbox: Sandbox;
let feeds = 0;

beforeAll(async () => {
  sandbox = await startSandbox();
});
afterAll(() => sandbox.stop());

const QUERY = `query ($token: String!, $query: DiamondQuery!, $offset: Int!, $limit: Int!) {
  as(token: $token) {
    diamonds_by_query_count(query: $query)
    diamonds_by_query(query: $query, offset: $offset, limit: $limit) { items { price currency diamond { id } } }
  }
}`;

interface Item {
  readonly price: number;
  readonly currency: string;
  readonly diamond: { readonly id: string | null } | null;
}

/** Asks for pages of ten, one after the other, and answers the ids on each. */
async function readPages(options: FeedOptions, count: number): Promise<(string | null | undefined)[][]> {
  const name = `feed-${(feeds += 1)}`;
  const { endpoint } = sandbox.feedConfig(name, options);
  const pages: (string | null | undefined)[][] = [];
  for (let page = 0; page < count; page += 1) {
    const variables = { token: 'sandbox-feed-token', query: {}, offset: page * 10, limit: 10 };
    const response = await fetch(endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query: QUERY, variables }),
    });
    const { data } = (await response.json()) as {
      data: { as: { diamonds_by_query: { items: (Item | null)[] } } };
    };
    pages.push(data.as.diamonds_by_query.items.map((item) => item?.diamond?.id));
  }
  return pages;
}

const ids = (from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, index) => stoneId(from + index));

test('records are the same in every process, and no two share an id', () => {
  const records = new FeedRecords(100_000);
  expect(records.item(77_777, 0)).toEqual(new FeedRecords(100_000).item(77_777, 0));
  expect(new Set(ids(0, 100_000)).size).toBe(100_000);
});

test('prices grow with the number, so that a range of prices is one of numbers', () => {
  const records = new FeedRecords(5_000);
  for (const price of [0, 15_000, 15_001, 100_000, 6_000_000, 10 ** 9]) {
    const cheaper = Array.from({ length: 5_000 }, (_, i) => records.priceAt(i)).filter(
      (each) => each < price,
    );
    expect(records.countBelow(price)).toBe(cheaper.length);
  }
});

test('with a period every record changes once in it', () => {
  const records = new FeedRecords(50, 60_000);
  const now = Date.UTC(2026, 5, 1);
  for (let index = 0; index < 50; index += 1) {
    const changedAt = records.changedAtMs(index, now);
    expect(now - changedAt).toBeGreaterThanOrEqual(0);
    expect(now - changedAt).toBeLessThan(60_000);
    expect(records.changedAtMs(index, now + 60_000)).toBe(changedAt + 60_000);
  }
});

describe('changes', () => {
  const change = fc.record({
    index: fc.nat(60),
    price: fc.integer({ min: 10_000, max: 90_000 }),
    removed: fc.boolean(),
  });

  test('count and pages agree with looking at every record', () => {
    fc.assert(
      fc.property(
        fc.array(change, { maxLength: 20 }),
        fc.nat(60_000),
        fc.nat(60_000),
        fc.option(fc.nat(3)),
        (list, min, width, since) => {
          const records = new FeedRecords(50);
          const changes = new StockChanges();
          const base = Date.UTC(2026, 3, 1);
          for (const [at, { index, price, removed }] of list.entries()) {
            if (removed) changes.remove(index, base + at);
            else changes.setPrice(index, price, base + at);
          }
          const stock = new Stock(records, changes, base + 1_000);
          const query: StockQuery = {
            minPrice: min,
            maxPrice: min + width,
            sinceMs: since === null ? null : base + since,
          };
          const expected = Array.from({ length: 61 }, (_, index) => index).filter((index) => {
            const changed = changes.get(index);
            if (changed ? changed.removed : index >= 50) return false;
            const { price, updated_at } = stock.item(index);
            return (
              price >= min &&
              price <= min + width &&
              (query.sinceMs === null || Date.parse(updated_at) >= query.sinceMs)
            );
          });
          expect(stock.count(query)).toBe(expected.length);
          for (const offset of [0, 1, 7, 40, 100]) {
            expect(stock.select(query, offset, 9)).toEqual(expected.slice(offset, offset + 9));
          }
        },
      ),
    );
  });

  test('a record that was added is the last', () => {
    const changes = new StockChanges();
    const id = changes.add(5, 20_000, Date.now());
    const stock = new Stock(new FeedRecords(5), changes, Date.now());
    expect(stock.select({ minPrice: 0, maxPrice: 10 ** 9, sinceMs: null }, 0, 10)).toEqual([
      0, 1, 2, 3, 4, 5,
    ]);
    expect(stock.item(5).diamond.id).toBe(id);
  });
});

describe('faults', () => {
  test.each([
    ['', []],
    ['down', [{ name: 'down', count: null, at: null }]],
    [
      'skip:7,down:2@120',
      [
        { name: 'skip', count: 7, at: null },
        { name: 'down', count: 2, at: 120 },
      ],
    ],
    ['nonsense', null],
    ['down:x', null],
  ])('%j is read', (text, faults) => {
    expect(parseFaults(text)).toEqual(faults);
  });

  test('an address that cannot be understood is refused', async () => {
    const response = await fetch(sandbox.feedUrl('x', 'items', { faults: 'nonsense' }));
    expect(response.status).toBe(400);
  });

  test('repeat: every page but the first is the one before', async () => {
    const pages = await readPages({ size: 30, faults: 'repeat' }, 3);
    expect(pages).toEqual([ids(0, 10), ids(0, 10), ids(10, 20)]);
  });

  test('skip: some records never come', async () => {
    const pages = await readPages({ size: 20, faults: 'skip:10' }, 2);
    expect(pages).toEqual([ids(0, 9), ids(10, 19)]);
  });

  test('duplicate: one record of a page comes twice', async () => {
    const [page] = await readPages({ size: 20, faults: 'duplicate' }, 1);
    expect(page).toEqual([...ids(0, 9), stoneId(0)]);
  });

  test('reorder: another order with every request', async () => {
    const pages = await readPages({ size: 40, faults: 'reorder' }, 2);
    expect(pages[0]).not.toEqual(ids(0, 10));
    expect(pages[1]).not.toEqual(ids(10, 20));
  });

  test('shift: a record disappears with every page', async () => {
    const pages = await readPages({ size: 30, faults: 'shift' }, 2);
    expect(pages).toEqual([ids(0, 10), ids(11, 21)]);
  });

  test('endless: the last full page comes again and again', async () => {
    const pages = await readPages({ size: 15, faults: 'endless' }, 4);
    expect(pages.slice(1)).toEqual([ids(5, 15), ids(5, 15), ids(5, 15)]);
  });

  test('grow: there is always one page more', async () => {
    const pages = await readPages({ size: 15, faults: 'grow' }, 4);
    expect(new Set(pages.flat()).size).toBe(40);
  });

  test('a place: only the page with that record', async () => {
    const pages = await readPages({ size: 30, faults: 'skip:1@15' }, 3);
    expect(pages).toEqual([ids(0, 10), [], ids(20, 30)]);
  });
});
