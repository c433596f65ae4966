// Reading prices, whatever the technology: calls side by side, and what each of them says of its items. One item
// that cannot be read takes none of the others with it.

import { AppError } from '../errors.js';
import { failOrHalve } from './batch.js';
import { CallPool, type CallStep, type PooledCall } from './call-pool.js';
import type { Failure, Readings } from './channel.js';

/** A price in minor units, or why there is none. */
export type Reading = readonly [externalId: string, read: number | Failure];

/** Rejects only when the signal aborts. */
export async function collectReadings(
  externalIds: readonly string[],
  calls: readonly PooledCall<Reading>[],
  limit: number,
  signal: AbortSignal,
): Promise<Readings> {
  const asked = new Set(externalIds);
  const prices = new Map<string, number>();
  const failures = new Map<string, Failure>();
  for await (const readings of new CallPool<Reading>(limit, signal).run(calls)) {
    for (const [id, read] of readings) {
      if (!asked.has(id)) continue;
      if (typeof read === 'number') prices.set(id, read);
      else failures.set(id, read);
    }
  }
  if (signal.aborted) throw new AppError('UNAVAILABLE', 'The reading of prices was cut short');
  return { prices, failures };
}

/** A read that failed as a whole. */
export function failOrHalveRead(
  ids: readonly string[],
  failure: Failure,
  again: (half: readonly string[]) => PooledCall<Reading>,
): CallStep<Reading> {
  return failOrHalve(ids, failure, unread, again);
}

function unread(ids: readonly string[], failure: Failure): Reading[] {
  const told = { ...failure, message: `The price could not be read: ${failure.message}` };
  return ids.map((id) => [id, told]);
}
