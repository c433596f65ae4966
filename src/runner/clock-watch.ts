// Notices that the database's clock was put back, and brings with it what was set to come while it ran ahead.

import { bringTimesBack, findSetback, noteTime } from '../store/clock.js';
import type { Database } from '../store/db.js';
import type { Log } from './log.js';
import type { MaintenanceJob } from './maintenance.js';

export function clockWatchJob(db: Database, log: Log): MaintenanceJob {
  return {
    name: 'clock',
    everyMs: 10_000,
    run: async () => {
      const setbackMs = await findSetback(db);
      if (setbackMs !== null) {
        const count = await bringTimesBack(db, setbackMs);
        log.warn(
          { setbackMs, count },
          'the database’s clock was put back: what waited for a time to come was, too',
        );
      }
      await noteTime(db);
    },
  };
}
