// Reconciliation: a run's applied prices, held against what its channel shows. Pure. Owns the comparison and
// the schedule: a minute after the run has ended, an hour after, then daily for thirty days.

import type { RuleRunStatus } from './rule-run.js';
import { storableText } from './text.js';

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

/** A price that the channel did not give, however often it was asked. */
export interface Unread {
  readonly targetId: string;
  readonly externalId: string;
  readonly code: string;
  readonly message: string;
}

/** A report lists no more than this; its counts are of all of them. */
export const MAX_FINDINGS_LISTED = 10_000;

/** Reading prices again and again without any progress ends here, whatever the channel's policy. */
export const MAX_IDLE_CLAIMS = 20;

/** Of each item that could not be read: thousands of them may have the same to say. */
const MAX_REASON = 200;

interface ReadFailure {
  readonly kind: 'retryable' | 'permanent';
  readonly code: string;
  readonly message: string;
}

/** What the channel has said of a page of prices; an item that it does not know is in neither map. */
export interface ReadPrices<Failure extends ReadFailure> {
  readonly prices: ReadonlyMap<string, number>;
  readonly failures: ReadonlyMap<string, Failure>;
}

export interface Comparison {
  readonly checked: number;
  readonly mismatches: readonly Mismatch[];
  /** Asking again would not help, or has not helped. */
  readonly unread: readonly Unread[];
  /** Targets that may be read another time. */
  readonly again: readonly string[];
}

/** What fails in passing is to be read once more; the second time it is unread. */
export function comparePrices(
  applied: readonly AppliedPrice[],
  { prices, failures }: ReadPrices<ReadFailure>,
  isSecondTime: boolean,
): Comparison {
  const failed = applied.filter(({ externalId }) => failures.has(externalId));
  const isPassing = ({ externalId }: AppliedPrice) =>
    !isSecondTime && failures.get(externalId)!.kind === 'retryable';
  return {
    checked: applied.length - failed.length,
    mismatches: findMismatches(
      applied.filter(({ externalId }) => !failures.has(externalId)),
      prices,
    ),
    unread: failed
      .filter((price) => !isPassing(price))
      .map((price) => toUnread(price, failures.get(price.externalId)!)),
    again: failed.filter(isPassing).map(({ targetId }) => targetId),
  };
}

/** The failure of a page of which nothing could be read: the channel's, not that of its items. */
export function findWholeFailure<Failure extends ReadFailure>(
  applied: readonly AppliedPrice[],
  { failures }: ReadPrices<Failure>,
): Failure | null {
  if (failures.size < applied.length) return null;
  const all = [...failures.values()];
  return all.find(({ kind }) => kind === 'retryable') ?? all[0] ?? null;
}

const OF_THE_CHANNEL: readonly string[] = ['AUTH', 'RATE_LIMITED'];

/** Whether a failure that nobody escaped may still be that of the items, since `isFew` of them were asked for. */
export function mayBeOfItems({ code }: ReadFailure, { isFew }: { readonly isFew: boolean }): boolean {
  return isFew && !OF_THE_CHANNEL.includes(code);
}

function toUnread({ targetId, externalId }: AppliedPrice, { code, message }: ReadFailure): Unread {
  return { targetId, externalId, code, message: reasonOf(message) };
}

export function reasonOf(message: string): string {
  return storableText(message, MAX_REASON);
}

function findMismatches(applied: readonly AppliedPrice[], prices: ReadonlyMap<string, number>): Mismatch[] {
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

/**
 * How long a comparison that the schedule asked for may go on asking a channel that does not answer; somebody
 * waits for one by hand. The first is asked for a minute after the run has ended, and is due within five.
 */
const WINDOW_MS: Readonly<Record<ReconciliationTrigger, number>> = {
  manual: 0,
  immediate: 4 * MINUTE,
  delayed: HOUR,
  periodic: HOUR,
};

/**
 * The least time until a comparison is tried again whose channel's attempts are used up; null when its window
 * has passed. As many claims as there may be fill the window.
 */
export function windowPauseMs(trigger: ReconciliationTrigger, ageMs: number): number | null {
  const windowMs = WINDOW_MS[trigger];
  return ageMs < windowMs ? windowMs / MAX_IDLE_CLAIMS : null;
}

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
