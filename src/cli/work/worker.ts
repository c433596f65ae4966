// A worker: claims runs one after another and works on each. Asked to stop, it ends after the run at hand; asked
// again, it stops the command.

import { pause, persist } from '../patience.js';
import type { ClaimedRun, OpsApi, Outcome } from './ops-api.js';
import { Session, type SessionOptions } from './session.js';

export interface WorkerOptions extends Omit<SessionOptions, 'run'> {
  readonly api: OpsApi;
  readonly filter: { readonly projectId: string | null; readonly env: string | null };
  readonly pollMs: number;
  /** When to end by itself: after one run, when there is nothing to claim, or never. */
  readonly until: 'one' | 'empty' | 'never';
}

export class Worker {
  private readonly stopping = new AbortController();
  private session: Session | null = null;
  /** An answer to a claim was lost: the run may be ours without our knowing. */
  private mayHold = false;

  constructor(private readonly options: WorkerOptions) {}

  /** Answers how the last run ended; null when there was none. */
  async run(): Promise<Outcome | null> {
    const { until, pollMs } = this.options;
    let last: Outcome | null = null;
    while (!this.stopping.signal.aborted) {
      const run = await this.claim();
      if (run) last = await this.work(run);
      else if (until !== 'never') return last;
      if (run && until === 'one') return last;
      // Spread, so that many workers do not ask at the same moment.
      if (!run) await pause(pollMs * (0.75 + Math.random() / 2), this.stopping.signal);
    }
    return last;
  }

  /** The first time: no more claims. The second: no more waiting for the command either. */
  stop(): void {
    if (this.stopping.signal.aborted) this.session?.stop('worker stopped');
    else if (this.session) this.options.log('finishing the run at hand; once more to stop its command');
    this.stopping.abort();
  }

  private async claim(): Promise<ClaimedRun | null> {
    const { api, filter, log } = this.options;
    try {
      return await persist(
        async () => {
          if (this.mayHold) {
            const held = await api.findUnanswered();
            this.mayHold = false;
            if (held) return held;
          }
          return api.claim(filter);
        },
        this.stopping.signal,
        ({ message }) => {
          this.mayHold = true;
          log(`${message}; trying again`);
        },
      );
    } catch (error) {
      if (this.stopping.signal.aborted) return null;
      throw error;
    }
  }

  private async work(run: ClaimedRun): Promise<Outcome> {
    const { log } = this.options;
    log(`${run.id}: claimed (${run.projectId}, ${run.env})`);
    this.session = new Session({ ...this.options, run });
    const outcome = await this.session.work();
    this.session = null;
    log(`${run.id}: ${outcome.toLowerCase()}`);
    return outcome;
  }
}
