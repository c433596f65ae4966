// Work on a feed, told to the observers: each call to its source, and each settlement of what came of it.

import type { FeedCall, RunnerObserver } from './observer.js';
import type { RunOfWork } from './work.js';

type FeedFacts = Omit<FeedCall, 'outcome' | 'ms'>;

/** A call to a source; what it was cut from is told by nobody. */
export async function observeFeedCall<Answer extends { readonly kind: string }>(
  facts: FeedFacts,
  observer: RunnerObserver | undefined,
  call: () => Promise<Answer>,
): Promise<Answer> {
  const from = performance.now();
  const answer = await call();
  observer?.onFeedCall?.({ ...facts, outcome: answer.kind, ms: performance.now() - from });
  return answer;
}

/** A settlement; `eventsOf` says how many items it settled by which event, or null when there was nothing to. */
export async function observeSettle<Result>(
  kind: string,
  { runId, correlationId }: RunOfWork,
  observer: RunnerObserver | undefined,
  settle: () => Promise<Result>,
  eventsOf: (result: Result) => Readonly<Record<string, number>> | null,
): Promise<Result> {
  const from = performance.now();
  const result = await settle();
  const ms = performance.now() - from;
  const events = eventsOf(result);
  if (events) observer?.onSettle?.({ kind, runId, correlationId, ms, events, runMs: null });
  return result;
}
