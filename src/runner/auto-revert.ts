// A sale that ends by itself: runs whose autoRevertAt has come are set back.

import type { Database } from '../store/db.js';
import { revertDueRuns } from '../store/roll-back.js';
import type { MaintenanceJob } from './maintenance.js';

export function autoRevertJob(db: Database): MaintenanceJob {
  return {
    name: 'auto_revert',
    everyMs: 1_000,
    run: () => revertDueRuns(db),
  };
}
