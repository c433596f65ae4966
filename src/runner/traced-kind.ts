// A kind of work, with its units shown in the traces of the runs that they belong to: the claim, and all that is
// done under it. Put around a kind only while tracing is on.

import type { Database } from '../store/db.js';
import { readTrace } from '../store/trace.js';
import { inSpan, recordSpan } from '../tracing.js';
import type { RunOfWork, Work, WorkKind, WorkResult } from './work.js';

export interface TracedKindOptions {
  readonly db: Database;
  /** The trace of a run that no traced request asked for. */
  readonly traceparentOfRun: (runId: string) => string;
}

export class TracedKind implements WorkKind {
  readonly name: string;
  readonly #kind: WorkKind;
  readonly #options: TracedKindOptions;

  constructor(kind: WorkKind, options: TracedKindOptions) {
    this.name = kind.name;
    this.#kind = kind;
    this.#options = options;
  }

  recover(deadWorkerIds: readonly string[]): Promise<number> {
    return this.#kind.recover(deadWorkerIds);
  }

  nextDueMs(): Promise<number | null> {
    return this.#kind.nextDueMs();
  }

  leasesOf(workerId: string): number {
    return this.#kind.leasesOf?.(workerId) ?? 0;
  }

  async drain(): Promise<void> {
    await this.#kind.drain?.();
  }

  async claim(workerId: string): Promise<Work | null> {
    const from = performance.now();
    const work = await this.#kind.claim(workerId);
    if (!work?.run) return work;
    const ms = performance.now() - from;
    const parent = await this.#traceOf(work.run);
    const facts = factsOf(this.name, work.run, work.leases);
    recordSpan({ name: `claim ${this.name}`, kind: 'consumer', parent, facts }, ms);
    return new TracedWork(this.name, work, parent);
  }

  /** A claim is worth more than its trace. */
  async #traceOf(run: RunOfWork): Promise<string> {
    const { db, traceparentOfRun } = this.#options;
    const remembered = await readTrace(db, run).catch(() => null);
    return remembered ?? traceparentOfRun(run.runId);
  }
}

class TracedWork implements Work {
  constructor(
    private readonly kindName: string,
    private readonly work: Work,
    private readonly parent: string,
  ) {}

  get run(): RunOfWork | undefined {
    return this.work.run;
  }

  get leases(): number {
    return this.work.leases;
  }

  process(signal: AbortSignal): Promise<WorkResult> {
    const facts = factsOf(this.kindName, this.work.run!, this.work.leases);
    const name = `process ${this.kindName}`;
    return inSpan({ name, kind: 'consumer', parent: this.parent, facts }, async (span) => {
      const result = await this.work.process(signal);
      span.note({ 'runledger.result': result });
      return result;
    });
  }
}

function factsOf(kind: string, { runId, correlationId }: RunOfWork, items: number) {
  return {
    'runledger.work': kind,
    'runledger.run_id': runId,
    'runledger.correlation_id': correlationId,
    'runledger.items': items,
  };
}
