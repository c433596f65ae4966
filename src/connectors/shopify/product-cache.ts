// Which product a variant belongs to, remembered so that a retry needs no second look-up. Bounded: the
// oldest entry gives way. A variant that the shop refuses is forgotten, since it may have moved.

const MAX_ENTRIES = 10_000;

export class ProductCache {
  readonly #products = new Map<string, string>();

  get(externalId: string): string | undefined {
    return this.#products.get(externalId);
  }

  set(externalId: string, productId: string): void {
    this.#products.delete(externalId);
    this.#products.set(externalId, productId);
    if (this.#products.size <= MAX_ENTRIES) return;
    for (const oldest of this.#products.keys()) {
      this.#products.delete(oldest);
      return;
    }
  }

  forget(externalId: string): void {
    this.#products.delete(externalId);
  }
}
