// Stands in for a channel whose configuration cannot be used: every item is refused for good, with the
// reason, so that the run ends and its dead letters say what to mend.

import type { Channel, Failure, ItemOutcome, PriceChange, Readings } from '../connectors/channel.js';

export class UnusableChannel implements Channel {
  readonly maxBatch = 1_000;
  readonly #reason: string;

  constructor(reason: string) {
    this.#reason = reason;
  }

  async *applyPrices(batch: readonly PriceChange[]): AsyncGenerator<readonly ItemOutcome[]> {
    const outcome = this.#refusal();
    yield batch.map(({ externalId }) => ({ externalId, outcome }));
  }

  async fetchPrices(externalIds: readonly string[]): Promise<Readings> {
    const failure = this.#refusal();
    return { prices: new Map(), failures: new Map(externalIds.map((id) => [id, failure])) };
  }

  async probe(): Promise<Failure> {
    return this.#refusal();
  }

  #refusal(): Failure {
    return { kind: 'permanent', code: 'INVALID', message: this.#reason };
  }
}
