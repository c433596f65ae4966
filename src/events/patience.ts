// How long feeds wait. A database that is away is waited for: it is no reason to end a subscription. Called by the
// feeds.

import { AppError } from '../errors.js';

/** Between looks for what bells may have been lost of. */
export const DEFAULT_BACKSTOP_MS = 15_000;
const FIRST_DELAY_MS = 100;
const LONGEST_DELAY_MS = 5_000;

/** Does the work, again and again while the database is away and the result is still wanted. */
export async function whenAvailable<T>(work: () => Promise<T>, isWanted: () => boolean): Promise<T> {
  for (let delay = FIRST_DELAY_MS; ; delay = Math.min(delay * 2, LONGEST_DELAY_MS)) {
    try {
      return await work();
    } catch (error) {
      const isAway = error instanceof AppError && error.code === 'UNAVAILABLE';
      if (!isAway || !isWanted()) throw error;
      await new Promise((resolve) => setTimeout(resolve, delay).unref());
    }
  }
}
