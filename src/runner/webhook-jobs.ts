// Webhooks by the clock: one job finds what no bell has told of, the other sweeps away cursors that are done with.
// Both can be cut short and repeated at any point.

import type { Database } from '../store/db.js';
import { noticeNews } from '../store/webhook-cursor.js';
import { mendTimes, sweepCursors } from '../store/webhook-sweep.js';
import type { MaintenanceJob } from './maintenance.js';

export function webhookBackstopJob(db: Database): MaintenanceJob {
  return { name: 'webhook_backstop', everyMs: 30_000, run: () => noticeNews(db, null) };
}

/** At a time; where they end, the next begin. */
const SWEEPS = 5;

export function webhookSweepJob(db: Database): MaintenanceJob {
  let position = '0';
  return {
    name: 'webhook_sweep',
    everyMs: 60_000,
    run: async () => {
      await mendTimes(db);
      for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
        position = (await sweepCursors(db, position)).next;
        if (position === '0') return;
      }
    },
  };
}
