// What the sandbox remembers, as a port, so that a restarted server can go on where it stopped. Owns the
// in-memory form too. Only the sandbox calls it; prices are decimal strings exactly as they were written.

export interface SandboxState {
  /** An id that was never written is missing. */
  readPrices(externalIds: readonly string[]): Promise<ReadonlyMap<string, string>>;
  writePrices(prices: ReadonlyMap<string, string>): Promise<void>;
  /** Adds one to the key's count and answers the new count. */
  countFault(key: string): Promise<number>;
}

export class MemorySandboxState implements SandboxState {
  readonly #prices = new Map<string, string>();
  readonly #faults = new Map<string, number>();

  async readPrices(externalIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const found = new Map<string, string>();
    for (const id of externalIds) {
      const price = this.#prices.get(id);
      if (price !== undefined) found.set(id, price);
    }
    return found;
  }

  async writePrices(prices: ReadonlyMap<string, string>): Promise<void> {
    for (const [id, price] of prices) this.#prices.set(id, price);
  }

  async countFault(key: string): Promise<number> {
    const count = (this.#faults.get(key) ?? 0) + 1;
    this.#faults.set(key, count);
    return count;
  }
}
