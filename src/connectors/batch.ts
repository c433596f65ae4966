// What every connector does with a batch: tell items apart, cut it, name a call, and halve what was refused
// as a whole until the culprit stands alone. Pure.

import { createHash } from 'node:crypto';
import { isCurrency, isUnitAmount } from '../domain/money.js';
import type { CallStep, PooledCall } from './call-pool.js';
import type { Failure, ItemOutcome, Outcome, PriceChange } from './channel.js';
import { isRefusal } from './failures.js';

export function isMoney({ unitAmount, currency }: PriceChange): boolean {
  return isUnitAmount(unitAmount) && isCurrency(currency);
}

export function outcomes(items: readonly PriceChange[], outcome: Outcome): ItemOutcome[] {
  return items.map(({ externalId }) => ({ externalId, outcome }));
}

export function chunks<T>(items: readonly T[], size: number): T[][] {
  const count = Math.ceil(items.length / size);
  return Array.from({ length: count }, (_, i) => items.slice(i * size, (i + 1) * size));
}

/** The same for the same items in any order, so that a repeated call can be recognised. */
export function callKey(items: readonly PriceChange[]): string {
  const keys = items.map((item) => item.idempotencyKey).sort();
  if (keys.length === 1) return keys[0]!;
  return createHash('sha256').update(keys.join('\n')).digest('hex');
}

/** A call that failed as a whole: two calls of half its items where that may help, else their results. */
export function failOrHalve<Item, Result>(
  items: readonly Item[],
  failure: Failure,
  fail: (items: readonly Item[], failure: Failure) => readonly Result[],
  again: (half: readonly Item[]) => PooledCall<Result>,
): CallStep<Result> {
  if (items.length <= 1 || !isRefusal(failure)) return { results: fail(items, failure), next: [] };
  const middle = Math.ceil(items.length / 2);
  return { results: [], next: [again(items.slice(0, middle)), again(items.slice(middle))] };
}
