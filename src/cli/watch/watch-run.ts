// Watching one run until it comes to rest: its states as they change, and its ledger line by line where that is
// asked for. Ends when the run has ended and everything up to its last line was shown.

import { WebSocket } from 'ws';
import { RunledgerClient, RunledgerError, type AnyRunState } from '../../client/index.js';
import { ApiFault, type Api } from '../api.js';
import { findKind, type Kind } from '../run-kind.js';
import { Screen } from './screen.js';
import { exitCodeOf, VIEWS } from './run-state.js';

export interface WatchOptions {
  /** One JSON object per line, for programs. */
  readonly json: boolean;
  /** The ledger, also of a run that has a progress bar. */
  readonly events: boolean;
}

/** Answers the exit code that fits the run's outcome. */
export async function watchRun(api: Api, runId: string, options: WatchOptions): Promise<number> {
  const kind = await findKind(api, runId);
  if (kind === null) throw new ApiFault('NOT_FOUND', `There is no run ${runId}.`, null, true);
  const screen = new Screen(kind, options.json);
  const client = new RunledgerClient({
    url: api.url.href,
    ...(api.key === null ? {} : { apiKey: api.key }),
    webSocketImpl: WebSocket,
    onRetry: ({ message }, { attempt }) => {
      if (attempt === 1) screen.note(`The server: ${message}; trying again`);
    },
  });
  try {
    return await new Watch(client, screen, kind, runId).follow(options.events || kind === 'OpsRun');
  } catch (error) {
    throw error instanceof RunledgerError ? new ApiFault(error.code, `The server: ${error.message}`) : error;
  } finally {
    screen.end();
    client.close();
  }
}

class Watch {
  private final: AnyRunState | null = null;
  private seq = 0;
  private readonly everythingShown = new AbortController();

  constructor(
    private readonly client: RunledgerClient,
    private readonly screen: Screen,
    private readonly kind: Kind,
    private readonly runId: string,
  ) {}

  async follow(showsLedger: boolean): Promise<number> {
    await Promise.all([this.followStates(), ...(showsLedger ? [this.followLedger()] : [])]);
    this.screen.showEnd(this.final!);
    return exitCodeOf(this.kind, this.final!);
  }

  private async followStates(): Promise<void> {
    let newest: AnyRunState | null = null;
    for await (const run of VIEWS[this.kind].follow(this.client, this.runId)) {
      this.screen.showState(run);
      newest = run;
    }
    this.final = newest;
    this.endIfShown();
  }

  private async followLedger(): Promise<void> {
    const { signal } = this.everythingShown;
    while (!signal.aborted) {
      try {
        for await (const line of this.client.runEvents(this.runId, { signal, after: this.seq })) {
          this.seq = line.seq;
          this.screen.showLine(line);
          this.endIfShown();
        }
        return;
      } catch (error) {
        if (!signal.aborted) this.skipPruned(error);
      }
    }
  }

  /** Retention may delete lines before they are shown, also all that there are. */
  private skipPruned(error: unknown): void {
    const prunedSeq = error instanceof RunledgerError ? error.details?.['prunedSeq'] : undefined;
    if (typeof prunedSeq !== 'number' || prunedSeq <= this.seq) throw error;
    this.screen.note(`Lines ${this.seq + 1} to ${prunedSeq} of the ledger were deleted by retention`);
    this.seq = prunedSeq;
    this.endIfShown();
  }

  private endIfShown(): void {
    if (this.final !== null && this.seq >= this.final.lastSeq) this.everythingShown.abort();
  }
}
