// The sandbox: a local server, on the loopback address only, with stand-ins for the outside systems. Owns
// the listener and its end; each stand-in lives in a folder of its own and registers its routes here.
// Started by the app in its demo and by tests.

import type { AddressInfo } from 'node:net';
import Fastify, { type FastifyInstance } from 'fastify';
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
  /** How many calls the shop leaves unanswered right now. */
  held(): number;
  /** Ends at once, whoever is still connected. */
  stop(): Promise<void>;
}

export async function startSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const accessToken = options.accessToken ?? DEFAULT_ACCESS_TOKEN;
  const shop = new Shop({
    state: options.state ?? new MemorySandboxState(),
    restorePerSecond: options.restorePerSecond ?? DEFAULT_RESTORE_PER_SECOND,
    now: options.now ?? (() => performance.now()),
    accessToken,
  });
  // Sockets are cut on close, because a held call would keep the server from ever ending.
  const server = Fastify({ forceCloseConnections: true });
  shop.register(server);
  await server.listen({ host: HOST, port: options.port ?? 0 });
  return new RunningSandbox(server, shop, accessToken);
}

class RunningSandbox implements Sandbox {
  readonly url: string;
  readonly adminUrl: string;
  readonly accessToken: string;
  readonly #server: FastifyInstance;
  readonly #shop: Shop;

  constructor(server: FastifyInstance, shop: Shop, accessToken: string) {
    this.#server = server;
    this.#shop = shop;
    this.accessToken = accessToken;
    this.url = `http://${HOST}:${(server.server.address() as AddressInfo).port}`;
    this.adminUrl = `${this.url}/admin/api/${SHOP_API_VERSION}/graphql.json`;
  }

  writes(externalId: string): number {
    return this.#shop.writesOf(externalId);
  }

  held(): number {
    return this.#shop.held;
  }

  async stop(): Promise<void> {
    await this.#server.close();
  }
}
