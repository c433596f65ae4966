// What a subscriber holds: it asks for the next thing, and is woken when there may be one. There is no queue
// between feed and subscriber; each kind of feed keeps what a slow one has not taken yet in its own bounded
// way. Invariant: `return()` settles a pending `next()`, so a client that leaves is let go at once.

export abstract class FeedIterator<T> implements AsyncIterableIterator<T> {
  private pending: (() => void)[] = [];
  private ended = false;
  private fault: Error | null = null;

  /** What can be handed out now, or null; whatever makes it more must call `wake`. */
  protected abstract take(): T | null;

  /** Nobody will ask any more. Called once. */
  protected abstract leave(): void;

  async next(): Promise<IteratorResult<T, undefined>> {
    for (;;) {
      if (this.ended) return this.finish();
      const value = this.take();
      if (value !== null) return { done: false, value };
      await new Promise<void>((resolve) => this.pending.push(resolve));
    }
  }

  return(): Promise<IteratorResult<T, undefined>> {
    this.end();
    return Promise.resolve({ done: true, value: undefined });
  }

  throw(error: unknown): Promise<IteratorResult<T, undefined>> {
    this.end();
    return Promise.reject(error);
  }

  /** Ends it from our side: whoever asks next is told why. */
  fail(error: Error): void {
    if (!this.ended) this.fault = error;
    this.end();
  }

  wake(): void {
    const { pending } = this;
    this.pending = [];
    for (const resolve of pending) resolve();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  private end(): void {
    if (this.ended) return;
    this.ended = true;
    this.leave();
    this.wake();
  }

  private finish(): IteratorResult<T, undefined> {
    const { fault } = this;
    this.fault = null;
    if (fault !== null) throw fault;
    return { done: true, value: undefined };
  }
}
