// Guardrails: a tenant's own limits, and the check of a run against them when it is queued. A run beyond them
// goes through only with the hash of what it would do, so that nobody confirms what they have not seen.

import { AppError } from '../errors.js';
import { describeExceeded, findExceeded, type Guardrails } from '../domain/guardrail.js';
import type { TargetSummary } from '../domain/rule-preview.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { summarizeTargets } from './target-summary.js';

const MAX_TARGETS = 2_147_483_647;
const MAX_PERCENT = 1_000_000_000;

const SELECT_GUARDRAILS = `SELECT max_targets AS "maxTargets", max_change_percent AS "maxChangePercent"
  FROM tenant WHERE id = $1`;

export async function findGuardrails(db: Database, viewer: Viewer): Promise<Guardrails> {
  return (await db.query<Guardrails>(SELECT_GUARDRAILS, [viewer.tenantId]))[0]!;
}

/** What is null stays as it is. */
export async function saveGuardrails(
  db: Database,
  viewer: Viewer,
  { maxTargets, maxChangePercent }: { [Name in keyof Guardrails]: number | null },
): Promise<Guardrails> {
  requireWithin('maxTargets', maxTargets, MAX_TARGETS);
  requireWithin('maxChangePercent', maxChangePercent, MAX_PERCENT);
  await db.query(
    `UPDATE tenant SET max_targets = coalesce($2, max_targets),
       max_change_percent = coalesce($3, max_change_percent)
     WHERE id = $1`,
    [viewer.tenantId, maxTargets, maxChangePercent],
  );
  return findGuardrails(db, viewer);
}

function requireWithin(field: keyof Guardrails, value: number | null, most: number): void {
  if (value === null || (value >= 0 && value <= most)) return;
  throw new AppError('INVALID_INPUT', `${field} must be from 0 to ${most}.`, { field: ['input', field] });
}

export interface QueuedRun {
  readonly id: string;
  readonly tenantId: string;
  /** The hash of its preview, when a rule made the run. */
  readonly keptHash: string | null;
}

/**
 * Refuses a run that is beyond its tenant's guardrails and not confirmed, or whose preview is no longer true.
 * The caller holds the run's lock. Answers the preview to keep with the run; null when it has one already.
 */
export async function requireWithinGuardrails(
  connection: Connection,
  run: QueuedRun,
  confirm: string | null,
): Promise<TargetSummary | null> {
  const { rows } = await connection.query<Guardrails>(SELECT_GUARDRAILS, [run.tenantId]);
  const guardrails = rows[0]!;
  const { maxChangePercent } = guardrails;
  const options = { withItems: run.keptHash !== null, maxChangePercent };
  const { summary, ...counts } = (await summarizeTargets(connection, [run.id], options)).get(run.id)!;
  if (run.keptHash !== null && run.keptHash !== summary.hash) throw staleRule();
  if (confirm !== null && confirm !== summary.hash) throw staleConfirmation(summary.hash);
  const exceeded = findExceeded(guardrails, { ...summary, ...counts });
  if (exceeded.length > 0 && confirm === null) {
    throw new AppError('GUARDRAIL', `Beyond the guardrails: ${describeExceeded(exceeded)}.`, {
      field: ['input', 'confirm'],
      details: { exceeded, confirm: summary.hash },
    });
  }
  return run.keptHash === null ? summary : null;
}

function staleRule(): AppError {
  return new AppError(
    'GUARDRAIL',
    'The catalog items of this preview have changed since it was made: make a new run from the rule.',
    { field: ['input', 'runId'], details: { stale: true } },
  );
}

function staleConfirmation(hash: string): AppError {
  return new AppError('GUARDRAIL', 'The preview is not the one that was confirmed: look at it again.', {
    field: ['input', 'confirm'],
    details: { stale: true, confirm: hash },
  });
}
