// Reconciliation by the clock: runs whose time has come are handed to the workers.

import type { Database } from '../store/db.js';
import { scheduleReconciliations } from '../store/reconciliation-schedule.js';
import type { MaintenanceJob } from './maintenance.js';

const EVERY_MS = 5_000;

export function reconciliationScheduleJob(db: Database): MaintenanceJob {
  return {
    name: 'reconciliation_schedule',
    everyMs: EVERY_MS,
    run: async (signal) => {
      while (!signal.aborted && (await scheduleReconciliations(db)) > 0);
    },
  };
}
