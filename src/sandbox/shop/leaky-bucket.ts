// Shopify's leaky bucket: a budget of points that calls spend and time restores. Owns the level; reads
// time only from the clock it is given, so tests need not wait. Used by the shop alone.

/** Shopify's plans hold twenty seconds' worth of points: 1,000 at 50 a second. */
const SECONDS_HELD = 20;

export interface ThrottleStatus {
  readonly maximumAvailable: number;
  readonly currentlyAvailable: number;
  readonly restoreRate: number;
}

export class LeakyBucket {
  readonly #restorePerSecond: number;
  readonly #maximum: number;
  readonly #now: () => number;
  #level: number;
  #at: number;

  constructor(restorePerSecond: number, now: () => number) {
    this.#restorePerSecond = restorePerSecond;
    this.#maximum = restorePerSecond * SECONDS_HELD;
    this.#now = now;
    this.#level = this.#maximum;
    this.#at = now();
  }

  /** The most that one call is charged: a full bucket serves any call, else a small one never would. */
  charge(cost: number): number {
    return Math.min(cost, this.#maximum);
  }

  /** Spends the points if they are there. */
  spend(points: number): boolean {
    this.#restore();
    if (points > this.#level) return false;
    this.#level -= points;
    return true;
  }

  status(): ThrottleStatus {
    this.#restore();
    return {
      maximumAvailable: this.#maximum,
      currentlyAvailable: Math.floor(this.#level),
      restoreRate: this.#restorePerSecond,
    };
  }

  #restore(): void {
    const now = this.#now();
    const restored = (Math.max(0, now - this.#at) / 1000) * this.#restorePerSecond;
    this.#level = Math.min(this.#maximum, this.#level + restored);
    this.#at = now;
  }
}
