// What a check of the doctor's is made of.

export interface Invariant {
  readonly name: string;
  /** What holds when nothing is wrong. */
  readonly says: string;
  /** What to do when it does not. */
  readonly remedy: string;
  /** A warning is about what may be so in good order; an error unless said. */
  readonly severity?: 'WARNING';
  /** Answers rows (id, fault). */
  readonly sql: string;
}

export const BY_HAND =
  'Somebody wrote past the guards. Compare the row with its ledger (run_event), mend the row by hand, and find ' +
  'out who may write to the database.';
