// One worker: a loop that walks the machine of domain/worker-loop. Each state has one step that does what
// the state says and answers the event that leaves it; anything a step throws is the event `error`. Kinds
// of work take turns; one that fails rests for the error wait while the others go on.

import { setTimeout as delay } from 'node:timers/promises';
import { stepWorker, type WorkerEvent, type WorkerState } from '../domain/worker-loop.js';
import type { Doorbell } from './doorbell.js';
import { tellingOf, type Log } from './log.js';
import type { RunnerObserver } from './observer.js';
import type { Work, WorkKind, WorkResult } from './work.js';

export interface LoopOptions {
  readonly id: string;
  readonly kinds: readonly WorkKind[];
  /** Rejects while the database does not answer. */
  readonly connect: () => Promise<void>;
  /** Takes back what dead workers held, if it is time to look. */
  readonly recover: () => Promise<void>;
  readonly doorbell: Doorbell;
  readonly log: Log;
  readonly errorWaitMs: number;
  readonly minIdleMs: number;
  readonly maxIdleMs: number;
  readonly observer?: RunnerObserver;
  readonly now?: () => number;
}

interface UnitInHand {
  readonly kind: WorkKind;
  readonly work: Work;
  readonly claimedAt: number;
}

export class WorkerLoop {
  readonly id: string;
  readonly #options: LoopOptions;
  readonly #now: () => number;
  readonly #steps: Readonly<Record<WorkerState, () => Promise<WorkerEvent>>>;
  /** Kinds that failed, and until when they rest. */
  readonly #resting = new Map<WorkKind, number>();
  /** Kinds that had nothing, and until when they are asked after the others. */
  readonly #quiet = new Map<WorkKind, number>();
  /** Kinds that were due but could not be claimed in this look for work. */
  readonly #missed = new Set<WorkKind>();
  /** The kind that was claimed last: it mostly has more, and is claimed from without asking first. */
  #likely: WorkKind | null = null;
  readonly #stopping = new AbortController();
  readonly #cut = new AbortController();
  #state: WorkerState = 'STARTUP';
  #turn = 0;
  #found: WorkKind | null = null;
  #unit: UnitInHand | null = null;
  #nextDueMs: number | null = null;
  #idleMs: number;
  #asking: WorkKind | null = null;
  #errorWaitMs = 0;
  #fault: { readonly error: unknown } | null = null;

  constructor(options: LoopOptions) {
    this.id = options.id;
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#idleMs = options.minIdleMs;
    this.#steps = {
      STARTUP: async () => 'boot',
      CONNECTING: () => this.#connect(),
      RECOVERY: () => this.#recover(),
      POLLING: () => this.#poll(),
      CLAIMING: () => this.#claim(),
      PROCESSING: () => this.#process(),
      REPORTING_SUCCESS: () => this.#report('success'),
      REPORTING_FAILURE: () => this.#report('failure'),
      BACKOFF: async () => 'rest',
      IDLE: () => this.#rest(),
      ERROR_WAIT: () => this.#waitAfterError(),
      STOPPED: () => Promise.reject(new Error(`worker ${this.id} is stopped`)),
    };
  }

  get state(): WorkerState {
    return this.#state;
  }

  get leases(): number {
    const left = this.#options.kinds.reduce((sum, kind) => sum + (kind.leasesOf?.(this.id) ?? 0), 0);
    return left + (this.#unit?.work.leases ?? 0);
  }

  /** Runs until `stop`. */
  async run(): Promise<void> {
    while (this.#state !== 'STOPPED') await this.#advance();
  }

  /** One look for work without any rest: true when a unit was done. Rejects with what went wrong. */
  async runOnce(): Promise<boolean> {
    this.#fault = null;
    if (this.#state === 'IDLE') this.#step('wake');
    if (this.#state === 'ERROR_WAIT') this.#step('retry');
    for (;;) {
      const before = this.#state;
      await this.#advance();
      const fault = this.#fault as { readonly error: unknown } | null;
      if (fault) throw fault.error;
      if (this.#state === 'IDLE' || this.#state === 'STOPPED') return false;
      if (before.startsWith('REPORTING')) return true;
    }
  }

  /** No further claim is made; a unit in hand is finished first. */
  stop(): void {
    this.#stopping.abort();
  }

  /** Ends the unit in hand now: it hands its leases back. */
  cut(): void {
    this.#cut.abort();
  }

  async #advance(): Promise<void> {
    // Whoever has leases in hand settles them before it stops.
    if (this.#stopping.signal.aborted && this.#unit === null) return this.#step('stop');
    try {
      this.#step(await this.#steps[this.#state]());
    } catch (error) {
      this.#fail(error);
    }
  }

  #step(event: WorkerEvent): void {
    this.#state = stepWorker(this.#state, event);
  }

  #fail(error: unknown): void {
    const { id, kinds, log, errorWaitMs } = this.#options;
    const kind = this.#asking;
    const run = this.#unit?.work.run;
    const facts = { ...(run && tellingOf(run)), worker: id, state: this.#state, kind: kind?.name };
    log.error({ err: error, ...facts }, 'worker failed');
    if (kind) this.#resting.set(kind, this.#now() + errorWaitMs);
    const othersCanGoOn = kind !== null && kinds.some((each) => !this.#isIn(this.#resting, each));
    this.#errorWaitMs = othersCanGoOn ? 0 : errorWaitMs;
    this.#fault = { error };
    this.#asking = null;
    this.#unit = null;
    this.#step('error');
  }

  async #connect(): Promise<WorkerEvent> {
    await this.#options.connect();
    return 'connect';
  }

  async #recover(): Promise<WorkerEvent> {
    await this.#options.recover();
    return 'recover';
  }

  async #poll(): Promise<WorkerEvent> {
    this.#nextDueMs = null;
    for (const kind of this.#kindsToAsk()) {
      if (kind === this.#likely) {
        this.#found = kind;
        return 'find';
      }
      const ms = await this.#ask(kind, () => kind.nextDueMs());
      if (ms !== null && ms <= 0) {
        this.#found = kind;
        return 'find';
      }
      this.#quiet.set(kind, this.#now() + this.#options.minIdleMs);
      if (ms !== null) this.#nextDueMs = Math.min(ms, this.#nextDueMs ?? Infinity);
    }
    this.#missed.clear();
    return 'find_nothing';
  }

  async #claim(): Promise<WorkerEvent> {
    const kind = this.#found!;
    const askedAt = this.#now();
    // A miss of a kind that was not asked says only that it must be asked.
    const wasAsked = kind !== this.#likely;
    this.#likely = null;
    const work = await this.#ask(kind, () => kind.claim(this.id));
    if (!work) {
      if (wasAsked) this.#missed.add(kind);
      return 'miss';
    }
    const claimedAt = this.#now();
    this.#options.observer?.onClaim?.(kind.name, claimedAt - askedAt, work.run, work.leases);
    this.#unit = { kind, work, claimedAt };
    this.#likely = kind;
    this.#missed.clear();
    this.#turn = (this.#options.kinds.indexOf(kind) + 1) % this.#options.kinds.length;
    this.#idleMs = this.#options.minIdleMs;
    // There may be more than this worker can do.
    this.#options.doorbell.ring();
    return 'claim';
  }

  async #process(): Promise<WorkerEvent> {
    const { kind, work } = this.#unit!;
    const result = await this.#ask(kind, () => work.process(this.#cut.signal));
    return result === 'success' ? 'succeed' : 'fail';
  }

  async #report(result: WorkResult): Promise<WorkerEvent> {
    const { kind, work, claimedAt } = this.#unit!;
    this.#unit = null;
    this.#options.observer?.onWork?.(kind.name, result, this.#now() - claimedAt, work.run);
    return 'report';
  }

  async #rest(): Promise<WorkerEvent> {
    const ms = Math.max(0, Math.min(this.#idleMs, this.#nextDueMs ?? Infinity));
    this.#idleMs = Math.min(this.#idleMs * 2, this.#options.maxIdleMs);
    await this.#options.doorbell.wait(ms, this.#stopping.signal);
    return 'wake';
  }

  async #waitAfterError(): Promise<WorkerEvent> {
    await delay(this.#errorWaitMs, undefined, { signal: this.#stopping.signal }).catch(() => {});
    return 'retry';
  }

  /** In turn, but those that had nothing a moment ago last: asking costs a query. */
  #kindsToAsk(): WorkKind[] {
    const { kinds } = this.#options;
    const inTurn = [...kinds.slice(this.#turn), ...kinds.slice(0, this.#turn)].filter(
      (kind) => !this.#missed.has(kind) && !this.#isIn(this.#resting, kind),
    );
    const isQuiet = (kind: WorkKind): boolean => this.#isIn(this.#quiet, kind);
    return [...inTurn.filter((kind) => !isQuiet(kind)), ...inTurn.filter(isQuiet)];
  }

  #isIn(until: ReadonlyMap<WorkKind, number>, kind: WorkKind): boolean {
    return (until.get(kind) ?? -Infinity) > this.#now();
  }

  /** Notes whose step it is: when it fails, that kind rests and the others need not. */
  async #ask<T>(kind: WorkKind, step: () => Promise<T>): Promise<T> {
    this.#asking = kind;
    const answer = await step();
    this.#asking = null;
    return answer;
  }
}
