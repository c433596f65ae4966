// Watching one run until it comes to rest: its states as they change, and its ledger line by line where that is
// asked for. Ends when the run has ended and everything up to its last line was shown.

import { ApiFault, type Api } from '../api.js';
import { findKind, type Kind } from '../run-kind.js';
import { LiveConnection } from './live.js';
import { Screen, type LedgerLine } from './screen.js';
import { exitCodeOf, VIEWS, type RunState } from './run-state.js';

export interface WatchOptions {
  /** One JSON object per line, for programs. */
  readonly json: boolean;
  /** The ledger, also of a run that has a progress bar. */
  readonly events: boolean;
}

const EVENTS = `subscription Events($runId: ID!, $after: Int) {
  runEvents(runId: $runId, after: $after) { seq type level message payload actor createdAt } }`;

/** Answers the exit code that fits the run's outcome. */
export async function watchRun(api: Api, runId: string, options: WatchOptions): Promise<number> {
  const kind = await findKind(api, runId);
  if (kind === null) throw new ApiFault('NOT_FOUND', `There is no run ${runId}.`, null, true);
  const screen = new Screen(kind, options.json);
  const leaving = new AbortController();
  const live = new LiveConnection(api, leaving.signal, ({ message }) =>
    screen.note(`${message}; trying again`),
  );
  try {
    const showsLedger = options.events || kind === 'OpsRun';
    return await new Watch(live, screen, kind, runId).follow(showsLedger);
  } finally {
    leaving.abort();
    screen.end();
    await live.close();
  }
}

class Watch {
  private final: RunState | null = null;
  private seq = 0;
  private allShown: () => void = () => {};

  constructor(
    private readonly live: LiveConnection,
    private readonly screen: Screen,
    private readonly kind: Kind,
    private readonly runId: string,
  ) {}

  async follow(showsLedger: boolean): Promise<number> {
    const lines = showsLedger ? this.followLedger() : null;
    const states = this.followStates();
    // What the end of the watch cuts off is nobody's fault.
    for (const each of [lines, states]) each?.catch(() => {});
    // Whichever is refused first ends the watch; both end by themselves otherwise.
    await Promise.race([Promise.all([states, this.ledgerShown(showsLedger)]), ...(lines ? [lines] : [])]);
    await states;
    this.screen.showEnd(this.final!);
    return exitCodeOf(this.kind, this.final!)!;
  }

  private followStates(): Promise<void> {
    const { subscription, fields } = VIEWS[this.kind];
    return this.live.follow<Record<string, RunState>>(
      `subscription Progress($runId: ID!) { ${subscription}(runId: $runId) { ${fields} } }`,
      () => ({ runId: this.runId }),
      (data) => {
        const run = data[subscription]!;
        this.screen.showState(run);
        if (exitCodeOf(this.kind, run) === null) return false;
        this.final = run;
        this.checkShown();
        return true;
      },
    );
  }

  private followLedger(): Promise<void> {
    return this.live.follow<{ runEvents: LedgerLine }>(
      EVENTS,
      () => ({ runId: this.runId, after: this.seq }),
      ({ runEvents: line }) => {
        this.seq = line.seq;
        this.screen.showLine(line);
        return this.checkShown();
      },
    );
  }

  private ledgerShown(showsLedger: boolean): Promise<void> {
    return showsLedger ? new Promise((resolve) => (this.allShown = resolve)) : Promise.resolve();
  }

  private checkShown(): boolean {
    if (this.final === null || this.seq < this.final.lastSeq) return false;
    this.allShown();
    return true;
  }
}
