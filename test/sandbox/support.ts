// A bare HTTP client for the sandbox's shop, so that these tests see what is on the wire.

import type { Sandbox } from '../../src/sandbox/server.js';

export interface ShopAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: {
    readonly data?: Record<string, unknown> | null;
    readonly errors?: readonly {
      readonly message: string;
      readonly extensions?: { readonly code?: string };
    }[];
    readonly extensions: {
      readonly cost: {
        readonly requestedQueryCost: number;
        readonly actualQueryCost: number | null;
        readonly throttleStatus: {
          readonly maximumAvailable: number;
          readonly currentlyAvailable: number;
          readonly restoreRate: number;
        };
      };
    };
  };
}

export async function ask(
  sandbox: Sandbox,
  query: string,
  variables: Record<string, unknown> = {},
  headers: Record<string, string> = {},
): Promise<ShopAnswer> {
  const response = await fetch(sandbox.adminUrl, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'x-shopify-access-token': sandbox.accessToken,
      ...headers,
    },
    body: JSON.stringify({ query, variables }),
  });
  const body = (await response.json()) as ShopAnswer['body'];
  return { status: response.status, headers: response.headers, body };
}

export const READ = `query ($ids: [ID!]!) {
  nodes(ids: $ids) { id ... on ProductVariant { price product { id } } }
}`;

export const WRITE = `mutation ($productId: ID!, $variants: [ProductVariantsBulkInput!]!, $partial: Boolean) {
  productVariantsBulkUpdate(productId: $productId, variants: $variants, allowPartialUpdates: $partial) {
    productVariants { id price }
    userErrors { field message code }
  }
}`;

export interface VariantNode {
  readonly id: string;
  readonly price: string;
  readonly product: { readonly id: string };
}

export interface UpdatePayload {
  readonly productVariants: readonly { readonly id: string; readonly price: string }[] | null;
  readonly userErrors: readonly {
    readonly field: readonly string[];
    readonly message: string;
    readonly code: string;
  }[];
}

export function gid(externalId: string): string {
  return `gid://shopify/ProductVariant/${externalId}`;
}

export async function readVariants(sandbox: Sandbox, ids: readonly string[]): Promise<VariantNode[]> {
  const { body } = await ask(sandbox, READ, { ids: ids.map(gid) });
  return body.data?.['nodes'] as VariantNode[];
}

/** Writes one price the way a client does: look the product up, then update. */
export async function write(
  sandbox: Sandbox,
  externalId: string,
  price: unknown,
  headers: Record<string, string> = {},
): Promise<ShopAnswer> {
  const [variant] = await readVariants(sandbox, [externalId]);
  const variants = [{ id: gid(externalId), price }];
  return ask(sandbox, WRITE, { productId: variant!.product.id, variants }, headers);
}

export function payloadOf(answer: ShopAnswer): UpdatePayload {
  return answer.body.data?.['productVariantsBulkUpdate'] as UpdatePayload;
}
