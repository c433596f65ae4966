// Reconciliation as a kind of work: a unit is one page of a run's applied targets, read from the channel in
// bulk and compared, or, when no target is left, the report. Any process takes up where another stopped. While a
// channel leaves one of them unanswered, this process begins no other of the same channel.

import type { OpenedChannel } from '../connectors/registry.js';
import type { Database } from '../store/db.js';
import {
  claimReconciliation,
  nextReconciliationDelayMs,
  recoverReconciliations,
} from '../store/reconciliation-work.js';
import { AbsentKeys } from './absent-keys.js';
import type { ConnectorCache } from './connector-cache.js';
import type { Log } from './log.js';
import type { RunnerObserver } from './observer.js';
import { ReconciliationWork } from './reconciliation-work.js';
import { FULL_MS, PATIENCE_MS, Stragglers } from './stragglers.js';
import type { Work, WorkKind } from './work.js';

export interface ReconciliationOptions {
  readonly db: Database;
  readonly channels: ConnectorCache<OpenedChannel>;
  readonly leaseMs: number;
  readonly log: Log;
  readonly observer?: RunnerObserver;
  /** Uniform in [0, 1): spreads the retries. */
  readonly random?: () => number;
  /** After so long, a page that is being read counts as hanging. */
  readonly patienceMs?: number;
}

export class Reconciliations implements WorkKind {
  readonly name = 'reconciliation';
  readonly #options: ReconciliationOptions;
  readonly #stragglers: Stragglers;
  readonly #absentKeys: AbsentKeys;

  constructor(options: ReconciliationOptions) {
    this.#options = options;
    this.#stragglers = new Stragglers(options.log, 1);
    this.#absentKeys = new AbsentKeys(options.log);
  }

  recover(deadWorkerIds: readonly string[]): Promise<number> {
    return recoverReconciliations(this.#options.db, deadWorkerIds);
  }

  async nextDueMs(): Promise<number | null> {
    const full = this.#stragglers.fullChannels();
    const ms = await nextReconciliationDelayMs(this.#options.db, [...full, ...this.#absentKeys.channels()]);
    return full.length === 0 ? ms : Math.min(ms ?? Infinity, FULL_MS);
  }

  async claim(workerId: string): Promise<Work | null> {
    const { db, leaseMs, observer = {}, random = Math.random, patienceMs = PATIENCE_MS } = this.#options;
    const passedOver = [...this.#stragglers.fullChannels(), ...this.#absentKeys.channels()];
    const claim = await claimReconciliation(db, { workerId, leaseMs, passedOver });
    if (!claim) return null;
    const own = { observer, random, patienceMs, stragglers: this.#stragglers, absentKeys: this.#absentKeys };
    return new ReconciliationWork(claim, { ...this.#options, ...own });
  }

  leasesOf(workerId: string): number {
    return this.#stragglers.leasesOf(workerId);
  }

  drain(): Promise<void> {
    return this.#stragglers.end();
  }
}
