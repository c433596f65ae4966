// The port to a sales channel. Owns the words in which the runner and any connector talk about price
// changes; knows no technology. One folder beside this file per technology implements it.

export interface PriceChange {
  /** The same for every attempt at one target, so that the channel can recognise a repeat. */
  readonly idempotencyKey: string;
  readonly externalId: string;
  /** Minor units of `currency`. */
  readonly unitAmount: number;
  readonly currency: string;
}

/** The machine-readable reason on a target: what an operator groups and filters by. */
export type FailureCode = 'RATE_LIMITED' | 'TIMEOUT' | 'AUTH' | 'INVALID' | 'CONFLICT' | 'UPSTREAM';

export type Outcome =
  | { readonly kind: 'applied' }
  | {
      readonly kind: 'retryable';
      readonly code: FailureCode;
      readonly message: string;
      /** Only when the channel named a delay itself. */
      readonly retryAfterMs?: number;
    }
  | { readonly kind: 'permanent'; readonly code: FailureCode; readonly message: string };

export type Failure = Exclude<Outcome, { kind: 'applied' }>;

export interface ItemOutcome {
  readonly externalId: string;
  /** Items that one answer of the channel has decided share one object: it counts as one answer. */
  readonly outcome: Outcome;
}

/** What a read of prices came to; an item that the channel does not know is in neither map. */
export interface Readings {
  /** By external id. */
  readonly prices: ReadonlyMap<string, number>;
  /** What one call has decided for several items is one object here too. */
  readonly failures: ReadonlyMap<string, Failure>;
}

/** A channel that charges points for its calls, and says how many are left. */
export interface Metering {
  /** As it was last reported, less what is under way; null until the first answer. */
  readonly budget: {
    readonly available: number;
    readonly capacity: number;
    readonly restorePerSecond: number;
  } | null;
  /** Points that a batch of so many items is expected to cost. */
  costOf(items: number): number;
}

export interface Channel {
  /** The most items that one `applyPrices` should be given. */
  readonly maxBatch: number;

  /** Only where calls are charged for: a batch is claimed when its points should be there. */
  readonly metering?: Metering;

  /**
   * Sets prices. Yields outcomes as the channel's answers come in, so that one slow call does not hold
   * back what is already known; every item gets exactly one outcome before the iteration ends. It never
   * throws for a failure of the channel: that is an outcome. When `enough` aborts, no further call is made:
   * those under way end and give their outcomes, and an item without one was not sent. When `signal` aborts,
   * the calls under way are cut and the iteration ends; an item without an outcome then is simply not known to
   * be applied.
   */
  applyPrices(
    batch: readonly PriceChange[],
    signal: AbortSignal,
    enough?: AbortSignal,
  ): AsyncIterable<readonly ItemOutcome[]>;

  /** Reads prices in bulk, in minor units of `currency`. It rejects only when `signal` aborts. */
  fetchPrices(externalIds: readonly string[], currency: string, signal: AbortSignal): Promise<Readings>;

  /** Makes one call that changes nothing and costs little: null when the channel answers and lets us in. */
  probe(signal: AbortSignal): Promise<Failure | null>;
}
