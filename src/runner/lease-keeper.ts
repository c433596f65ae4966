// Keeps the lease of a unit of work while it is being done. Renewed when a third of its time is over: one
// renewal may fail. `stop` must be called, or it renews for ever.

import { tellingOf, type Log } from './log.js';
import type { RunOfWork } from './work.js';

export const RENEWALS_PER_LEASE = 3;

export class LeaseKeeper {
  readonly #timer: NodeJS.Timeout;

  constructor(leaseMs: number, renew: () => Promise<void>, log: Log, run: RunOfWork) {
    this.#timer = setInterval(() => {
      renew().catch((err: unknown) => log.warn({ err, ...tellingOf(run) }, 'a lease could not be renewed'));
    }, leaseMs / RENEWALS_PER_LEASE);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
