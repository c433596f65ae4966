// What the runner tells those who count and measure it; the metrics fit. Told after the fact, and never
// waited for.

import type { WorkResult } from './work.js';

export interface SettledBatch {
  readonly kind: string;
  readonly ms: number;
  /** How many items were settled by each event of their machine. */
  readonly events: Readonly<Record<string, number>>;
  /** How long the run took, when this batch brought it to its end. */
  readonly runMs: number | null;
}

export interface RunnerObserver {
  /** A unit of work was claimed, in so many milliseconds. */
  onClaim?(kind: string, ms: number): void;
  /** A unit of work was done, so many milliseconds after it was claimed. */
  onWork?(kind: string, result: WorkResult, ms: number): void;
  onSettle?(batch: SettledBatch): void;
  /** A channel asked to slow down. */
  onThrottle?(): void;
}
