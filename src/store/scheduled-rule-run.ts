// Rule runs that nobody looks at before they are queued: made and queued in one transaction, so that the preview is
// still true when it is compared with the catalog, and a process that ends in between leaves nothing. Called by
// the schedules.

import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Database } from './db.js';
import { cancelLockedRun } from './rule-run-control.js';
import { findRuleRun, lockRuleRun } from './rule-run-row.js';
import { createRuleRun, queueLockedRun, queueRuleRun, type NewRuleRun } from './rule-run.js';

export interface StartedRuleRun {
  readonly runId: string;
  /** Why it waits, a preview still, for a person to confirm it; null when it is queued. */
  readonly refusal: string | null;
}

/** Any refusal but that of the guardrails leaves no run: there would be nothing to confirm. */
export async function startRuleRun(
  db: Database,
  viewer: Viewer,
  input: NewRuleRun & { readonly idempotencyKey: string },
): Promise<StartedRuleRun> {
  let refusal = null as string | null;
  const run = await createRuleRun(db, viewer, input, async (connection, runId) => {
    refusal = null;
    try {
      await queueLockedRun(connection, await lockRuleRun(connection, viewer, runId), null);
    } catch (error) {
      refusal = guardrailMessage(error);
    }
  });
  // An earlier request under the key has made it, and was not heard to the end.
  if (run.status === 'PREVIEW' && refusal === null) refusal = await queueOrHearWhy(db, viewer, run.id);
  return { runId: run.id, refusal };
}

async function queueOrHearWhy(db: Database, viewer: Viewer, runId: string): Promise<string | null> {
  try {
    await queueRuleRun(db, viewer, { runId, idempotencyKey: null });
    return null;
  } catch (error) {
    return guardrailMessage(error);
  }
}

function guardrailMessage(error: unknown): string {
  if (error instanceof AppError && error.code === 'GUARDRAIL') return error.message;
  throw error;
}

/** A preview that a later one has overtaken is cancelled; a run that is more than that by now goes its way. */
export async function dropPreview(db: Database, viewer: Viewer, runId: string): Promise<void> {
  // Not by its lock alone: that would hold up the claims of a run at work.
  if ((await findRuleRun(db, viewer, runId))?.status !== 'PREVIEW') return;
  await db.transaction(viewer.actor, async (connection) => {
    const run = await lockRuleRun(connection, viewer, runId);
    if (run.status === 'PREVIEW') await cancelLockedRun(connection, run);
  });
}
