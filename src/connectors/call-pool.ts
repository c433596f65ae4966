// Runs calls side by side, a few at a time, and hands on their results as they come in. A call may name
// further calls. Owns when a call starts; when the iteration ends, for whatever reason, none is under way. When it
// was enough, none starts any more, and those under way still give their results.

export interface PooledCall<T> {
  /** How many items wait for it. */
  readonly size: number;
  /**
   * Rejects only when a signal aborts or the caller's code is at fault: `signal` at any time, `enough` as long as
   * nothing has been sent.
   */
  run(signal: AbortSignal, enough: AbortSignal): Promise<CallStep<T>>;
}

export interface CallStep<T> {
  readonly results: readonly T[];
  readonly next: readonly PooledCall<T>[];
}

export class CallPool<T> {
  readonly #limit: number;
  readonly #parent: AbortSignal;
  readonly #enough: AbortSignal;
  readonly #controller = new AbortController();
  readonly #waiting: PooledCall<T>[] = [];
  #results: T[] = [];
  #running = 0;
  #fault: { readonly error: unknown } | null = null;
  #wake: () => void = () => {};

  constructor(limit: number, parent: AbortSignal, enough = parent) {
    this.#limit = limit;
    this.#parent = parent;
    this.#enough = enough;
  }

  async *run(calls: readonly PooledCall<T>[]): AsyncGenerator<readonly T[], void, undefined> {
    const cut = (): void => this.#controller.abort();
    this.#parent.addEventListener('abort', cut, { once: true });
    if (this.#parent.aborted) cut();
    try {
      this.#add(calls);
      yield* this.#drain();
    } finally {
      this.#parent.removeEventListener('abort', cut);
      cut();
      while (this.#running > 0) await this.#change();
    }
  }

  async *#drain(): AsyncGenerator<readonly T[], void, undefined> {
    for (;;) {
      if (this.#results.length > 0) {
        const results = this.#results;
        this.#results = [];
        yield results;
      } else if (this.#fault) {
        throw this.#fault.error;
      } else if (this.#running === 0) {
        return;
      } else {
        await this.#change();
      }
    }
  }

  #add(calls: readonly PooledCall<T>[]): void {
    this.#waiting.push(...calls);
    // Large calls first: what is slow or broken is mostly alone, and must not hold back the many.
    this.#waiting.sort((a, b) => b.size - a.size);
    while (this.#running < this.#limit && this.#waiting.length > 0 && !this.#isOver()) {
      void this.#start(this.#waiting.shift()!);
    }
  }

  #isOver(): boolean {
    return this.#enough.aborted || this.#controller.signal.aborted;
  }

  async #start(call: PooledCall<T>): Promise<void> {
    this.#running += 1;
    let next: readonly PooledCall<T>[] = [];
    try {
      const step = await call.run(this.#controller.signal, this.#enough);
      this.#results.push(...step.results);
      next = step.next;
    } catch (error) {
      // One that was not sent any more is no fault, and cuts none of the others.
      if (!this.#isOver()) {
        this.#fault = { error };
        this.#controller.abort();
      }
    }
    this.#running -= 1;
    this.#add(next);
    this.#wake();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => (this.#wake = resolve));
  }
}
