// What the Shopify connector's tests share: a channel to a shop, and a shop that speaks the Admin API's shape
// and whose every answer the test writes itself, for what the sandbox never says.

import type { IncomingMessage, ServerResponse } from 'node:http';
import { parseSettings } from '../../../src/connectors/settings.js';
import { SHOPIFY_SETTINGS } from '../../../src/connectors/shopify/config.js';
import { SYSTEM_CLOCK, type Clock } from '../../../src/connectors/shopify/cost-budget.js';
import { ShopifyChannel } from '../../../src/connectors/shopify/shopify-channel.js';
import { ScriptedServer, type Call, type ScriptedReply } from '../support.js';

export { applyAll, change, changes, NEVER } from '../support.js';
export type ShopReply = ScriptedReply;

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

type Script = (call: ShopCall, reply: ServerResponse) => ShopReply | Promise<ShopReply>;

/** Answers each call as the test's script says. */
export class ScriptedShop {
  readonly calls: ShopCall[] = [];
  readonly accessToken = 'token';
  readonly #server: ScriptedServer;

  constructor(script: Script) {
    this.#server = new ScriptedServer((request, reply) => {
      const call = toShopCall(request);
      this.calls.push(call);
      return script(call, reply);
    });
  }

  static async start(script: Script): Promise<ScriptedShop> {
    const shop = new ScriptedShop(script);
    await shop.#server.listen();
    return shop;
  }

  get adminUrl(): string {
    return `${this.#server.origin}/admin/api/2026-10/graphql.json`;
  }

  get writes(): ShopCall[] {
    return this.calls.filter((call) => call.isWrite);
  }

  stop(): Promise<void> {
    return this.#server.stop();
  }
}

function toShopCall({ body, headers }: Call): ShopCall {
  const { query, variables } = JSON.parse(body) as {
    query: string;
    variables: { ids?: string[]; variants?: { id: string }[] };
  };
  const gids = variables.ids ?? variables.variants?.map(({ id }) => id) ?? [];
  const ids = gids.map((gid) => gid.replace('gid://shopify/ProductVariant/', ''));
  return { isWrite: variables.variants !== undefined, ids, query, headers };
}

/** A look-up answered as if all variants belonged to one product. */
export function oneProduct({ ids }: ShopCall): ShopReply {
  return { body: { data: { nodes: ids.map(() => ({ product: { id: 'gid://shopify/Product/1' } })) } } };
}

export function updated(...userErrors: { field: string[] | null; message: string }[]): ShopReply {
  return { body: { data: { productVariantsBulkUpdate: { userErrors } } } };
}
