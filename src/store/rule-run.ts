// Rule runs: making and queueing them. Every verb takes the viewer and sees that tenant alone.

import { AppError } from '../errors.js';
import { allowedEvents } from '../domain/machine.js';
import { ruleRunMachine } from '../domain/rule-run.js';
import type { TargetInput } from '../domain/rule-target.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { requireWithinGuardrails } from './guardrail.js';
import { isUuid, newId } from './id.js';
import { reserveKey } from './idempotency.js';
import { checkLabel, isLabel, requireObject } from './input.js';
import { addTargetsByRule, requireUsableRule, type RuleSnapshot } from './rule-preview.js';
import {
  actOnRuleRun,
  lockRuleRun,
  refuseAfterRevert,
  requireRuleRun,
  type LockedRuleRun,
  type RuleRunRow,
  type RunRequest,
} from './rule-run-row.js';
import { insertTargets, requireTargets } from './rule-target.js';
import { rememberTrace } from './trace.js';
import { fireEvent, notFound } from './transition.js';

export interface NewRuleRun {
  readonly projectId: string;
  readonly channelId: string;
  /** Either this rule makes the targets, or they are given, now or later. */
  readonly ruleId?: string | null;
  readonly targets?: readonly TargetInput[] | null;
  readonly metadata: unknown;
  readonly correlationId: string | null;
  readonly idempotencyKey: string | null;
  /** Nothing is sent before. */
  readonly startAt?: Date | null;
  /** When what was applied is set back by itself. */
  readonly autoRevertAt?: Date | null;
  /** Where the wish came from. */
  readonly source?: 'api' | 'schedule' | 'reconciliation';
}

export interface QueueRequest extends RunRequest {
  /** The hash of the preview, from somebody who means it although it is beyond the guardrails. */
  readonly confirm?: string | null;
}

/** `andThen` is part of the run's making: it sees the same state of the catalog, and what it throws leaves no run. */
export async function createRuleRun(
  db: Database,
  viewer: Viewer,
  input: NewRuleRun,
  andThen?: (connection: Connection, runId: string) => Promise<void>,
): Promise<RuleRunRow> {
  checkLabel('projectId', input.projectId);
  if (input.correlationId !== null) checkLabel('correlationId', input.correlationId);
  const metadata = requireObject('metadata', input.metadata);
  const { idempotencyKey, ...request } = input;
  const ruleId = requireOneOrigin(input);
  const checked = requireTargets(input.targets ?? [], null);
  const id = newId();
  const correlationId = input.correlationId ?? correlationIdIn(metadata) ?? id;
  const run = { id, tenantId: viewer.tenantId };
  const runId = await db.transaction(
    viewer.actor,
    async (connection) => {
      const earlier = await reserveKey(
        connection,
        { tenantId: viewer.tenantId, operation: 'createRuleRun', key: idempotencyKey, request },
        id,
      );
      if (earlier !== null) return earlier;
      // Not before: a repeat may come when the times are over.
      checkTimes(input);
      await requireChannel(connection, viewer, input.channelId);
      const rule = ruleId === null ? null : await requireUsableRule(connection, viewer, ruleId);
      const { currency } = checked;
      await insertRun(connection, viewer, { ...input, id, rule, currency, correlationId, metadata });
      if (rule === null) await insertTargets(connection, run, checked);
      else await addTargetsByRule(connection, run, rule);
      await rememberTrace(connection, { kind: 'RULE', runId: id, correlationId });
      await andThen?.(connection, id);
      return id;
    },
    // A preview and its hash are of one state of the catalog.
    ruleId === null ? 'READ COMMITTED' : 'REPEATABLE READ',
  );
  return requireRuleRun(db, viewer, runId);
}

interface RunToInsert extends NewRuleRun {
  readonly id: string;
  readonly rule: RuleSnapshot | null;
  readonly currency: string | null;
  readonly correlationId: string;
  readonly metadata: object;
}

async function insertRun(
  connection: Connection,
  { tenantId, actor }: Viewer,
  run: RunToInsert,
): Promise<void> {
  const { rule } = run;
  await connection.query(
    `INSERT INTO rule_run
       (id, tenant_id, project_id, channel_id, rule_id, rule_snapshot, priority, currency, actor, correlation_id,
        metadata, start_at, auto_revert_at, source)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
    [
      run.id,
      tenantId,
      run.projectId,
      run.channelId,
      run.ruleId,
      rule === null ? null : JSON.stringify(rule),
      rule?.priority ?? 0,
      run.currency,
      actor,
      run.correlationId,
      JSON.stringify(run.metadata),
      run.startAt,
      run.autoRevertAt,
      run.source ?? 'api',
    ],
  );
}

/** Clients that file everything in the metadata find their run by it as well. */
function correlationIdIn(metadata: object): string | null {
  const { correlationId } = metadata as { readonly correlationId?: unknown };
  return typeof correlationId === 'string' && isLabel(correlationId) ? correlationId : null;
}

function requireOneOrigin({ ruleId = null, targets = null }: NewRuleRun): string | null {
  if (ruleId === null || targets === null) return ruleId;
  throw new AppError('INVALID_INPUT', 'Give either ruleId or targets: a run comes of one of them.', {
    field: ['input', 'ruleId'],
  });
}

export async function addRuleTargets(
  db: Database,
  viewer: Viewer,
  input: { readonly runId: string; readonly targets: readonly TargetInput[] },
): Promise<RuleRunRow> {
  await db.transaction(viewer.actor, async (connection) => {
    const run = await lockRuleRun(connection, viewer, input.runId);
    if (run.status !== 'PREVIEW') {
      throw new AppError(
        'ILLEGAL_TRANSITION',
        `Only a PREVIEW run takes targets; this one is ${run.status}.`,
        {
          field: ['input', 'runId'],
          details: {
            machine: ruleRunMachine.name,
            event: 'add_targets',
            from: run.status,
            allowed: allowedEvents(ruleRunMachine, run.status),
          },
        },
      );
    }
    if (run.ruleId !== null) {
      throw new AppError('INVALID_INPUT', 'The targets of this run come from its rule alone.', {
        field: ['input', 'runId'],
      });
    }
    const checked = requireTargets(input.targets, run.currency);
    await connection.query('UPDATE rule_run SET currency = $2 WHERE id = $1', [
      input.runId,
      checked.currency,
    ]);
    await insertTargets(connection, { id: input.runId, tenantId: viewer.tenantId }, checked);
  });
  return requireRuleRun(db, viewer, input.runId);
}

export function queueRuleRun(db: Database, viewer: Viewer, request: QueueRequest): Promise<RuleRunRow> {
  const confirm = request.confirm ?? undefined;
  return actOnRuleRun(db, viewer, 'queueRuleRun', { ...request, confirm }, (connection, run) =>
    queueLockedRun(connection, run, confirm ?? null),
  );
}

/** A refusal comes before anything is written. */
export async function queueLockedRun(
  connection: Connection,
  run: LockedRuleRun,
  confirm: string | null,
): Promise<void> {
  if (run.status === 'PREVIEW') await requireQueueable(connection, run, confirm);
  const { id, tenantId } = run;
  await fireEvent(connection, { machine: ruleRunMachine, tenantId, id, event: 'queue' });
  await connection.query(
    `UPDATE rule_target SET status = 'QUEUED' WHERE run_id = $1 AND status = 'PREVIEW'`,
    [id],
  );
}

/** Leaves the preview that the run goes ahead with in its row. */
async function requireQueueable(
  connection: Connection,
  run: LockedRuleRun,
  confirm: string | null,
): Promise<void> {
  const { id, tenantId, keptHash, total } = run;
  if (total === 0) {
    throw new AppError('INVALID_INPUT', 'The run has no targets: add some before it is queued.', {
      field: ['input', 'runId'],
    });
  }
  refuseAfterRevert(run);
  const preview = await requireWithinGuardrails(connection, { id, tenantId, keptHash }, confirm);
  if (preview === null) return;
  await connection.query('UPDATE rule_run SET preview = $2 WHERE id = $1', [id, JSON.stringify(preview)]);
}

function checkTimes({ startAt, autoRevertAt }: NewRuleRun): void {
  const floor = Math.max(Date.now(), startAt?.getTime() ?? 0);
  if (!autoRevertAt || autoRevertAt.getTime() > floor) return;
  throw new AppError('INVALID_INPUT', 'autoRevertAt must lie in the future, and after startAt.', {
    field: ['input', 'autoRevertAt'],
  });
}

async function requireChannel(connection: Connection, viewer: Viewer, id: string): Promise<void> {
  const { rowCount } = await connection.query('SELECT 1 FROM channel WHERE id = $1 AND tenant_id = $2', [
    isUuid(id) ? id : null,
    viewer.tenantId,
  ]);
  if (rowCount !== 1) throw notFound('Channel', id, ['input', 'channelId']);
}
