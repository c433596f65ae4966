// The operations that the connector sends, with the shape their answers must have and the points they are
// expected to cost. Owns the global ids and the size limit of Shopify's lists.

import { z } from 'zod';
import { toDecimal } from '../../domain/money.js';
import { callKey } from '../batch.js';
import type { PriceChange } from '../channel.js';
import type { AdminCall } from './admin-client.js';

/** The most entries that Shopify takes in one list. */
export const MAX_LIST = 250;

const PRODUCTS = /* GraphQL */ `
  query VariantProducts($ids: [ID!]!) {
    nodes(ids: $ids) {
      ... on ProductVariant {
        product {
          id
        }
      }
    }
  }
`;

const PRICES = /* GraphQL */ `
  query VariantPrices($ids: [ID!]!) {
    nodes(ids: $ids) {
      ... on ProductVariant {
        price
      }
    }
  }
`;

const UPDATE = /* GraphQL */ `
  mutation SetPrices($productId: ID!, $variants: [ProductVariantsBulkInput!]!) {
    productVariantsBulkUpdate(productId: $productId, variants: $variants, allowPartialUpdates: true) {
      userErrors {
        field
        message
      }
    }
  }
`;

const USER_ERROR = z.object({ field: z.array(z.string()).nullish(), message: z.string() });
export type UserError = z.infer<typeof USER_ERROR>;

const UPDATED = z.object({
  productVariantsBulkUpdate: z.object({ userErrors: z.array(USER_ERROR) }),
});

/** A node that is no variant comes as an empty object. */
const PRODUCT_NODE = z.object({ product: z.object({ id: z.string() }).optional() }).nullable();
const PRICE_NODE = z.object({ price: z.string().optional() }).nullable();

/** Reads the product of each variant, in the order of the ids. */
export function productsCall(externalIds: readonly string[]) {
  return readCall(PRODUCTS, PRODUCT_NODE, externalIds);
}

/** Reads the price of each variant, in the order of the ids. */
export function pricesCall(externalIds: readonly string[]) {
  return readCall(PRICES, PRICE_NODE, externalIds);
}

export function updateCall(
  productId: string,
  items: readonly PriceChange[],
): AdminCall<z.infer<typeof UPDATED>> {
  const variants = items.map((item) => ({ id: variantGid(item.externalId), price: toDecimal(item) }));
  return {
    document: UPDATE,
    variables: { productId, variants },
    answer: UPDATED,
    cost: 10 + Math.ceil(items.length / 10),
    idempotencyKey: callKey(items),
  };
}

/** A look-up and a write of so many variants, as if they belonged to one product. */
export function batchCost(items: number): number {
  return items + 10 * Math.ceil(items / MAX_LIST) + Math.ceil(items / 10);
}

function readCall<Node>(document: string, node: z.ZodType<Node>, externalIds: readonly string[]) {
  const call: AdminCall<{ nodes: Node[] }> = {
    document,
    variables: { ids: externalIds.map(variantGid) },
    answer: z.object({ nodes: z.array(node).length(externalIds.length) }),
    cost: externalIds.length,
  };
  return call;
}

const VARIANT_GID = 'gid://shopify/ProductVariant/';

/** Catalogs that were made from Shopify's own data may have the whole id. */
function variantGid(externalId: string): string {
  return externalId.startsWith(VARIANT_GID) ? externalId : VARIANT_GID + externalId;
}
