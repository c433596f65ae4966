// One who watches all runs of a tenant, or those of a kind or a project. Invariant: it holds the newest state of
// each run that it has not taken, never a history, and one that lets too many pile up is sent away. Called by
// run-states and run-state.

import { AppError } from '../errors.js';
import type { RunFilter } from '../store/run.js';
import { FeedIterator } from './feed-iterator.js';
import type { RunRow } from './run-row.js';

export class Board extends FeedIterator<RunRow> {
  private readonly unread = new Map<string, RunRow>();
  /** By the object that a run is for as long as it stays as it is. */
  private readonly shown = new WeakSet<RunRow>();

  constructor(
    readonly filter: RunFilter,
    private readonly maxUnread: number,
    private readonly onLeave: () => void,
  ) {
    super();
  }

  push(row: RunRow, state: RunRow): void {
    if (!this.fits(row) || this.shown.has(state)) return;
    this.shown.add(state);
    // The newest state of a run takes the place of one that was not read in time.
    this.unread.set(row.run.id, row);
    if (this.unread.size <= this.maxUnread) return this.wake();
    this.fail(
      new AppError(
        'RATE_LIMITED',
        `More than ${this.maxUnread} changed runs were left unread; list the runs and subscribe again.`,
        { details: { subscribeAgain: true } },
      ),
    );
  }

  protected take(): RunRow | null {
    for (const [id, row] of this.unread) {
      this.unread.delete(id);
      return row;
    }
    return null;
  }

  protected leave(): void {
    this.unread.clear();
    this.onLeave();
  }

  private fits({ kind, run }: RunRow): boolean {
    const { filter } = this;
    return (filter.kind ?? kind) === kind && (filter.projectId ?? run.projectId) === run.projectId;
  }
}
