// The feed's GraphQL: a token for the password, and counts and pages for the token. Owns the order in which
// a request can fail: form, token, the faults that the address asks for.

import type { FastifyReply, FastifyRequest } from 'fastify';
import { execute, GraphQLError, parse, validate, type DocumentNode } from 'graphql';
import { misplace, spoil, type Fault } from './faults.js';
import type { FeedRequest } from './feed.js';
import { FEED_SCHEMA } from './schema.js';
import type { StockQuery } from './stock.js';

export const FEED_USERNAME = 'sandbox';
export const FEED_PASSWORD = 'sandbox';
const TOKEN = 'sandbox-feed-token';
const MAX_PAGE = 1_000;

interface DiamondQuery {
  readonly dollar_value?: { readonly from?: number | null; readonly to?: number | null } | null;
  readonly updated_at?: { readonly from?: string | null } | null;
}

interface PageArgs {
  readonly query: DiamondQuery;
  readonly offset: number;
  readonly limit: number;
}

type Strike = (fault: Fault, key: string, reply: FastifyReply) => Promise<boolean>;

export class FeedApi {
  readonly #strike: Strike;
  readonly #documents = new Map<string, DocumentNode>();

  constructor(strike: Strike) {
    this.#strike = strike;
  }

  async answer(feed: FeedRequest, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
    const body = request.body as { query?: unknown; variables?: Record<string, unknown> } | null;
    if (typeof body?.query !== 'string') return reply.code(400).send({ errors: 'HTTP 400' });
    let document: DocumentNode;
    try {
      document = this.#documentOf(body.query);
    } catch (error) {
      return { errors: [error] };
    }
    const page = pageAsked(body.variables);
    if (page && (await this.#strikes(feed, page, reply))) return reply;
    return execute({
      schema: FEED_SCHEMA,
      document,
      rootValue: rootOf(feed),
      variableValues: body.variables,
    });
  }

  #documentOf(text: string): DocumentNode {
    const known = this.#documents.get(text);
    if (known) return known;
    const document = parse(text);
    const [fault] = validate(FEED_SCHEMA, document);
    if (fault) throw fault;
    this.#documents.set(text, document);
    return document;
  }

  async #strikes(feed: FeedRequest, page: PageArgs, reply: FastifyReply): Promise<boolean> {
    const query = toStockQuery(page.query);
    const key = `feed ${feed.name} ${query.minPrice} ${page.offset}`;
    for (const fault of faultsAt(feed, query, page)) {
      if (await this.#strike(fault, key, reply)) return true;
    }
    return false;
  }
}

// Clients send a page's place as variables, as the connector does; a query with literals meets no call fault.
function pageAsked(variables: Record<string, unknown> | undefined): PageArgs | null {
  const { query, offset, limit } = (variables ?? {}) as Partial<PageArgs>;
  return query && typeof offset === 'number' && typeof limit === 'number' ? { query, offset, limit } : null;
}

function faultsAt(feed: FeedRequest, query: StockQuery, { offset, limit }: PageArgs): Fault[] {
  const isPlaced = feed.faults.some(({ at }) => at !== null);
  const covered = isPlaced ? new Set(feed.stock.select(query, offset, limit)) : new Set<number>();
  return feed.faults.filter(({ at }) => at === null || covered.has(at));
}

function rootOf(feed: FeedRequest) {
  let lists = 0;
  return {
    authenticate: {
      username_and_password: ({ username, password }: { username: string; password: string }) => {
        if (username === FEED_USERNAME && password === FEED_PASSWORD) return { token: TOKEN };
        throw new GraphQLError('Wrong username or password', { extensions: { code: 'UNAUTHENTICATED' } });
      },
    },
    as: ({ token }: { token: string }) => {
      if (token !== TOKEN) {
        throw new GraphQLError('The token is not valid', { extensions: { code: 'UNAUTHENTICATED' } });
      }
      return {
        diamonds_by_query_count: ({ query }: { query: DiamondQuery }) =>
          feed.stock.count(toStockQuery(query)),
        diamonds_by_query: (args: PageArgs) => ({ items: pageOf(feed, args, (lists += 1) === 1) }),
      };
    },
  };
}

// However many lists a call asks for, the feed loses one record with it, of the first.
function pageOf(feed: FeedRequest, args: PageArgs, isFirst: boolean): unknown[] {
  if (args.limit > MAX_PAGE) {
    throw new GraphQLError(`limit is at most ${MAX_PAGE}`, { extensions: { code: 'BAD_USER_INPUT' } });
  }
  const query = toStockQuery(args.query);
  const faults = faultsAt(feed, query, args);
  const { offset, limit } = args;
  const total = feed.stock.count(query);
  const start = misplace(faults, { offset, limit, total, request: feed.number });
  const indices = feed.stock.select(query, start, limit);
  if (faults.some(({ name }) => name === 'grow')) {
    while (indices.length < limit) indices.push(feed.records.size + offset + indices.length);
  }
  const items = indices.map((index) => feed.stock.item(index));
  if (isFirst && faults.some(({ name }) => name === 'shift') && indices[0] !== undefined) {
    feed.changes.remove(indices[0], Date.now());
  }
  return spoil(faults, items, offset);
}

function toStockQuery({ dollar_value, updated_at }: DiamondQuery): StockQuery {
  const since = updated_at?.from ?? null;
  return {
    minPrice: Math.round((dollar_value?.from ?? 0) * 100),
    maxPrice: Math.round((dollar_value?.to ?? Number.MAX_SAFE_INTEGER / 1000) * 100),
    sinceMs: since === null ? null : Date.parse(since),
  };
}
