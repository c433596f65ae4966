// What a person asks of a rule run once it is made: stop, wait, go on, try again. Each verb takes the run's
// lock first, so it is effective for the very next claim; what is in flight settles with its true result.

import { AppError } from '../errors.js';
import { allowedEvents } from '../domain/machine.js';
import { isUnderWay, ruleRunMachine, type RuleRunEvent } from '../domain/rule-run.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { appendRunLines } from './ledger.js';
import {
  actOnRuleRun,
  refuseAfterRevert,
  type LockedRuleRun,
  type RuleRunRow,
  type RunRequest,
} from './rule-run-row.js';
import { requireTargetsIn } from './target-choice.js';
import { fireEvent, requireNext } from './transition.js';

export function cancelRuleRun(db: Database, viewer: Viewer, request: RunRequest): Promise<RuleRunRow> {
  return actOnRuleRun(db, viewer, 'cancelRuleRun', request, cancelLockedRun);
}

/** Targets that nobody has claimed follow the run; those in flight settle first. */
export async function cancelLockedRun(connection: Connection, run: LockedRuleRun): Promise<void> {
  await fire(connection, run, 'cancel');
  await connection.query(
    `UPDATE rule_target SET status = 'CANCELLED' WHERE run_id = $1 AND status IN ('PREVIEW', 'QUEUED')`,
    [run.id],
  );
}

export function pauseRuleRun(db: Database, viewer: Viewer, request: RunRequest): Promise<RuleRunRow> {
  return actOnRuleRun(db, viewer, 'pauseRuleRun', request, (connection, run) =>
    setPaused(connection, run, true),
  );
}

export function resumeRuleRun(db: Database, viewer: Viewer, request: RunRequest): Promise<RuleRunRow> {
  return actOnRuleRun(db, viewer, 'resumeRuleRun', request, (connection, run) =>
    setPaused(connection, run, false),
  );
}

async function setPaused(connection: Connection, run: LockedRuleRun, paused: boolean): Promise<void> {
  const event = paused ? 'pause' : 'resume';
  if (!isUnderWay(run)) {
    throw new AppError(
      'ILLEGAL_TRANSITION',
      `Rule run: cannot ${event} while ${run.status}: nothing is under way`,
      {
        field: ['input', 'runId'],
        details: {
          machine: ruleRunMachine.name,
          event,
          from: run.status,
          allowed: allowedEvents(ruleRunMachine, run.status),
        },
      },
    );
  }
  if (run.paused === paused) return;
  await connection.query('UPDATE rule_run SET paused = $2 WHERE id = $1', [run.id, paused]);
  const message = paused ? 'paused: nothing is claimed until it is resumed' : 'resumed';
  await appendRunLines(connection, 'RULE', run.id, [
    { type: `rule_run.${event}`, level: 'INFO', message, payload: {} },
  ]);
}

/** Some failed targets, or all of them when none is named. */
export function retryFailedTargets(
  db: Database,
  viewer: Viewer,
  request: RunRequest & { readonly targetIds: readonly string[] | null },
): Promise<RuleRunRow> {
  return actOnRuleRun(db, viewer, 'retryFailedTargets', request, (connection, run) =>
    requeue(connection, run, 'retry_failed', request.targetIds),
  );
}

export function retryRuleRun(db: Database, viewer: Viewer, request: RunRequest): Promise<RuleRunRow> {
  return actOnRuleRun(db, viewer, 'retryRuleRun', request, (connection, run) =>
    requeue(connection, run, 'retry_all', null),
  );
}

async function requeue(
  connection: Connection,
  run: LockedRuleRun,
  event: 'retry_failed' | 'retry_all',
  targetIds: readonly string[] | null,
): Promise<void> {
  requireNext(ruleRunMachine, run.status, event, { field: ['input', 'runId'] });
  if (run.rollingBack) {
    throw new AppError('CONFLICT', 'The run is being rolled back: wait until that has ended.', {
      field: ['input', 'runId'],
    });
  }
  await fire(connection, run, event);
  refuseAfterRevert(run);
  if (targetIds) await requireTargetsIn(connection, run.id, targetIds, 'requeue');
  // A person's retry starts the count anew: the attempts before it are in the ledger.
  await connection.query(
    `UPDATE rule_target
     SET status = 'QUEUED', attempts = 0, lost_leases = 0, error_code = NULL, error_message = NULL
     WHERE run_id = $1 AND status = 'FAILED' AND ($2::bigint[] IS NULL OR id = ANY($2))`,
    [run.id, targetIds],
  );
}

async function fire(connection: Connection, run: LockedRuleRun, event: RuleRunEvent): Promise<void> {
  await fireEvent(connection, { machine: ruleRunMachine, tenantId: run.tenantId, id: run.id, event });
}
