// The shop's resolvers: reads and writes of variant prices on top of the sandbox's state. Owns the count
// of accepted writes by which tests prove that a price was set once. Knows nothing of HTTP or points.

import type { SandboxState } from '../state.js';
import { faultOf } from './faults.js';
import type { VariantInput } from './request-plan.js';
import {
  externalIdOf,
  isPrice,
  listPriceOf,
  productGidOf,
  readBackPriceOf,
  variantGidOf,
} from './variants.js';

const PRODUCT_PATTERN = /^gid:\/\/shopify\/Product\/.+/;

interface BulkUpdate {
  readonly productId: string;
  readonly variants: readonly VariantInput[];
  readonly allowPartialUpdates: boolean | null;
}

interface UserError {
  readonly field: readonly string[];
  readonly message: string;
  readonly code: string;
}

interface Write {
  readonly externalId: string;
  readonly price: string;
}

/** The root value of the schema: its method names are the schema's fields. */
export class ShopCatalog {
  readonly #state: SandboxState;
  readonly #writes = new Map<string, number>();

  constructor(state: SandboxState) {
    this.#state = state;
  }

  /** How many writes of this id were accepted since the sandbox started. */
  writesOf(externalId: string): number {
    return this.#writes.get(externalId) ?? 0;
  }

  shop() {
    return { name: 'Runledger sandbox', currencyCode: 'EUR' };
  }

  async nodes({ ids }: { readonly ids: readonly string[] }) {
    const externalIds = ids.map(externalIdOf);
    const written = await this.#state.readPrices(externalIds.filter((id) => id !== null));
    return ids.map((gid, index) => {
      const externalId = externalIds[index];
      if (externalId) return variantNode(externalId, priceToRead(externalId, written.get(externalId)));
      return PRODUCT_PATTERN.test(gid) ? { __typename: 'Product', id: gid } : null;
    });
  }

  async productVariantsBulkUpdate({ productId, variants, allowPartialUpdates }: BulkUpdate) {
    const checked = variants.map((variant, index) => checkVariant(productId, variant, index));
    const userErrors = checked.filter((result) => 'message' in result);
    const accepted = checked.filter((result) => 'price' in result);
    const writes = userErrors.length > 0 && !allowPartialUpdates ? [] : accepted;
    await this.#accept(writes);
    const productVariants = writes.map(({ externalId, price }) => variantNode(externalId, price));
    return { productVariants: productVariants.length > 0 ? productVariants : null, userErrors };
  }

  async #accept(writes: readonly Write[]): Promise<void> {
    if (writes.length === 0) return;
    await this.#state.writePrices(new Map(writes.map(({ externalId, price }) => [externalId, price])));
    for (const { externalId } of writes) this.#writes.set(externalId, this.writesOf(externalId) + 1);
  }
}

function variantNode(externalId: string, price: string) {
  const id = variantGidOf(externalId);
  return { __typename: 'ProductVariant', id, price, product: { id: productGidOf(externalId) } };
}

function priceToRead(externalId: string, written: string | undefined): string {
  return written === undefined ? listPriceOf(externalId) : readBackPriceOf(externalId, written);
}

function checkVariant(productId: string, { id, price }: VariantInput, index: number): Write | UserError {
  const refuse = (field: string, message: string, code: string): UserError => ({
    field: ['variants', String(index), field],
    message,
    code,
  });
  if (id === undefined || id === null) {
    return refuse('id', 'Product variant is missing its id', 'PRODUCT_VARIANT_ID_MISSING');
  }
  const externalId = externalIdOf(id);
  if (externalId === null || productGidOf(externalId) !== productId) {
    return refuse('id', 'Product variant does not exist', 'PRODUCT_VARIANT_DOES_NOT_EXIST');
  }
  if (typeof price !== 'string' || !isPrice(price)) {
    return refuse('price', 'Price is not a decimal amount', 'INVALID_INPUT');
  }
  if (faultOf(externalId)?.kind === 'refuse') {
    return refuse('price', `Price of ${externalId} cannot be changed`, 'INVALID_INPUT');
  }
  return { externalId, price };
}
