// A partition of a pipeline run: one range of the feed, read page by page. Owns its machine.

import { defineMachine, type EventOf, type StateOf } from './machine.js';
import { isExhausted, nextDelayMs, type RetryPolicy } from './retry-policy.js';

export const partitionMachine = defineMachine({
  name: 'partition',
  title: 'Partition',
  table: 'worker_runs',
  states: ['pending', 'running', 'completed', 'failed'],
  initial: 'pending',
  finalStates: ['completed'],
  events: {
    start: {
      from: ['pending'],
      to: 'running',
      actors: ['WORKER'],
      condition: 'a worker reads its first page',
    },
    complete: { from: ['running'], to: 'completed', actors: ['WORKER'], condition: 'the last page is in' },
    fail: {
      from: ['running'],
      to: 'failed',
      actors: ['WORKER', 'SYSTEM'],
      condition: 'a permanent error, or the deliveries of a page are used up',
    },
    retry: { from: ['failed'], to: 'pending', actors: ['API'], condition: 'a person asks to continue it' },
  },
});

export type PartitionStatus = StateOf<typeof partitionMachine>;
export type PartitionEvent = EventOf<typeof partitionMachine>;

/** A page is delivered this often, whatever became of it, before its partition fails. */
export const MAX_DELIVERIES = 5;

/** What is known of a partition between two of its pages. */
export interface PartitionReading {
  /** Records that its pages went past. */
  readonly offset: number;
  /** Of those, records that the run had before. */
  readonly duplicated: number;
  /** As counted by the source; null when it does not count. */
  readonly total: number | null;
  readonly limit: number;
}

const TOLERATED_PAGES = 10;

/** Why reading on would never end; null while there is no sign of it. */
export function findEndlessness({ offset, duplicated, total, limit }: PartitionReading): string | null {
  const tolerated = TOLERATED_PAGES * limit;
  if (duplicated > tolerated && duplicated > offset - duplicated) {
    return `the source repeats itself: ${duplicated} of the ${offset} records it gave had been read before`;
  }
  if (total !== null && offset > 2 * total + tolerated) {
    return `the source does not end: it counted ${total} records and has given ${offset}`;
  }
  return null;
}

/** So many records, or this share of them, may be missing at the end of a partition. */
const TOLERATED_MISSING = { records: 10, share: 0.01 };

export interface PartitionEnd {
  /** Records that the source counted and did not give. */
  readonly missing: number;
  /** Why that is too many; null when it is not. */
  readonly fault: string | null;
}

/**
 * What a partition has come to when its source says that there are no more records. A feed that changes while
 * it is read always lacks a few: a record that moves into the range shifts the others, so that one comes
 * twice and one not at all; it changed since the plan, and the next run will see it.
 */
export function judgeEnd({ offset, duplicated, total }: Omit<PartitionReading, 'limit'>): PartitionEnd {
  const distinct = offset - duplicated;
  const missing = Math.max(0, (total ?? 0) - distinct);
  const tolerated = Math.max(TOLERATED_MISSING.records, Math.floor((total ?? 0) * TOLERATED_MISSING.share));
  if (missing <= tolerated) return { missing, fault: null };
  return { missing, fault: `the source counts ${total} records and gave ${distinct} different ones` };
}

/** What a source's failure looks like from here. */
export type DeliveryFailure =
  | { readonly kind: 'permanent' }
  | { readonly kind: 'transient'; readonly throttled: boolean; readonly retryAfterMs?: number };

/** How long to wait after delivery number `attempts` failed; null when it was the last. */
export function delayOfNextDelivery(
  failure: DeliveryFailure,
  attempts: number,
  policy: RetryPolicy,
  random: () => number,
): number | null {
  if (failure.kind === 'permanent' || isExhausted(policy, attempts)) return null;
  return failure.retryAfterMs ?? nextDelayMs(policy, attempts, failure.throttled, random);
}
