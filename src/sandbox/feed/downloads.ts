// The same stock in plainer forms: pages of JSON by offset or cursor, and whole files of CSV or NDJSON, which
// are made as they are sent and can be resumed by a byte range.

import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { FeedRequest } from './feed.js';
import type { StockQuery } from './stock.js';

const MAX_PAGE = 1_000;
const CHUNK = 500;
const CSV_COLUMNS = ['id', 'title', 'price', 'currency', 'shape', 'carats', 'updated_at'] as const;

type Row = Readonly<Record<(typeof CSV_COLUMNS)[number], string | number>>;

/** `offset` and `limit`, or `cursor` (of the answer before) and `limit`; `updated_since` narrows either. */
export async function sendJsonPage(
  feed: FeedRequest,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { offset, cursor, limit, updated_since } = request.query as Record<string, string | undefined>;
  const query = allSince(updated_since);
  const start = Number(cursor ?? offset ?? 0);
  const size = Math.min(MAX_PAGE, Number(limit ?? 100));
  const items = rows(feed, query, start, size);
  const total = feed.stock.count(query);
  const next = start + items.length < total ? String(start + items.length) : null;
  return reply.send({ data: { items, total }, next });
}

export function sendNdjson(
  feed: FeedRequest,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const lines = (items: readonly Row[]): string => items.map((row) => `${JSON.stringify(row)}\n`).join('');
  return sendFile(feed, request, reply.type('application/x-ndjson'), '', lines);
}

export function sendCsv(
  feed: FeedRequest,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const lines = (items: readonly Row[]): string =>
    items.map((row) => `${CSV_COLUMNS.map((name) => quote(row[name])).join(',')}\r\n`).join('');
  return sendFile(feed, request, reply.type('text/csv'), `${CSV_COLUMNS.join(',')}\r\n`, lines);
}

async function sendFile(
  feed: FeedRequest,
  request: FastifyRequest,
  reply: FastifyReply,
  head: string,
  lines: (items: readonly Row[]) => string,
): Promise<FastifyReply> {
  const query = allSince(undefined);
  const total = feed.stock.count(query);
  void reply.header('accept-ranges', 'bytes').header('etag', `"${feed.name}-${total}"`);
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
  if (start > 0) void reply.code(206);
  return reply.send(Readable.from(skipBytes(start, chunks(feed, query, total, head, lines))));
}

function* chunks(
  feed: FeedRequest,
  query: StockQuery,
  total: number,
  head: string,
  lines: (items: readonly Row[]) => string,
): Generator<Buffer> {
  yield Buffer.from(head);
  for (let offset = 0; offset < total; offset += CHUNK) {
    yield Buffer.from(lines(rows(feed, query, offset, CHUNK)));
  }
}

function* skipBytes(count: number, parts: Iterable<Buffer>): Generator<Buffer> {
  let left = count;
  for (const part of parts) {
    if (left < part.length) yield part.subarray(left);
    left = Math.max(0, left - part.length);
  }
}

function rows({ stock }: FeedRequest, query: StockQuery, offset: number, limit: number): Row[] {
  return stock.select(query, offset, limit).map((index) => {
    const { price, currency, updated_at, diamond } = stock.item(index);
    const { shape = '', carats = 0, color = '' } = diamond.certificate;
    return {
      id: diamond.id,
      title: `${carats} ct ${shape}, "${color}"`,
      price: (price / 100).toFixed(2),
      currency,
      shape,
      carats,
      updated_at,
    };
  });
}

function quote(value: string | number): string {
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function allSince(time: string | undefined): StockQuery {
  return {
    minPrice: 0,
    maxPrice: Number.MAX_SAFE_INTEGER,
    sinceMs: time === undefined ? null : Date.parse(time),
  };
}
