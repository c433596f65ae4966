// How many items of a channel go into one batch: as many as it gets done in half a second, so that a loop is
// soon free for another run however slow the channel is. Starts with the most that the channel takes.

const TARGET_MS = 500;

export class BatchSize {
  readonly #most: number;
  #size: number;

  constructor(most: number) {
    this.#most = most;
    this.#size = most;
  }

  get items(): number {
    return this.#size;
  }

  /** Learns from a batch of `items` that took so long. It shrinks as far as it must, and doubles at most. */
  learn(items: number, ms: number): void {
    // A batch that was small for other reasons tells nothing about larger ones, unless it was slow.
    if (items < this.#size && ms < TARGET_MS) return;
    const fitting = Math.floor((items * TARGET_MS) / Math.max(ms, 1));
    this.#size = Math.max(1, Math.min(this.#most, fitting, this.#size * 2));
  }
}
