// Runs as they are now, for those who watch one run or a whole tenant's. A run with news is read once for
// everybody, at most once per interval, and whatever happened meanwhile is in the next read: the final state
// always comes, the ones between may not. Invariants: reads of one run never overlap, so no state is older
// than the one before; a subscriber holds the newest state it has not taken, never a history. Rows are shared
// within a tenant, never across. Called by feed.

import { isDeepStrictEqual } from 'node:util';
import { AppError } from '../errors.js';
import type { RunKind } from '../domain/run.js';
import type { RunHead } from '../store/run.js';
import { FeedIterator } from './feed-iterator.js';
import { whenAvailable } from './patience.js';
import type { RunRow } from './run-row.js';

export type FindRows = (
  tenantId: string,
  kind: RunKind,
  ids: readonly string[],
) => Promise<ReadonlyMap<string, RunRow>>;

export interface BoardFilter {
  readonly kind?: RunKind | null;
  readonly projectId?: string | null;
}

export type RunName = Pick<RunHead, 'kind' | 'id' | 'tenantId'>;

export interface StateOptions {
  /** Least time between two reads of a run. */
  readonly intervalMs: number;
  /** Changed runs that a board's subscriber may leave unread. */
  readonly maxUnreadRuns: number;
}

/** Rows read at once. Also what a board is handed at once, so well below what it may leave unread. */
const ROWS_PER_READ = 250;

export class RunStates {
  private readonly states = new Map<string, RunState>();
  private readonly boards = new Map<string, Set<Board>>();
  private due: RunState[] = [];
  private stopped = false;

  constructor(
    private readonly findRows: FindRows,
    private readonly options: StateOptions,
  ) {}

  /** The run as it is at this moment, then as it becomes. */
  watch(run: RunName): FeedIterator<RunRow> {
    const state = this.stateOf(run);
    const watcher = new Watcher(state, () => this.settle(state));
    state.watchers.add(watcher);
    this.mark(state);
    return watcher;
  }

  /** Every run of the tenant that changes from now on. */
  board(tenantId: string, filter: BoardFilter): FeedIterator<RunRow> {
    const boards = this.boards.get(tenantId) ?? new Set<Board>();
    this.boards.set(tenantId, boards);
    const board = new Board(filter, this.options.maxUnreadRuns, () => {
      boards.delete(board);
      if (boards.size === 0) this.boards.delete(tenantId);
    });
    boards.add(board);
    return board;
  }

  hear(run: RunName): void {
    if (this.states.has(run.id) || this.boards.has(run.tenantId)) this.mark(this.stateOf(run));
  }

  boardTenants(): string[] {
    return [...this.boards.keys()];
  }

  /** The newest seq shown of each run that somebody watches by itself. */
  watched(): Map<string, number> {
    const watched = [...this.states.values()].filter(({ watchers }) => watchers.size > 0);
    return new Map(watched.map(({ run, current }) => [run.id, current?.run.lastSeq ?? 0]));
  }

  stop(): void {
    this.stopped = true;
    const error = new AppError('UNAVAILABLE', 'The server is stopping; subscribe again.');
    for (const state of this.states.values()) {
      clearTimeout(state.timer);
      for (const watcher of state.watchers) watcher.fail(error);
    }
    for (const boards of this.boards.values()) for (const board of boards) board.fail(error);
  }

  private stateOf(run: RunName): RunState {
    const state = this.states.get(run.id) ?? new RunState(run);
    this.states.set(run.id, state);
    return state;
  }

  /** Sees to it that a read begins after this moment, and no sooner than the interval allows. */
  private mark(state: RunState): void {
    if (state.marked) return;
    state.marked = true;
    if (!state.reading) this.arm(state);
  }

  private arm(state: RunState): void {
    clearTimeout(state.timer);
    const wait = state.nextReadAt - performance.now();
    if (wait > 0) state.timer = setTimeout(() => this.enqueue(state), wait);
    else this.enqueue(state);
  }

  /** Runs that fall due in the same turn of the event loop are read together. */
  private enqueue(state: RunState): void {
    if (this.due.length === 0) setImmediate(() => this.readDue());
    this.due.push(state);
  }

  private readDue(): void {
    const groups = new Map<string, RunState[]>();
    for (const state of this.due) {
      const key = `${state.run.kind} ${state.run.tenantId}`;
      const group = groups.get(key) ?? [];
      groups.set(key, group);
      group.push(state);
    }
    this.due = [];
    for (const group of groups.values()) {
      while (group.length > 0) void this.readGroup(group.splice(0, ROWS_PER_READ));
    }
  }

  private async readGroup(group: readonly RunState[]): Promise<void> {
    const { kind, tenantId } = group[0]!.run;
    for (const state of group) state.beginRead(performance.now() + this.options.intervalMs);
    try {
      const rows = await whenAvailable(
        () =>
          this.findRows(
            tenantId,
            kind,
            group.map(({ run }) => run.id),
          ),
        () => !this.stopped,
      );
      for (const state of group) this.show(state, rows.get(state.run.id) ?? null);
    } catch (error) {
      const fault = error instanceof Error ? error : new Error(String(error));
      for (const state of group) state.fail(fault);
    }
    for (const state of group) this.settle(state);
  }

  private show(state: RunState, row: RunRow | null): void {
    if (!state.endRead(row) || row === null) return;
    for (const board of this.boards.get(state.run.tenantId) ?? []) board.push(row);
  }

  /** What comes after a read, or after a watcher has left. */
  private settle(state: RunState): void {
    if (state.reading || this.stopped) return;
    if (state.marked) return this.arm(state);
    if (state.watchers.size > 0) return;
    // It is kept until it may be read again, or a board would see it more often than it should.
    clearTimeout(state.timer);
    const wait = state.nextReadAt - performance.now();
    if (wait > 0) state.timer = setTimeout(() => this.settle(state), wait);
    else this.states.delete(state.run.id);
  }
}

/** One run: its newest row, and where its reads stand. */
class RunState {
  readonly watchers = new Set<Watcher>();
  current: RunRow | null = null;
  /** Counts the states shown. */
  version = 0;
  readsBegun = 0;
  readsEnded = 0;
  nextReadAt = 0;
  marked = false;
  timer: NodeJS.Timeout | undefined;

  constructor(readonly run: RunName) {}

  get reading(): boolean {
    return this.readsEnded < this.readsBegun;
  }

  beginRead(nextReadAt: number): void {
    this.nextReadAt = nextReadAt;
    this.marked = false;
    this.readsBegun += 1;
  }

  /** Answers whether there is a new state. */
  endRead(row: RunRow | null): boolean {
    this.readsEnded = this.readsBegun;
    const isNew = row !== null && this.isNewer(row);
    if (isNew) {
      this.current = row;
      this.version += 1;
    }
    for (const watcher of this.watchers) watcher.wake();
    return isNew;
  }

  fail(error: Error): void {
    this.readsEnded = this.readsBegun;
    for (const watcher of this.watchers) watcher.fail(error);
  }

  private isNewer(row: RunRow): boolean {
    if (this.current === null) return true;
    const difference = row.run.lastSeq - this.current.run.lastSeq;
    return difference > 0 || (difference === 0 && !isDeepStrictEqual(row, this.current));
  }
}

class Watcher extends FeedIterator<RunRow> {
  private seen = 0;
  private readonly firstRead: number;

  constructor(
    private readonly state: RunState,
    private readonly onLeave: () => void,
  ) {
    super();
    // What was read before it came may be older than what its client knows already.
    this.firstRead = state.readsBegun + 1;
  }

  protected take(): RunRow | null {
    const { state } = this;
    if (state.readsEnded < this.firstRead || state.version === this.seen) return null;
    this.seen = state.version;
    return state.current;
  }

  protected leave(): void {
    this.state.watchers.delete(this);
    this.onLeave();
  }
}

class Board extends FeedIterator<RunRow> {
  private readonly unread = new Map<string, RunRow>();

  constructor(
    private readonly filter: BoardFilter,
    private readonly maxUnread: number,
    private readonly onLeave: () => void,
  ) {
    super();
  }

  push(row: RunRow): void {
    if (!this.fits(row)) return;
    // The newest state of a run takes the place of one that was not read in time.
    this.unread.set(row.run.id, row);
    if (this.unread.size <= this.maxUnread) return this.wake();
    this.fail(
      new AppError(
        'LIMIT_EXCEEDED',
        `More than ${this.maxUnread} changed runs were left unread; list the runs and subscribe again.`,
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
