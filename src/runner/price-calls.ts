// How a claimed batch becomes calls to its channel: prices are set, or set back. To set one back, the price
// that stands now is read first: one that is no longer ours is a conflict. Either way every target gets one
// outcome, as the answers come in.

import type { Channel, ItemOutcome, Outcome, PriceChange } from '../connectors/channel.js';
import { judgeRollBack } from '../domain/rule-target.js';
import type { Claim, ClaimedTarget } from '../store/claim.js';
import { observeCall } from './observed-call.js';
import type { RunnerObserver } from './observer.js';

/** What ends a batch early, as the port to the channel has it. */
export interface CallSignals {
  readonly signal: AbortSignal;
  readonly enough: AbortSignal;
}

export function callChannel(
  channel: Channel,
  claim: Claim,
  signals: CallSignals,
  observer: RunnerObserver,
): AsyncIterable<readonly ItemOutcome[]> {
  const { runId, correlationId, channelId, purpose, targets } = claim;
  const call = { runId, correlationId, channelId, purpose, items: targets.length };
  const outcomes = purpose === 'apply' ? apply(channel, claim, signals) : setBack(channel, claim, signals);
  return observeCall(call, outcomes, observer);
}

function apply(
  channel: Channel,
  claim: Claim,
  { signal, enough }: CallSignals,
): AsyncIterable<readonly ItemOutcome[]> {
  const changes = claim.targets.map((target) => toChange(claim, target, target.afterAmount));
  return channel.applyPrices(changes, signal, enough);
}

async function* setBack(
  channel: Channel,
  claim: Claim,
  { signal, enough }: CallSignals,
): AsyncGenerator<readonly ItemOutcome[], void, undefined> {
  if (enough.aborted) return;
  const { targets, onConflict } = claim;
  const ids = targets.map(({ externalId }) => externalId);
  const { prices, failures } = await channel.fetchPrices(ids, targets[0]!.currency, signal);
  const known: ItemOutcome[] = [];
  const changes: PriceChange[] = [];
  for (const target of targets) {
    const { externalId } = target;
    const outcome =
      failures.get(externalId) ??
      (judgeRollBack(target, prices.get(externalId), onConflict) as Outcome | null);
    if (outcome) known.push({ externalId, outcome });
    else changes.push(toChange(claim, target, target.beforeAmount));
  }
  if (known.length > 0) yield known;
  if (changes.length > 0) yield* channel.applyPrices(changes, signal, enough);
}

/** The key is the same for every attempt, so that the channel can recognise a repeat. */
function toChange({ runId, purpose }: Claim, target: ClaimedTarget, unitAmount: number): PriceChange {
  const { id, externalId, currency } = target;
  return { idempotencyKey: `${runId}:${id}:${purpose}`, externalId, unitAmount, currency };
}
