// What the runner tells those who count, measure and log it; the metrics fit. Told after the fact, and never
// waited for.

import type { RunOfWork, WorkResult } from './work.js';

export interface SettledBatch {
  readonly kind: string;
  readonly runId: string;
  readonly correlationId: string;
  readonly ms: number;
  /** How many items were settled by each event of their machine. */
  readonly events: Readonly<Record<string, number>>;
  /** How long the run took, when this batch brought it to its end. */
  readonly runMs: number | null;
}

/** What came of a run whose leases were taken back from workers that are gone. */
export interface RecoveredRun {
  readonly kind: string;
  readonly runId: string;
  /** Items that were given up, since they had lost their workers too often. */
  readonly givenUp: number;
  /** How long the run took, when this brought it to its end. */
  readonly runMs: number | null;
}

/** One batch on its way through a channel, once all its outcomes are known. */
export interface ChannelCall {
  readonly runId: string;
  readonly correlationId: string;
  readonly channelId: string;
  readonly purpose: string;
  readonly items: number;
  /** How many items had each kind of outcome; failures by their code. */
  readonly outcomes: Readonly<Record<string, number>>;
  readonly ms: number;
}

/** One call to a source: its plan, or a page. */
export interface FeedCall {
  readonly runId: string;
  readonly correlationId: string;
  readonly sourceId: string;
  readonly purpose: 'plan' | 'page';
  readonly partitionId?: string;
  readonly offset?: number;
  /** The kind of its answer: what was asked for, or how it failed. */
  readonly outcome: string;
  readonly ms: number;
}

export interface RunnerObserver {
  /** A unit of work was claimed, in so many milliseconds. */
  onClaim?(kind: string, ms: number, run?: RunOfWork, items?: number): void;
  /** A unit of work was done, so many milliseconds after it was claimed. */
  onWork?(kind: string, result: WorkResult, ms: number, run?: RunOfWork): void;
  onSettle?(batch: SettledBatch): void;
  onRecover?(run: RecoveredRun): void;
  onCall?(call: ChannelCall): void;
  onFeedCall?(call: FeedCall): void;
  /** A channel asked to slow down, by so many answers. */
  onThrottle?(answers: number): void;
  /** A webhook was sent, and taken or not. */
  onWebhook?(result: 'taken' | 'refused', ms: number): void;
}

/** One observer that tells two. */
export function tellBoth(one: RunnerObserver, other: RunnerObserver): RunnerObserver {
  return {
    onClaim(...told) {
      one.onClaim?.(...told);
      other.onClaim?.(...told);
    },
    onWork(...told) {
      one.onWork?.(...told);
      other.onWork?.(...told);
    },
    onSettle(batch) {
      one.onSettle?.(batch);
      other.onSettle?.(batch);
    },
    onRecover(run) {
      one.onRecover?.(run);
      other.onRecover?.(run);
    },
    onCall(call) {
      one.onCall?.(call);
      other.onCall?.(call);
    },
    onFeedCall(call) {
      one.onFeedCall?.(call);
      other.onFeedCall?.(call);
    },
    onThrottle(answers) {
      one.onThrottle?.(answers);
      other.onThrottle?.(answers);
    },
    onWebhook(...told) {
      one.onWebhook?.(...told);
      other.onWebhook?.(...told);
    },
  };
}
