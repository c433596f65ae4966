// What the people on call need, put together: the jobs that some replica does by the clock.

import { openAlertSink } from '../connectors/alert-sink/registry.js';
import { AlertDelivery, AlertEvaluation } from '../runner/alert-jobs.js';
import { clockWatchJob } from '../runner/clock-watch.js';
import type { Log } from '../runner/log.js';
import type { MaintenanceJob } from '../runner/maintenance.js';
import { Retention } from '../runner/retention.js';
import { Schedules } from '../runner/schedules.js';
import { webhookBackstopJob, webhookSweepJob } from '../runner/webhook-jobs.js';
import type { Database } from '../store/db.js';
import type { SecretBox } from '../store/secret-box.js';

export function operationsJobs(db: Database, secrets: SecretBox, log: Log): MaintenanceJob[] {
  return [
    clockWatchJob(db, log),
    new AlertEvaluation({ db, log }),
    new Schedules(db, log),
    new AlertDelivery({ db, secrets, openSink: openAlertSink, log }),
    webhookBackstopJob(db),
    webhookSweepJob(db),
    new Retention({ db, log }),
  ];
}
