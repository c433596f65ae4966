// What the connector's tests share: price changes, the outcomes of a whole iteration, and a shop over real
// HTTP whose every answer the test writes itself, for what the sandbox never says.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Channel, Outcome, PriceChange } from '../../../src/connectors/channel.js';
import { parseSettings } from '../../../src/connectors/settings.js';
import { SHOPIFY_SETTINGS } from '../../../src/connectors/shopify/config.js';
import { SYSTEM_CLOCK, type Clock } from '../../../src/connectors/shopify/cost-budget.js';
import { ShopifyChannel } from '../../../src/connectors/shopify/shopify-channel.js';

export const NEVER = new AbortController().signal;

export function change(externalId: string, unitAmount = 1999, currency = 'EUR'): PriceChange {
  return { idempotencyKey: `key:${externalId}`, externalId, unitAmount, currency };
}

export function changes(count: number, prefix = 'SKU'): PriceChange[] {
  return Array.from({ length: count }, (_, i) => change(`${prefix}-${i}`, 100 + i));
}

/** Every outcome by external id; throws when an item gets a second one. */
export async function applyAll(
  channel: Channel,
  batch: readonly PriceChange[],
  signal: AbortSignal = NEVER,
): Promise<Map<string, Outcome>> {
  const seen = new Map<string, Outcome>();
  for await (const outcomes of channel.applyPrices(batch, signal)) {
    for (const { externalId, outcome } of outcomes) {
      if (seen.has(externalId)) throw new Error(`second outcome for ${externalId}`);
      seen.set(externalId, outcome);
    }
  }
  return seen;
}

export function connectTo(
  shop: { readonly adminUrl: string; readonly accessToken: string },
  callTimeoutMs = 15_000,
  clock: Clock = SYSTEM_CLOCK,
): ShopifyChannel {
  const { adminUrl: endpoint, accessToken } = shop;
  return new ShopifyChannel(
    parseSettings('Shopify channel', SHOPIFY_SETTINGS, { endpoint, accessToken, callTimeoutMs }),
    clock,
  );
}

export interface ShopCall {
  readonly isWrite: boolean;
  /** External ids of the variants that the call names. */
  readonly ids: readonly string[];
  readonly query: string;
  readonly headers: IncomingMessage['headers'];
}

export interface ShopReply {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON, or as it is when it is a string. */
  readonly body?: unknown;
}

type Script = (call: ShopCall, reply: ServerResponse) => ShopReply | Promise<ShopReply>;

/** Answers each call as the test's script says. */
export class ScriptedShop {
  readonly calls: ShopCall[] = [];
  readonly accessToken = 'token';
  readonly #server: Server;
  readonly #script: Script;

  constructor(script: Script) {
    this.#script = script;
    this.#server = createServer((request, reply) => void this.#answer(request, reply));
  }

  static async start(script: Script): Promise<ScriptedShop> {
    const shop = new ScriptedShop(script);
    await new Promise<void>((resolve) => shop.#server.listen(0, '127.0.0.1', resolve));
    return shop;
  }

  get adminUrl(): string {
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}/admin/api/2026-10/graphql.json`;
  }

  get writes(): ShopCall[] {
    return this.calls.filter((call) => call.isWrite);
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    const { query, variables } = JSON.parse(await text(request)) as {
      query: string;
      variables: { ids?: string[]; variants?: { id: string }[] };
    };
    const gids = variables.ids ?? variables.variants?.map(({ id }) => id) ?? [];
    const call: ShopCall = {
      isWrite: variables.variants !== undefined,
      ids: gids.map((gid) => gid.replace('gid://shopify/ProductVariant/', '')),
      query,
      headers: request.headers,
    };
    this.calls.push(call);
    const { status = 200, headers = {}, body = {} } = await this.#script(call, reply);
    reply.writeHead(status, { 'content-type': 'application/json', ...headers });
    reply.end(typeof body === 'string' ? body : JSON.stringify(body));
  }
}

/** A look-up answered as if all variants belonged to one product. */
export function oneProduct({ ids }: ShopCall): ShopReply {
  return { body: { data: { nodes: ids.map(() => ({ product: { id: 'gid://shopify/Product/1' } })) } } };
}

export function updated(...userErrors: { field: string[] | null; message: string }[]): ShopReply {
  return { body: { data: { productVariantsBulkUpdate: { userErrors } } } };
}
