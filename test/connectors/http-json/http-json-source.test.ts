// The http-json source against the sandbox's pages of JSON, and against a server that misbehaves.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../../src/sandbox/server.js';
import { stoneId } from '../../../src/sandbox/feed/records.js';
import { never, open, planOf, readIds, readRange } from '../source-support.js';

let sandbox: Sandbox;
let server: Server | null = null;

beforeAll(async () => {
  sandbox = await startSandbox();
});
afterAll(() => sandbox.stop());
afterEach(() => {
  server?.close();
  server = null;
});

/** The address of a server that answers with what `answer` gives for each query. */
async function serve(answer: (query: URLSearchParams) => unknown): Promise<string> {
  server = createServer((request, response) => {
    const query = new URL(request.url!, 'http://localhost').searchParams;
    response.setHeader('content-type', 'application/json').end(JSON.stringify(answer(query)));
  });
  await new Promise<void>((done) => server!.listen(0, '127.0.0.1', done));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

const BY_OFFSET = { items: 'data.items', total: 'data.total', since: 'updated_since' };

test('by offset: ranges of offsets, every record once', async () => {
  const source = open('http-json', {
    url: sandbox.feedUrl('offset', 'items', { size: 1_000 }),
    ...BY_OFFSET,
  });
  const { ranges } = await planOf(source);
  expect(ranges).toHaveLength(17);
  expect(ranges.reduce((sum, { totalRecords }) => sum + totalRecords!, 0)).toBe(1_000);
  expect(ranges.at(-1)!.range).toMatchObject({ end: null });
  const ids = await readIds(source);
  expect(ids).toHaveLength(1_000);
  expect(new Set(ids).size).toBe(1_000);
});

test('by offset: a range that was read to its end has nothing more, and no page of no length is asked for', async () => {
  const limits: (string | null)[] = [];
  const url = await serve((query) => {
    limits.push(query.get('limit'));
    return { items: [{ id: 1 }], total: 60 };
  });
  const source = open('http-json', { url, total: 'total' });
  const page = await source.fetchPage(
    { range: { start: 0, end: 30 }, offset: 30, cursor: null, limit: 30, since: null },
    never,
  );
  expect(page).toMatchObject({ kind: 'page', records: [], passed: 0, isLast: true, totalRecords: 30 });
  expect(limits).toEqual(['1']);
});

test('by offset: only what changed, by the parameter of the source', async () => {
  const source = open('http-json', { url: sandbox.feedUrl('since', 'items', { size: 100 }), ...BY_OFFSET });
  const since = new Date();
  expect((await planOf(source, since)).ranges).toEqual([]);
  sandbox.feedChanges('since').setPrice(3, 5_000, since.getTime());
  expect(await readIds(source, since)).toEqual([stoneId(3)]);
});

test('without such a parameter, old records are passed over', async () => {
  const { since: _, ...settings } = BY_OFFSET;
  const url = sandbox.feedUrl('passed', 'items', { size: 100 });
  const source = open('http-json', { url, ...settings, fields: { updatedAt: 'updated_at' } });
  const since = new Date();
  sandbox.feedChanges('passed').setPrice(3, 5_000, since.getTime());
  const { ranges } = await planOf(source, since);
  const { pages, records } = await readRange(source, ranges[0]!, { since });
  expect(pages.map(({ passed }) => passed)).toEqual([30, 30]);
  expect(records.map(({ externalId }) => externalId)).toEqual([stoneId(3)]);
});

test('by cursor: one range, from cursor to cursor', async () => {
  const url = sandbox.feedUrl('cursor', 'items', { size: 100 });
  const source = open('http-json', { url, items: 'data.items', paging: { kind: 'cursor' } });
  const { ranges } = await planOf(source);
  expect(ranges).toEqual([{ range: { start: 0, end: null }, totalRecords: null }]);
  const { pages, records } = await readRange(source, ranges[0]!);
  expect(pages.map(({ cursor }) => cursor)).toEqual(['30', '60', '90', null]);
  expect(new Set(records.map(({ externalId }) => externalId)).size).toBe(100);
});

test.each([
  ['null', { next: null }],
  ['an empty text', { next: '' }],
  ['nothing', {}],
])('by cursor: %s where the next one would be is the end', async (_, last) => {
  const url = await serve((query) =>
    query.get('cursor') === 'b' ? { items: [{ id: 2 }], ...last } : { items: [{ id: 1 }], next: 'b' },
  );
  const source = open('http-json', { url, paging: { kind: 'cursor' } });
  expect(await readIds(source)).toEqual(['1', '2']);
});

test('maps a record by its fields', async () => {
  const source = open('http-json', { url: sandbox.feedUrl('map', 'items', { size: 1 }), ...BY_OFFSET });
  const { records } = await readRange(source, (await planOf(source)).ranges[0]!);
  expect(source.mapRecord(JSON.parse(records[0]!.json))).toMatchObject({
    unitAmount: 15_000,
    currency: 'USD',
  });
});

test('nothing there is nothing planned', async () => {
  const source = open('http-json', { url: await serve(() => ({ items: [] })) });
  expect((await planOf(source)).ranges).toEqual([]);
});

test.each([
  ['no list', { items: 'x' }, 'transient', 'no list at items'],
  ['more than asked for', { items: Array(31).fill({ id: 1 }) }, 'permanent', '31 records for 30'],
  ['no answer of its own', null, 'transient', 'no list at items'],
])('%s is a failure', async (_, answer, kind, message) => {
  const source = open('http-json', { url: await serve(() => answer) });
  const page = await source.fetchPage(
    { range: { start: 0, end: null }, offset: 0, cursor: null, limit: 30, since: null },
    never,
  );
  expect(page).toMatchObject({ kind, message: expect.stringContaining(message) });
});

test('a cursor that leads to itself would be read for ever', async () => {
  const url = await serve(() => ({ items: [{ id: 'a' }], next: 'same' }));
  const source = open('http-json', { url, paging: { kind: 'cursor' } });
  const [range] = (await planOf(source)).ranges;
  await expect(readRange(source, range!)).rejects.toThrow('the cursor same twice');
});

test('a range of another kind of source is refused', async () => {
  const source = open('http-json', { url: 'https://example.com/' });
  const page = await source.fetchPage(
    { range: { minPrice: 0, maxPrice: null }, offset: 0, cursor: null, limit: 30, since: null },
    never,
  );
  expect(page).toMatchObject({ kind: 'permanent', message: expect.stringContaining('kind was changed') });
});
