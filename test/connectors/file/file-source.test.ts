// CSV and NDJSON, from disk and downloaded from the sandbox, streamed and resumed.
import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../../src/sandbox/server.js';
import type { Page, Source } from '../../../src/connectors/source.js';
import { never, open, planOf, readIds, readRange } from '../source-support.js';

let sandbox: Sandbox;
let directory: string;

beforeAll(async () => {
  sandbox = await startSandbox();
  directory = await mkdtemp(join(tmpdir(), 'runledger-files-'));
});
afterAll(async () => {
  await sandbox.stop();
  await rm(directory, { recursive: true });
});

async function openFile(
  kind: 'csv' | 'ndjson',
  name: string,
  text: string,
  config: object = {},
): Promise<Source> {
  await writeFile(join(directory, name), text);
  return open(kind, { path: name, ...config }, { filesDir: directory });
}

const CSV_HEAD = 'id,title,price,currency\r\n';

function ndjsonOf(count: number): string {
  return Array.from(
    { length: count },
    (_, i) => `${JSON.stringify({ id: `r${i}`, title: 'é', price: i, currency: 'EUR' })}\n`,
  ).join('');
}

test('a file on disk is cut into ranges that begin with a record', async () => {
  const source = await openFile('ndjson', 'big.ndjson', ndjsonOf(1_000));
  const { ranges } = await planOf(source);
  expect(ranges).toHaveLength(17);
  expect(ranges.map(({ totalRecords }) => totalRecords).reduce((a, b) => a! + b!)).toBe(1_000);
  expect(await readIds(source)).toEqual(Array.from({ length: 1_000 }, (_, i) => `r${i}`));
});

test('a page is found again by its cursor alone, as after a restart', async () => {
  const source = await openFile('ndjson', 'resume.ndjson', ndjsonOf(50));
  const [range] = (await planOf(source)).ranges;
  const { pages } = await readRange(source, range!, { limit: 20 });
  const again = open('ndjson', { path: 'resume.ndjson' }, { filesDir: directory });
  const second = await again.fetchPage(
    { range: range!.range, offset: 20, cursor: pages[0]!.cursor, limit: 20, since: null },
    never,
  );
  expect(second).toEqual(pages[1]);
  again.close();
});

test('CSV: quotes, line breaks in cells, empty lines, a byte order mark and a last line without an end', async () => {
  const text = `\ufeff${CSV_HEAD}a,"Ring, ""gold""\r\nlarge",19.99,EUR\r\n\r\nb,Plain,5,EUR`;
  const source = await openFile('csv', 'quotes.csv', text);
  const { records } = await readRange(source, (await planOf(source)).ranges[0]!);
  expect(records.map(({ json }) => JSON.parse(json))).toEqual([
    { id: 'a', title: 'Ring, "gold"\r\nlarge', price: '19.99', currency: 'EUR' },
    { id: 'b', title: 'Plain', price: '5', currency: 'EUR' },
  ]);
  expect(source.mapRecord(JSON.parse(records[0]!.json))).toMatchObject({ unitAmount: 1999 });
});

test('CSV: a delimiter of its own', async () => {
  const source = await openFile('csv', 'semicolon.csv', 'id;title\na;"x;y"\n', { delimiter: ';' });
  const { records } = await readRange(source, (await planOf(source)).ranges[0]!);
  expect(JSON.parse(records[0]!.json)).toEqual({ id: 'a', title: 'x;y' });
});

test('bad lines are set aside one by one', async () => {
  const csv = await openFile('csv', 'bad.csv', `${CSV_HEAD}a,x,1\r\nb,"x"y,1,EUR\r\nc,x,1,EUR\r\n`);
  const lines = await readRange(csv, (await planOf(csv)).ranges[0]!);
  expect(lines.records).toMatchObject([
    { externalId: null, reason: 'the line has 3 cells, the header 4' },
    { externalId: null, reason: 'a quote stands where none may' },
    { externalId: 'c' },
  ]);
  const ndjson = await openFile('ndjson', 'bad.ndjson', '{"id":"a"}\nnonsense\n[1]\n{"id":"b"}\n');
  const records = await readRange(ndjson, (await planOf(ndjson)).ranges[0]!);
  expect(records.records).toMatchObject([
    { externalId: 'a' },
    { reason: 'the line is no JSON' },
    { reason: 'the line is no JSON object' },
    { externalId: 'b' },
  ]);
});

test('CSV: a quote opens a cell at its start only; within one it is a character like any other', async () => {
  const text = `\ufeff"id",title,price,currency\r\na,5" ring,1,EUR\r\nb,5"" or "6,1,EUR\r\nc,"6"" ring",1,EUR\r\nd,7",1,EUR\r\n`;
  const source = await openFile('csv', 'inches.csv', text);
  const { records } = await readRange(source, (await planOf(source)).ranges[0]!);
  expect(records.map(({ json }) => JSON.parse(json))).toMatchObject([
    { id: 'a', title: '5" ring' },
    { id: 'b', title: '5"" or "6' },
    { id: 'c', title: '6" ring' },
    { id: 'd', title: '7"' },
  ]);
});

test('a quote that nobody closes ends the partition, not the process', async () => {
  const source = await openFile('csv', 'open.csv', `${CSV_HEAD}a,"${'x'.repeat(1_200_000)}`);
  expect(await source.plan(null, never)).toMatchObject({
    kind: 'permanent',
    message: expect.stringContaining('byte 25'),
  });
});

test('an empty file, or one with a header only, has nothing', async () => {
  expect((await planOf(await openFile('ndjson', 'empty.ndjson', ''))).ranges).toEqual([]);
  expect((await planOf(await openFile('csv', 'empty.csv', CSV_HEAD))).ranges).toEqual([]);
});

test('a file that changed since it was planned is not read on', async () => {
  const source = await openFile('ndjson', 'changed.ndjson', ndjsonOf(50));
  const [range] = (await planOf(source)).ranges;
  await utimes(join(directory, 'changed.ndjson'), new Date(), new Date(1_000));
  await expect(readRange(source, range!)).rejects.toThrow('has changed since the run was planned');
});

describe('a file that changes while it is read', () => {
  const request = { cursor: null, limit: 20, since: null };

  test('on disk is not read on, though it is open', async () => {
    const source = await openFile('ndjson', 'open.ndjson', ndjsonOf(50));
    const [range] = (await planOf(source)).ranges;
    const first = await source.fetchPage({ range: range!.range, offset: 0, ...request }, never);
    await writeFile(join(directory, 'open.ndjson'), ndjsonOf(49));
    const { cursor } = first as Page;
    const second = await source.fetchPage({ range: range!.range, offset: 20, ...request, cursor }, never);
    expect(second).toMatchObject({ kind: 'permanent', message: expect.stringContaining('has changed') });
    source.close();
  });

  test('is not read from where another run has it open', async () => {
    const url = sandbox.feedUrl('two-runs', 'items.ndjson', { size: 100 });
    const source = open('ndjson', { url });
    const [before] = (await planOf(source)).ranges;
    const { cursor } = (await source.fetchPage(
      { range: before!.range, offset: 0, ...request },
      never,
    )) as Page;
    sandbox.feedChanges('two-runs').remove(99, Date.now());
    const [after] = (await planOf(source)).ranges;
    const page = await source.fetchPage({ range: after!.range, offset: 20, ...request, cursor }, never);
    expect(page).toMatchObject({ kind: 'page', passed: 20 });
    const late = await source.fetchPage({ range: before!.range, offset: 20, ...request, cursor }, never);
    expect(late).toMatchObject({ kind: 'permanent', message: expect.stringContaining('has changed') });
    source.close();
  });

  test('that has become shorter than where the next page begins has not come to its end', async () => {
    let text = ndjsonOf(50);
    const server = createServer((message, response) => {
      const start = Number(/^bytes=(\d+)-$/.exec(message.headers.range ?? '')?.[1] ?? 0);
      if (start >= text.length) return void response.writeHead(416).end();
      response.writeHead(start > 0 ? 206 : 200).end(Buffer.from(text, 'latin1').subarray(start));
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const range = { from: 0, to: null, version: null, columns: '[]' };
    const resume = (cursor: number) =>
      open('ndjson', { url }).fetchPage({ range, offset: 20, ...request, cursor: String(cursor) }, never);
    expect(await resume(text.length)).toMatchObject({ kind: 'page', passed: 0, isLast: true });
    const end = text.length;
    text = text.slice(0, 100);
    expect(await resume(end)).toMatchObject({
      kind: 'permanent',
      message: expect.stringContaining('changed'),
    });
    server.close();
  });
});

describe('only what changed', () => {
  const AT = { fields: { updatedAt: 'at' } };
  const CHANGED = Date.parse('2026-06-01T02:30:00Z');
  const EXPORTED = Date.parse('2026-06-01T02:00:00Z');

  function linesOf(...stamps: string[]): string {
    return stamps.map((at, index) => `${JSON.stringify({ id: `r${index}`, at })}\n`).join('');
  }

  /** A server whose file was written at `modifiedMs`, if it says so. */
  async function serve(text: string, modifiedMs: number | null): Promise<{ url: string; stop(): void }> {
    const server = createServer((_, response) => {
      if (modifiedMs !== null) response.setHeader('last-modified', new Date(modifiedMs).toUTCString());
      response.end(text);
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    return { url, stop: () => server.close() };
  }

  test('by its own time', async () => {
    const text = linesOf('2026-01-01T00:00:00Z', '2026-06-01T00:00:00Z');
    const source = await openFile('ndjson', 'since.ndjson', text, AT);
    expect(await readIds(source, new Date('2026-05-01'))).toEqual(['r1']);
  });

  test('after a file on disk was written, not after it was read, is the next one’s', async () => {
    const source = await openFile('ndjson', 'export.ndjson', linesOf('2026-01-01T00:00:00Z'), AT);
    await utimes(join(directory, 'export.ndjson'), new Date(), new Date(EXPORTED));
    const { beganAt } = await planOf(source);
    expect(beganAt).toEqual(new Date(EXPORTED));
    await writeFile(join(directory, 'export.ndjson'), linesOf(new Date(CHANGED).toISOString()));
    expect(await readIds(source, beganAt)).toEqual(['r0']);
  });

  test('after a download was written, likewise', async () => {
    const { url, stop } = await serve(linesOf('2026-01-01T00:00:00Z'), EXPORTED);
    const source = open('ndjson', { url, ...AT });
    expect((await planOf(source)).beganAt).toEqual(new Date(EXPORTED));
    expect(await readIds(source, new Date(CHANGED))).toEqual([]);
    stop();
  });

  test('is everything in a download that nobody dates', async () => {
    const { url, stop } = await serve(linesOf('2026-01-01T00:00:00Z'), null);
    expect(await readIds(open('ndjson', { url, ...AT }), new Date(CHANGED))).toEqual(['r0']);
    stop();
  });

  test('a file from the future is of now', async () => {
    const source = await openFile('ndjson', 'future.ndjson', linesOf('2026-01-01T00:00:00Z'), AT);
    await utimes(join(directory, 'future.ndjson'), new Date(), new Date(Date.now() + 3_600_000));
    expect((await planOf(source)).beganAt.getTime()).toBeLessThanOrEqual(Date.now());
  });
});

test.each(['../secret.csv', '/etc/passwd', '.'])('%s lies outside of the directory', (path) => {
  expect(() => open('csv', { path }, { filesDir: directory })).toThrow('must lie in RUNLEDGER_FILES_DIR');
});

test('without a directory no file is read', () => {
  expect(() => open('csv', { path: 'a.csv' })).toThrow('RUNLEDGER_FILES_DIR, which is not set');
});

test('a file that is not there is told', async () => {
  const source = open('csv', { path: 'none.csv' }, { filesDir: directory });
  expect(await source.plan(null, never)).toEqual({
    kind: 'permanent',
    message: 'the file cannot be read: ENOENT',
  });
});

describe.each(['csv', 'ndjson'] as const)('%s downloaded', (kind) => {
  test('is read in one stream', async () => {
    const name = `stream-${kind}`;
    const source = open(kind, { url: sandbox.feedUrl(name, `items.${kind}`, { size: 700 }) });
    const ids = await readIds(source);
    expect(ids).toHaveLength(700);
    expect(new Set(ids).size).toBe(700);
    // One for the plan, one for all pages.
    expect(sandbox.feedRequests(name)).toBe(2);
  });

  test('is resumed at the byte where the last page ended', async () => {
    const url = sandbox.feedUrl(`resume-${kind}`, `items.${kind}`, { size: 100 });
    const source = open(kind, { url });
    const [range] = (await planOf(source)).ranges;
    const { pages } = await readRange(source, range!);
    const other = open(kind, { url });
    const third = await other.fetchPage(
      { range: range!.range, offset: 60, cursor: pages[1]!.cursor, limit: 30, since: null },
      never,
    );
    expect(third).toEqual(pages[2]);
    other.close();
  });

  test('that changed is not read on', async () => {
    const name = `changed-${kind}`;
    const source = open(kind, { url: sandbox.feedUrl(name, `items.${kind}`, { size: 100 }) });
    const [range] = (await planOf(source)).ranges;
    sandbox.feedChanges(name).remove(5, Date.now());
    await expect(readRange(source, range!)).rejects.toThrow('has changed since the run was planned');
  });
});

test('a download from a server that compresses, and calls the tag of a whole file weak, is read to its end', async () => {
  const lines = Array.from({ length: 100 }, (_, index) => `r${index},x,1,EUR\r\n`);
  const text = Buffer.from(`${CSV_HEAD}${lines.join('')}`);
  const server = createServer(({ headers }, response) => {
    const start = Number(/^bytes=(\d+)-$/.exec(headers.range ?? '')?.[1] ?? 0);
    const isCompressed = start === 0 && /gzip/.test(headers['accept-encoding'] ?? '');
    response.setHeader('etag', start > 0 ? '"v1"' : 'W/"v1"');
    if (start > 0) response.writeHead(206).end(text.subarray(start));
    else if (isCompressed) response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(text));
    else response.end(text);
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const source = open('csv', { url, headers: { 'Accept-Encoding': 'gzip' } });
  expect(await readIds(source)).toHaveLength(100);
  source.close();
  server.close();
});

test('the end of a download is an empty page when it falls on a page break', async () => {
  const source = open('ndjson', { url: sandbox.feedUrl('break', 'items.ndjson', { size: 60 }) });
  const { pages } = await readRange(source, (await planOf(source)).ranges[0]!);
  expect(pages.map(({ passed }) => passed)).toEqual([30, 30, 0]);
});
