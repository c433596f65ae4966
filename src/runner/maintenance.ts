// Work by the clock: jobs that some replica does every so often. Each tick of a job is taken by exactly one
// replica, through the job's row; a job that fails is logged and comes again at its next tick, so it must
// stand being cut short and repeated. Add a job by handing one to the runner.

import type { Database } from '../store/db.js';
import { claimDueJobs } from '../store/maintenance.js';
import type { Log } from './log.js';

export interface MaintenanceJob {
  readonly name: string;
  readonly everyMs: number;
  /** `signal` aborts when the process stops. */
  run(signal: AbortSignal): Promise<void>;
}

export interface MaintenanceOptions {
  readonly db: Database;
  readonly jobs: readonly MaintenanceJob[];
  /** Between two looks at what is due. */
  readonly everyMs: number;
  readonly log: Log;
}

export class Maintenance {
  readonly #options: MaintenanceOptions;
  readonly #stopping = new AbortController();
  readonly #underWay = new Map<MaintenanceJob, Promise<void>>();
  #clock: NodeJS.Timeout | null = null;
  /** One look at a time: a job is not under way before the look that took it is over. */
  #looking: Promise<unknown> | null = null;

  constructor(options: MaintenanceOptions) {
    this.#options = options;
  }

  start(): void {
    if (this.#options.jobs.length === 0 || this.#clock) return;
    this.#look();
    this.#clock = setInterval(() => this.#look(), this.#options.everyMs);
  }

  async stop(): Promise<void> {
    if (this.#clock) clearInterval(this.#clock);
    this.#clock = null;
    this.#stopping.abort();
    await this.#looking;
    await Promise.all(this.#underWay.values());
  }

  /** Does every job that is due and that no other replica took; answers their names when they are done. */
  async runOnce(): Promise<string[]> {
    while (this.#looking) await this.#looking;
    const look = this.#take();
    this.#looking = look.catch(() => {}).finally(() => (this.#looking = null));
    const taken = await look;
    await Promise.all(taken.flatMap((job) => this.#underWay.get(job) ?? []));
    return taken.map(({ name }) => name);
  }

  #look(): void {
    this.#looking ??= this.#take()
      .catch((error: unknown) => {
        this.#options.log.warn({ err: error }, 'maintenance could not be looked up');
      })
      .finally(() => (this.#looking = null));
  }

  async #take(): Promise<MaintenanceJob[]> {
    // A job that outlasts its own interval is not started beside itself.
    const free = this.#options.jobs.filter((job) => !this.#underWay.has(job));
    const due = new Set(await claimDueJobs(this.#options.db, free));
    const taken = free.filter(({ name }) => due.has(name));
    for (const job of taken) {
      this.#underWay.set(
        job,
        this.#run(job).finally(() => this.#underWay.delete(job)),
      );
    }
    return taken;
  }

  async #run(job: MaintenanceJob): Promise<void> {
    try {
      await job.run(this.#stopping.signal);
    } catch (error) {
      this.#options.log.error({ err: error, job: job.name }, 'maintenance job failed');
    }
  }
}
