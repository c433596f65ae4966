// How a claimed batch becomes calls to its channel: prices are set, or set back. To set one back, the price
// that stands now is read first: one that is no longer ours is a conflict. Either way every target gets one
// outcome, as the answers come in.

import type { Channel, ItemOutcome, Outcome, PriceChange } from '../connectors/channel.js';
import { judgeRollBack } from '../domain/rule-target.js';
import { AppError } from '../errors.js';
import type { Claim, ClaimedTarget } from '../store/claim.js';

export function callChannel(
  channel: Channel,
  claim: Claim,
  signal: AbortSignal,
): AsyncIterable<readonly ItemOutcome[]> {
  if (claim.purpose === 'roll_back') return setBack(channel, claim, signal);
  return channel.applyPrices(
    claim.targets.map((target) => toChange(claim, target, target.afterAmount)),
    signal,
  );
}

async function* setBack(
  channel: Channel,
  claim: Claim,
  signal: AbortSignal,
): AsyncGenerator<readonly ItemOutcome[], void, undefined> {
  const { targets, onConflict } = claim;
  const read = await readPrices(channel, targets, signal);
  if ('failure' in read) {
    yield targets.map(({ externalId }) => ({ externalId, outcome: read.failure }));
    return;
  }
  const known: ItemOutcome[] = [];
  const changes: PriceChange[] = [];
  for (const target of targets) {
    const outcome = judgeRollBack(target, read.prices.get(target.externalId), onConflict) as Outcome | null;
    if (outcome) known.push({ externalId: target.externalId, outcome });
    else changes.push(toChange(claim, target, target.beforeAmount));
  }
  if (known.length > 0) yield known;
  if (changes.length > 0) yield* channel.applyPrices(changes, signal);
}

type Read = { readonly prices: ReadonlyMap<string, number> } | { readonly failure: Outcome };

async function readPrices(
  channel: Channel,
  targets: readonly ClaimedTarget[],
  signal: AbortSignal,
): Promise<Read> {
  const ids = targets.map(({ externalId }) => externalId);
  try {
    return { prices: await channel.fetchPrices(ids, targets[0]!.currency, signal) };
  } catch (error) {
    if (!(error instanceof AppError) || signal.aborted) throw error;
    // The details are those of the call that failed: what it was, and a delay if the channel named one.
    const unknown = { kind: 'retryable', code: 'UPSTREAM' } as const;
    return { failure: { ...unknown, ...error.details, message: error.message } as Outcome };
  }
}

/** The key is the same for every attempt, so that the channel can recognise a repeat. */
function toChange({ runId, purpose }: Claim, target: ClaimedTarget, unitAmount: number): PriceChange {
  const { id, externalId, currency } = target;
  return { idempotencyKey: `${runId}:${id}:${purpose}`, externalId, unitAmount, currency };
}
