// The maintenance job that ends ops runs whose worker fell silent. Looks every minute, or as often as its
// patience is long where that is shorter.

import type { Database } from '../store/db.js';
import { endStaleOpsRuns, type Patience } from '../store/stale-ops-run.js';
import type { Log } from './log.js';
import type { MaintenanceJob } from './maintenance.js';

const EVERY_MS = 60_000;

export function staleOpsRunJob(db: Database, patience: Patience, log: Log): MaintenanceJob {
  let toldOf = 0;
  return {
    name: 'end-stale-ops-runs',
    everyMs: Math.min(EVERY_MS, patience.claimMs, patience.silenceMs),
    run: async () => {
      const { heldUntil, ...outcome } = await endStaleOpsRuns(db, patience);
      if (outcome.cancelled + outcome.requeued > 0) log.warn({ ...outcome }, 'ended stale ops runs');
      if (heldUntil === undefined || heldUntil.getTime() === toldOf) return;
      toldOf = heldUntil.getTime();
      log.info({ heldUntil }, 'the clock has leapt, or nobody was there: no worker is taken for silent yet');
    },
  };
}
