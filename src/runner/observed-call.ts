// A call to a channel, told to the observers and shown in the trace when it is over: how many items it had, and
// how many of them each outcome. While nobody listens it is the bare call.

import type { ItemOutcome, Readings } from '../connectors/channel.js';
import { countFacts, inSpan, overIteration, type Facts } from '../tracing.js';
import type { ChannelCall, RunnerObserver } from './observer.js';

export type CallFacts = Omit<ChannelCall, 'outcomes' | 'ms'>;
type Outcomes = AsyncIterable<readonly ItemOutcome[]>;

export function observeCall(call: CallFacts, outcomes: Outcomes, observer: RunnerObserver): Outcomes {
  const counts: Record<string, number> = {};
  const told = observer.onCall ? tellAtEnd(call, outcomes, counts, observer) : outcomes;
  return overIteration({ name: `channel ${call.purpose}`, facts: factsOf(call) }, told, (batch, span) => {
    if (!observer.onCall) count(counts, batch);
    span.note(countFacts(counts));
  });
}

/** The same for a call that reads prices. */
export function observeRead(
  call: CallFacts,
  observer: RunnerObserver,
  read: () => Promise<Readings>,
): Promise<Readings> {
  return inSpan({ name: `channel ${call.purpose}`, facts: factsOf(call) }, async (span) => {
    const from = performance.now();
    const answer = await read();
    const outcomes = countReadings(answer, call.items);
    span.note(countFacts(outcomes));
    observer.onCall?.({ ...call, outcomes, ms: performance.now() - from });
    return answer;
  });
}

function countReadings({ failures }: Readings, items: number): Record<string, number> {
  const counts: Record<string, number> = failures.size < items ? { read: items - failures.size } : {};
  for (const { code } of failures.values()) counts[code] = (counts[code] ?? 0) + 1;
  return counts;
}

function factsOf({ runId, correlationId, channelId, items }: CallFacts): Facts {
  return {
    'runledger.run_id': runId,
    'runledger.correlation_id': correlationId,
    'runledger.channel_id': channelId,
    'runledger.items': items,
  };
}

async function* tellAtEnd(
  call: CallFacts,
  outcomes: Outcomes,
  counts: Record<string, number>,
  observer: RunnerObserver,
): AsyncGenerator<readonly ItemOutcome[], void, undefined> {
  const from = performance.now();
  try {
    for await (const batch of outcomes) {
      count(counts, batch);
      yield batch;
    }
  } finally {
    observer.onCall?.({ ...call, outcomes: counts, ms: performance.now() - from });
  }
}

/** Adds a batch: what failed is counted by its code. */
function count(counts: Record<string, number>, batch: readonly ItemOutcome[]): void {
  for (const { outcome } of batch) {
    const name = outcome.kind === 'applied' ? 'applied' : outcome.code;
    counts[name] = (counts[name] ?? 0) + 1;
  }
}
