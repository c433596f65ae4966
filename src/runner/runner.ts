// The runner of one process: its loops, their heartbeats, recovery and maintenance. Owns start and stop; on
// stop no claim is made any more, calls in flight get a moment to end, then are cut, and every lease is
// handed back at the cost of no attempt.

import { randomBytes } from 'node:crypto';
import { readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Database } from '../store/db.js';
import { recordHeartbeats } from '../store/worker.js';
import { Doorbell } from './doorbell.js';
import type { Log } from './log.js';
import { WorkerLoop } from './loop.js';
import { Maintenance, type MaintenanceJob } from './maintenance.js';
import type { RunnerObserver } from './observer.js';
import { Recovery } from './recovery.js';
import type { WorkKind } from './work.js';

export interface RunnerTiming {
  /** The wait after an unexpected error. */
  readonly errorWaitMs: number;
  readonly heartbeatMs: number;
  readonly recoveryMs: number;
  /** Between two looks at which maintenance jobs are due. */
  readonly maintenanceMs: number;
  /** The rests of a worker that finds nothing grow from the first to the second. */
  readonly minIdleMs: number;
  readonly maxIdleMs: number;
  /** How long calls in flight may go on when the runner is asked to stop. */
  readonly graceMs: number;
}

const DEFAULT_TIMING: RunnerTiming = {
  errorWaitMs: 5_000,
  heartbeatMs: 2_000,
  recoveryMs: 5_000,
  maintenanceMs: 1_000,
  minIdleMs: 50,
  maxIdleMs: 2_000,
  graceMs: 3_000,
};

export interface RunnerOptions {
  readonly db: Database;
  readonly kinds: readonly WorkKind[];
  readonly jobs?: readonly MaintenanceJob[];
  /** Loops in this process. */
  readonly workers: number;
  readonly log: Log;
  readonly timing?: Partial<RunnerTiming>;
  readonly observer?: RunnerObserver;
}

export class Runner {
  readonly #options: RunnerOptions;
  readonly #timing: RunnerTiming;
  readonly #home = { host: hostname(), pidSpace: readPidSpace() };
  readonly #doorbell = new Doorbell();
  readonly #loops: readonly WorkerLoop[];
  readonly #recovery: Recovery;
  readonly #maintenance: Maintenance;
  #running: Promise<unknown> | null = null;
  #heart: NodeJS.Timeout | null = null;
  #beating: Promise<void> | null = null;

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#timing = { ...DEFAULT_TIMING, ...options.timing };
    const { db, kinds, log, jobs = [] } = options;
    const ids = nameWorkers(this.#home.host, options.workers);
    const { recoveryMs: everyMs, maintenanceMs } = this.#timing;
    this.#recovery = new Recovery({ db, kinds, home: this.#home, ownIds: ids, everyMs, log });
    this.#maintenance = new Maintenance({ db, jobs, everyMs: maintenanceMs, log });
    this.#loops = ids.map((id) => this.#makeLoop(id));
  }

  /** The loops' ids, as leases and the `worker` table have them. */
  get workerIds(): readonly string[] {
    return this.#loops.map(({ id }) => id);
  }

  /** The leases that each loop holds right now, in the order of `workerIds`. */
  get leases(): readonly number[] {
    return this.#loops.map(({ leases }) => leases);
  }

  /** The loops run from now on; a database that does not answer yet is waited for by them. */
  start(): void {
    if (this.#running) return;
    this.#beat();
    this.#heart = setInterval(() => this.#beat(), this.#timing.heartbeatMs);
    this.#maintenance.start();
    this.#running = Promise.all(this.#loops.map((loop) => loop.run()));
  }

  /** There may be work: a resting loop looks at once. */
  wake(): void {
    this.#doorbell.ring();
  }

  async stop(): Promise<void> {
    if (!this.#running) return;
    const grace = setTimeout(() => this.#loops.forEach((loop) => loop.cut()), this.#timing.graceMs);
    for (const loop of this.#loops) loop.stop();
    await Promise.all([this.#running, this.#maintenance.stop()]);
    for (const kind of this.#options.kinds) await kind.drain?.();
    clearTimeout(grace);
    if (this.#heart) clearInterval(this.#heart);
    this.#heart = null;
    this.#running = null;
    await this.#beating;
    // The last beat says STOPPED.
    await this.#recordHeartbeats();
  }

  /** One unit of work by the first loop, without any rest: for tests and tools, instead of `start`. */
  async runOnce(): Promise<boolean> {
    await this.#recordHeartbeats();
    return this.#loops[0]!.runOnce();
  }

  #makeLoop(id: string): WorkerLoop {
    const { db, kinds, log, observer } = this.#options;
    const { errorWaitMs, minIdleMs, maxIdleMs } = this.#timing;
    return new WorkerLoop({
      id,
      kinds,
      connect: () => db.ping(),
      recover: () => this.#recovery.runIfDue(),
      doorbell: this.#doorbell,
      log,
      errorWaitMs,
      minIdleMs,
      maxIdleMs,
      ...(observer ? { observer } : {}),
    });
  }

  /** One at a time: an older sample must not overwrite a newer one. */
  #beat(): void {
    this.#beating ??= this.#recordHeartbeats().finally(() => (this.#beating = null));
  }

  async #recordHeartbeats(): Promise<void> {
    const { host, pidSpace } = this.#home;
    const beats = this.#loops.map(({ id, state, leases }) => ({ id, state, activeLeases: leases }));
    try {
      await recordHeartbeats(this.#options.db, { host, pidSpace, pid: process.pid }, beats);
      // Loops that are never idle do not pass through RECOVERY.
      if (this.#heart) await this.#recovery.runIfDue();
    } catch (error) {
      this.#options.log.warn({ err: error }, 'the heartbeat could not be recorded');
    }
  }
}

/** A process that comes after a crash may have the same pid: the tag keeps its leases apart. */
function nameWorkers(host: string, count: number): string[] {
  const tag = randomBytes(3).toString('hex');
  return Array.from({ length: count }, (_, index) => `${host}-${process.pid}-${tag}-${index + 1}`);
}

/** Containers may share a host name while each counts its processes from one. */
function readPidSpace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return '';
  }
}
