// What the runner's tests share: a kind of work that does what the test says, and a log that is kept.
import type { Work, WorkKind, WorkResult } from '../../src/runner/work.js';

type Process = (signal: AbortSignal) => Promise<WorkResult>;

/** Hands out the units that a test has put in, in order, and notes who claimed them. */
export class ScriptedKind implements WorkKind {
  readonly name: string;
  readonly claimedBy: string[] = [];
  readonly recoveries: string[][] = [];
  polls = 0;
  /** Thrown by the next look for work, once. */
  fault: Error | null = null;
  /** Due though there is nothing to claim: another worker was faster. */
  pretends = false;
  nextInMs: number | null = null;
  readonly #units: Process[] = [];

  constructor(name: string) {
    this.name = name;
  }

  add(...units: Process[]): void {
    this.#units.push(...units);
  }

  async recover(deadWorkerIds: readonly string[]): Promise<number> {
    this.recoveries.push([...deadWorkerIds]);
    return 0;
  }

  async nextDueMs(): Promise<number | null> {
    this.polls += 1;
    const { fault } = this;
    this.fault = null;
    if (fault) throw fault;
    return this.#units.length > 0 || this.pretends ? 0 : this.nextInMs;
  }

  async claim(workerId: string): Promise<Work | null> {
    const process = this.#units.shift();
    if (!process) return null;
    this.claimedBy.push(workerId);
    return { leases: 1, process };
  }
}

export const succeed: Process = async () => 'success';
export const fail: Process = async () => 'failure';

export interface Entry {
  readonly level: string;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
}

export class KeptLog {
  readonly entries: Entry[] = [];
  readonly info = this.#keep('info');
  readonly warn = this.#keep('warn');
  readonly error = this.#keep('error');

  #keep(level: string) {
    return (details: object, message: string): void => {
      this.entries.push({ level, message, details: { ...details } });
    };
  }
}

/** A promise and the two ways to settle it. */
export function signalled<T = void>(): {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
} {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((keep, fail) => {
    resolve = keep;
    reject = fail;
  });
  return { promise, resolve, reject };
}

export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
