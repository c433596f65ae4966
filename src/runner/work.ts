// The port between the loop and the kinds of work it does. A loop knows leases, results and due times; what
// is claimed and how it is done is the kind's own. Add a kind by implementing `WorkKind`; the loops of every
// process then take turns between the kinds.

export type WorkResult = 'success' | 'failure';

/** The run that a unit of work belongs to. */
export interface RunOfWork {
  readonly kind: 'RULE' | 'PIPELINE';
  readonly runId: string;
  readonly correlationId: string;
}

/** A unit of work that this worker has leases on. */
export interface Work {
  /** Leases held right now, for people to see. */
  readonly leases: number;

  /** For logs and traces. */
  readonly run?: RunOfWork | undefined;

  /**
   * Does the work and settles it; 'failure' when some part of it failed in a way that is settled too. When
   * `signal` aborts it ends soon: what is known is settled, and the rest is handed back at the cost of no
   * attempt. Rejects only for what is unexpected; whatever is still leased then expires by itself.
   */
  process(signal: AbortSignal): Promise<WorkResult>;
}

export interface WorkKind {
  readonly name: string;

  /**
   * Takes back leases that expired, and at once those of workers that are known to be dead; answers how
   * many. Called by any process, at any time, also twice at once.
   */
  recover(deadWorkerIds: readonly string[]): Promise<number>;

  /**
   * Milliseconds until something can be claimed, 0 or less when something can be now, null when nothing
   * waits. What may not be claimed at the moment (paused, throttled) is not due.
   */
  nextDueMs(): Promise<number | null>;

  /** Leases that units which this worker has already ended still hold, if any can. */
  leasesOf?(workerId: string): number;

  /** Resolves when nothing is under way any more behind units that have ended. */
  drain?(): Promise<void>;

  /** Leases one unit of work; null when another worker was faster. Keep units short: seconds, not minutes. */
  claim(workerId: string): Promise<Work | null>;
}
