// Repair: what a reconciliation found to differ, pushed again by a run of its own. An applied target is never
// applied twice; the new run goes the way of every run, so its tenant's guardrails hold for it, and where they
// refuse it, it stays a preview for a person to confirm.

import type { Mismatch } from '../domain/reconciliation.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Database } from './db.js';
import { readFoundMismatches, type ReconciliationClaim } from './reconciliation-work.js';
import { createRuleRun, queueRuleRun } from './rule-run.js';

/** Makes and queues the run; null when there is nothing to push. Once for a reconciliation, however often asked. */
export async function repairMismatches(db: Database, claim: ReconciliationClaim): Promise<string | null> {
  const { projectId, correlationId, mismatches } = await readFoundMismatches(db, claim);
  const targets = mismatches.filter(isRepairable).map((mismatch) => toTarget(mismatch, claim.currency));
  if (targets.length === 0) return null;
  const viewer: Viewer = { tenantId: claim.tenantId, role: 'ADMIN', actor: claim.actor, keyId: null };
  const idempotencyKey = `repair ${claim.id}`;
  const { id } = await createRuleRun(db, viewer, {
    projectId,
    channelId: claim.channelId,
    targets,
    metadata: { repairOf: claim.runId, reconciliationId: claim.id },
    correlationId,
    source: 'reconciliation',
    idempotencyKey,
  });
  await queueUnlessRefused(db, viewer, id, idempotencyKey);
  return id;
}

/** Beyond the guardrails it stays a preview; and when this is a repeat, a person may have seen to it already. */
async function queueUnlessRefused(
  db: Database,
  viewer: Viewer,
  runId: string,
  idempotencyKey: string,
): Promise<void> {
  try {
    await queueRuleRun(db, viewer, { runId, idempotencyKey });
  } catch (error) {
    if (!(error instanceof AppError && error.isRefusal)) throw error;
  }
}

/** What the channel does not have cannot be pushed. */
function isRepairable({ actual }: Mismatch): boolean {
  return actual !== null;
}

function toTarget({ externalId, expected, actual }: Mismatch, currency: string) {
  return {
    externalId,
    before: { unit_amount: actual, currency },
    after: { unit_amount: expected, currency },
  };
}
