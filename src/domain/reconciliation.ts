// Reconciliation: a run's applied prices, held against what its channel shows. Pure. Owns the comparison and
// the schedule: a minute after the run has ended, an hour after, then daily for thirty days.

import type { RuleRunStatus } from './rule-run.js';

export type ReconciliationTrigger = 'manual' | 'immediate' | 'delayed' | 'periodic';

export interface AppliedPrice {
  readonly targetId: string;
  readonly externalId: string;
  /** What the run has set, in minor units. */
  readonly expected: number;
}

export interface Mismatch extends AppliedPrice {
  /** What the channel shows; null when it has no such item. */
  readonly actual: number | null;
  readonly difference: number | null;
}

/** A report lists no more than this; its count is of all of them. */
export const MAX_MISMATCHES_LISTED = 10_000;

/** Reading prices again and again without any progress ends here, whatever the channel's policy. */
export const MAX_IDLE_CLAIMS = 20;

export function findMismatches(
  applied: readonly AppliedPrice[],
  prices: ReadonlyMap<string, number>,
): Mismatch[] {
  return applied.flatMap((price) => {
    const actual = prices.get(price.externalId) ?? null;
    if (actual === price.expected) return [];
    return [{ ...price, actual, difference: actual === null ? null : actual - price.expected }];
  });
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const DAYS = 30;

interface Occasion {
  readonly trigger: Exclude<ReconciliationTrigger, 'manual'>;
  readonly afterMs: number;
}

const AT_FIRST: readonly Occasion[] = [
  { trigger: 'immediate', afterMs: MINUTE },
  { trigger: 'delayed', afterMs: HOUR },
];
const DAILY: readonly Occasion[] = Array.from({ length: DAYS }, (_, day) => ({
  trigger: 'periodic',
  afterMs: (day + 1) * DAY,
}));

export interface EndedRun {
  readonly status: RuleRunStatus;
  readonly finishedAt: Date;
}

export interface ReconciliationPlan {
  /** What is due now. Of several that were missed only the latest is. */
  readonly due: Occasion['trigger'] | null;
  /** When to look again. */
  readonly nextAt: Date | null;
}

/** What the schedule says of a run at `now`, when it was last looked at as of `lastAt`. */
export function planReconciliation(
  { status, finishedAt }: EndedRun,
  lastAt: Date,
  now: Date,
): ReconciliationPlan {
  const occasions = status === 'APPLIED' ? [...AT_FIRST, ...DAILY] : AT_FIRST;
  const end = finishedAt.getTime();
  const isPast = ({ afterMs }: Occasion): boolean => end + afterMs <= now.getTime();
  const latest = occasions.findLast(isPast);
  const next = occasions.find((occasion) => !isPast(occasion));
  return {
    due: latest && end + latest.afterMs >= lastAt.getTime() ? latest.trigger : null,
    nextAt: next ? new Date(end + next.afterMs) : null,
  };
}
