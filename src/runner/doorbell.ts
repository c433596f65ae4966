// How resting loops are woken. One ring wakes one loop; a loop that then finds work rings for the next, so
// that a single piece of news does not send every loop to the database. A ring that nobody waits for is
// kept, so none is lost between a look and the rest after it.

export class Doorbell {
  readonly #waiting = new Set<() => void>();
  #rung = false;

  ring(): void {
    const [first] = this.#waiting;
    if (first) first();
    else this.#rung = true;
  }

  /** Resolves when it rings, when `ms` are over, or when `signal` aborts. */
  wait(ms: number, signal: AbortSignal): Promise<void> {
    if (this.#rung || signal.aborted) {
      this.#rung = false;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', end);
        this.#waiting.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      signal.addEventListener('abort', end, { once: true });
      this.#waiting.add(end);
    });
  }
}
