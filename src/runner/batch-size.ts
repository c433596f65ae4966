// How many items of a channel go into one batch: as many as it gets done in half a second, so that a loop is
// soon free for another run however slow the channel is. Where one call alone takes longer, as many as it gets done
// in hardly more than that: fewer would free the loop no sooner. Starts with few, since nothing is known of the
// channel then, and every loop may be at it.

const TARGET_MS = 500;
const FIRST_ITEMS = 16;
const MAX_GROWTH = 4;
/** Of the time until the first outcome. Less than two calls one after the other, whose times differ a little. */
const CALL_SHARE = 1.5;
/** As many as connectors have calls under way at once: with fewer, what a slow channel could do lies idle. */
const LEAST_ITEMS = 8;

/** Whether a batch has taken so long that what it has not begun is better left to the next ones. */
export function isOverdue(ms: number, firstMs: number): boolean {
  return ms > 2 * Math.max(TARGET_MS, firstMs);
}

export class BatchSize {
  readonly #most: number;
  #size: number;

  constructor(most: number) {
    this.#most = most;
    this.#size = Math.min(most, FIRST_ITEMS);
  }

  get items(): number {
    return this.#size;
  }

  /**
   * Learns from a batch of which `items` were done after `ms`, the first of them after `firstMs`. The size shrinks as
   * far as it must, and grows by degrees.
   */
  learn(items: number, ms: number, firstMs: number): void {
    const roomMs = Math.max(TARGET_MS, CALL_SHARE * firstMs);
    // A batch that was small for other reasons tells nothing about larger ones, unless it was slow.
    if (items < this.#size && ms <= roomMs) return;
    const fitting = Math.floor((items * roomMs) / Math.max(ms, 1));
    const wanted = Math.max(LEAST_ITEMS, Math.min(fitting, this.#size * MAX_GROWTH));
    this.#size = Math.min(this.#most, wanted);
  }
}
