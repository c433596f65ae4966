// The bells of the last while, so that a look at what may have been missed tells only what was. Invariant: what
// is remembered is bounded by the runs of that while, however long the bells go on. Called by feed.

import type { RunHead } from '../store/run.js';

interface Heard {
  readonly seq: number;
  readonly at: number;
}

export class HeardBells {
  private readonly heard = new Map<string, Heard>();
  private last = performance.now();

  /** `memoryMs`: how long before the last bell a line may have been written that is told as news. */
  constructor(private readonly memoryMs: number) {}

  get remembered(): number {
    return this.heard.size;
  }

  /** All bells that were rung up to then have been heard, or made up for. */
  get caughtUpAt(): number {
    return this.last;
  }

  note({ id, seq }: RunHead, at = performance.now()): void {
    this.last = Math.max(this.last, at);
    // Set anew, so that the oldest stay first.
    this.heard.delete(id);
    this.heard.set(id, { seq, at });
    this.forgetOld();
  }

  isNews({ id, seq }: RunHead): boolean {
    return seq > (this.heard.get(id)?.seq ?? 0);
  }

  /** What had been rung by `at` is known now. */
  catchUp(at: number): void {
    this.last = Math.max(this.last, at);
    this.forgetOld();
  }

  private forgetOld(): void {
    for (const [id, { at }] of this.heard) {
      if (at >= this.last - this.memoryMs) return;
      this.heard.delete(id);
    }
  }
}
