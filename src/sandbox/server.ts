// The sandbox: a local server, on the loopback address only, with stand-ins for the outside systems. Owns
// the listener and its end; each stand-in lives in a folder of its own and registers its routes here.
// Started by the app in its demo and by tests.

import type { AddressInfo } from 'node:net';
import Fastify, { type FastifyInstance } from 'fastify';
import { FEED_PASSWORD, FEED_USERNAME } from './feed/api.js';
import { Feed, type FeedOptions } from './feed/feed.js';
import type { StockChanges } from './feed/stock.js';
import { Shop } from './shop/shop.js';
import { MemorySandboxState, type SandboxState } from './state.js';

const HOST = '127.0.0.1';
const SHOP_API_VERSION = '2026-10';

/** Shopify's largest plan; a demo of 1,000 targets never meets the throttle. */
const DEFAULT_RESTORE_PER_SECOND = 2000;

const DEFAULT_ACCESS_TOKEN = 'sandbox';

export interface SandboxOptions {
  /** 0 or none: any free port. */
  readonly port?: number;
  /** Forgotten with the process unless one is given. */
  readonly state?: SandboxState;
  /** Points that the shop's bucket regains in a second; it holds twenty times as many. */
  readonly restorePerSecond?: number;
  /** Milliseconds; only the bucket reads it. */
  readonly now?: () => number;
  readonly accessToken?: string;
}

export interface Sandbox {
  readonly url: string;
  /** The shop's Admin GraphQL endpoint. */
  readonly adminUrl: string;
  /** What the shop wants in `X-Shopify-Access-Token`. */
  readonly accessToken: string;
  /** How many price writes of this external id were accepted since the start. */
  writes(externalId: string): number;
  /** How many calls the shop and the feeds leave unanswered right now. */
  held(): number;
  /** What a `nivoda` source needs to be told to read the feed of this name. */
  feedConfig(name: string, options?: FeedOptions): FeedConfig;
  /** The address of a feed's other forms: `items`, `items.ndjson`, `items.csv`. */
  feedUrl(name: string, form: string, options?: FeedOptions): string;
  /** Changes the stock of a feed by hand. */
  feedChanges(name: string): StockChanges;
  /** How many requests this feed has answered. */
  feedRequests(name: string): number;
  /** Ends at once, whoever is still connected. */
  stop(): Promise<void>;
}

export interface FeedConfig {
  readonly endpoint: string;
  readonly username: string;
  readonly password: string;
}

export async function startSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const accessToken = options.accessToken ?? DEFAULT_ACCESS_TOKEN;
  const state = options.state ?? new MemorySandboxState();
  const shop = new Shop({
    state,
    restorePerSecond: options.restorePerSecond ?? DEFAULT_RESTORE_PER_SECOND,
    now: options.now ?? (() => performance.now()),
    accessToken,
  });
  // Sockets are cut on close, because a held call would keep the server from ever ending.
  const server = Fastify({ forceCloseConnections: true });
  const feed = new Feed(state);
  shop.register(server);
  feed.register(server);
  await server.listen({ host: HOST, port: options.port ?? 0 });
  return new RunningSandbox(server, shop, feed, accessToken);
}

class RunningSandbox implements Sandbox {
  readonly url: string;
  readonly adminUrl: string;
  readonly accessToken: string;
  readonly #server: FastifyInstance;
  readonly #shop: Shop;
  readonly #feed: Feed;

  constructor(server: FastifyInstance, shop: Shop, feed: Feed, accessToken: string) {
    this.#server = server;
    this.#shop = shop;
    this.#feed = feed;
    this.accessToken = accessToken;
    this.url = `http://${HOST}:${(server.server.address() as AddressInfo).port}`;
    this.adminUrl = `${this.url}/admin/api/${SHOP_API_VERSION}/graphql.json`;
  }

  writes(externalId: string): number {
    return this.#shop.writesOf(externalId);
  }

  held(): number {
    return this.#shop.held + this.#feed.held;
  }

  feedConfig(name: string, options: FeedOptions = {}): FeedConfig {
    return {
      endpoint: this.feedUrl(name, 'graphql', options),
      username: FEED_USERNAME,
      password: FEED_PASSWORD,
    };
  }

  feedUrl(name: string, form: string, options: FeedOptions = {}): string {
    const url = new URL(`${this.url}/feed/${encodeURIComponent(name)}/${form}`);
    for (const [key, value] of Object.entries(options)) url.searchParams.set(key, String(value));
    return url.href;
  }

  feedChanges(name: string): StockChanges {
    return this.#feed.changesOf(name);
  }

  feedRequests(name: string): number {
    return this.#feed.requestsOf(name);
  }

  async stop(): Promise<void> {
    await this.#server.close();
  }
}
