// What takes part in the queue benchmark: something that is filled with jobs, and drains them.

/** How Runledger and the bare limit take the jobs; the peers have their own best. */
export const BATCH = 1000;
export const WORKERS = 2;

export interface Contender {
  readonly name: string;
  /** Whether it is somebody else's queue, in one of its configurations. */
  readonly isPeer: boolean;
  /** Puts the jobs in, and has the planner know of them; not measured. */
  fill(jobs: number): Promise<void>;
  /** From the first claim to the last job settled. */
  drain(jobs: number): Promise<void>;
  close(): Promise<void>;
}

/** Counts jobs done; `all` resolves with the last one. */
export class Countdown {
  readonly all: Promise<void>;
  #left: number;
  #resolve: () => void = () => {};

  constructor(count: number) {
    this.#left = count;
    this.all = new Promise((resolve) => (this.#resolve = resolve));
  }

  done(count = 1): void {
    this.#left -= count;
    if (this.#left === 0) this.#resolve();
    if (this.#left < 0) throw new Error('a job was done twice');
  }
}
