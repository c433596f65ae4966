// Runs that retention has pruned: their row stays, with its counts, and nothing more can be asked of them.
// Called by every verb that is about to do something with a run that it has locked.

import { AppError } from '../errors.js';

export interface Prunable {
  /** Null while the run is whole. */
  readonly prunedAt: Date | null;
}

/** Refuses a run whose parts and ledger are gone. */
export function requireWhole({ prunedAt }: Prunable): void {
  if (prunedAt === null) return;
  throw new AppError(
    'CONFLICT',
    `The run was pruned at ${prunedAt.toISOString()}: its parts and its ledger are deleted, and it stays as it is.`,
    { field: ['input', 'runId'], details: { prunedAt: prunedAt.toISOString() } },
  );
}
