// One run as those who look at it see it: its newest row, where its reads stand, and who may be shown what.
// Invariants: nobody is shown a row that was read before they came, or one older than they have seen; whoever
// comes is shown the run as soon as it is read, and changes after that no more often than the interval allows;
// boards are told of news, and not of a read that somebody else's coming took. Called by run-states.

import { isDeepStrictEqual } from 'node:util';
import type { RunHead } from '../store/run.js';
import type { Board } from './board.js';
import { FeedIterator } from './feed-iterator.js';
import type { RunRow } from './run-row.js';

export type RunName = Pick<RunHead, 'kind' | 'id' | 'tenantId'>;

export class RunState {
  readonly watchers = new Set<Watcher>();
  /** Boards that have just come, each with the first read that it may be shown. */
  private readonly guests = new Map<Board, number>();
  /** The same object for as long as the run stays as it is. */
  current: RunRow | null = null;
  /** The same state as it was read last: for who comes, as what hangs on a run may differ by now. */
  newest: RunRow | null = null;
  /** Counts the rows that differ. */
  version = 0;
  /** The newest of them that is shown to all. */
  shownVersion = 0;
  private readsBegun = 0;
  readsEnded = 0;
  /** When all may be shown something again. */
  nextShowAt = 0;
  /** A read is to begin after this moment. */
  marked = false;
  /** Somebody has come: it is to begin at once. */
  isAwaited = false;
  /** It will begin in the next turn of the event loop. */
  queued = false;
  timer: NodeJS.Timeout | undefined;
  /** A bell rang that boards have not been told of yet. */
  private hasNews = false;
  private readHasNews = false;

  constructor(readonly run: RunName) {}

  get reading(): boolean {
    return this.readsEnded < this.readsBegun;
  }

  /** The first that begins after this moment. */
  get nextRead(): number {
    return this.readsBegun + 1;
  }

  hear(): void {
    this.hasNews = true;
    this.marked = true;
  }

  admit(newcomer: Watcher | Board): void {
    if (newcomer instanceof Watcher) this.watchers.add(newcomer);
    else this.guests.set(newcomer, this.nextRead);
    this.isAwaited = true;
    this.marked = true;
  }

  beginRead(): void {
    this.readHasNews = this.hasNews;
    this.hasNews = this.marked = this.isAwaited = this.queued = false;
    this.readsBegun += 1;
  }

  endRead(row: RunRow | null, boards: Iterable<Board>, intervalMs: number): void {
    this.readsEnded = this.readsBegun;
    if (row !== null) this.keep(row);
    this.receiveGuests();
    const now = performance.now();
    if (now >= this.nextShowAt) {
      if (this.shownVersion < this.version) this.nextShowAt = now + intervalMs;
      this.showAll(boards);
    } else if (this.readHasNews || this.shownVersion < this.version) {
      this.hasNews ||= this.readHasNews;
      this.marked = true;
    }
    for (const watcher of this.watchers) watcher.wakeIfShown();
  }

  fail(error: Error, boards: Iterable<Board>): void {
    this.readsEnded = this.readsBegun;
    // What boards were to be told of is lost to them, and they must know.
    const told = this.readHasNews ? boards : this.guests.keys();
    for (const each of [...told, ...this.watchers]) each.fail(error);
    this.guests.clear();
  }

  private receiveGuests(): void {
    for (const [board, firstRead] of this.guests) {
      if (this.readsEnded < firstRead) continue;
      this.guests.delete(board);
      this.showTo(board);
    }
  }

  private showAll(boards: Iterable<Board>): void {
    this.shownVersion = this.version;
    if (this.readHasNews) for (const board of boards) this.showTo(board);
  }

  private showTo(board: Board): void {
    if (this.current && this.newest) board.push(this.newest, this.current);
  }

  private keep(row: RunRow): void {
    if (this.current !== null && row.run.lastSeq < this.current.run.lastSeq) return;
    this.newest = row;
    if (isDeepStrictEqual(row, this.current)) return;
    this.current = row;
    this.version += 1;
  }
}

/** One who watches this run alone. */
export class Watcher extends FeedIterator<RunRow> {
  private seen = 0;
  private readonly firstRead: number;

  constructor(
    private readonly state: RunState,
    private readonly onLeave: () => void,
  ) {
    super();
    // What was read before it came may be older than what its client knows already.
    this.firstRead = state.nextRead;
  }

  /** When somebody comes, those who are here already are many, and not concerned. */
  wakeIfShown(): void {
    if (this.isShown) this.wake();
  }

  protected take(): RunRow | null {
    if (!this.isShown) return null;
    const isFirst = this.seen === 0;
    this.seen = this.state.version;
    return isFirst ? this.state.newest : this.state.current;
  }

  private get isShown(): boolean {
    const { seen, state } = this;
    if (seen > 0) return state.shownVersion > seen;
    return state.readsEnded >= this.firstRead && state.version > 0;
  }

  protected leave(): void {
    this.state.watchers.delete(this);
    this.onLeave();
  }
}
