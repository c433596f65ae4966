// The bells of the last while, so that a look at what may have been missed tells only what was. Called by feed.

import type { RunHead } from '../store/run.js';

interface Heard {
  readonly seq: number;
  readonly at: number;
}

export class HeardBells {
  private readonly heard = new Map<string, Heard>();
  private last = performance.now();

  /** All bells that were rung up to then have been heard, or made up for. */
  get caughtUpAt(): number {
    return this.last;
  }

  note({ id, seq }: RunHead, at = performance.now()): void {
    this.last = Math.max(this.last, at);
    // Set anew, so that the oldest stay first.
    this.heard.delete(id);
    this.heard.set(id, { seq, at });
  }

  isNews({ id, seq }: RunHead): boolean {
    return seq > (this.heard.get(id)?.seq ?? 0);
  }

  /** What had been rung by `at` is known now; bells older than `before` need not be remembered. */
  catchUp(at: number, before: number): void {
    this.last = Math.max(this.last, at);
    for (const [id, heard] of this.heard) {
      if (heard.at >= before) return;
      this.heard.delete(id);
    }
  }
}
