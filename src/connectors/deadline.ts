// One call's end, whichever comes first: its time is up or the caller gave up. Owns a timer and a
// listener on the caller's signal; `clear` must be called, or both outlive the call.

export class Deadline {
  readonly #controller = new AbortController();
  readonly #parent: AbortSignal;
  readonly #timer: NodeJS.Timeout;
  readonly #cut = (): void => this.#controller.abort();
  #expired = false;

  constructor(ms: number, parent: AbortSignal) {
    this.#parent = parent;
    this.#timer = setTimeout(() => this.#expire(), ms);
    if (parent.aborted) this.#cut();
    else parent.addEventListener('abort', this.#cut, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether it was the time that ended the call. */
  get expired(): boolean {
    return this.#expired;
  }

  clear(): void {
    clearTimeout(this.#timer);
    this.#parent.removeEventListener('abort', this.#cut);
  }

  #expire(): void {
    this.#expired = true;
    this.#controller.abort();
  }
}
