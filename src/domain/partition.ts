// A partition of a pipeline run: one range of the feed, read page by page. Owns its machine.

import { defineMachine, type StateOf } from './machine.js';
import { isExhausted, nextDelayMs, type RetryPolicy } from './retry-policy.js';
import { storableText } from './text.js';

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

/** A page is delivered this often, whatever became of it, before its partition fails. */
export const MAX_DELIVERIES = 5;

/** A source that asks for more, by mistake or not, is asked again after this. */
export const MAX_RETRY_AFTER_MS = 3_600_000;

/** What is kept of the words of a failure. */
const MAX_FAILURE_LENGTH = 2_000;

/** A failure's words, whoever's they are, as they can be kept. */
export function failureText(message: string): string {
  return storableText(message, MAX_FAILURE_LENGTH);
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
  if (failure.retryAfterMs !== undefined) return Math.min(failure.retryAfterMs, MAX_RETRY_AFTER_MS);
  return nextDelayMs(policy, attempts, failure.throttled, random);
}
