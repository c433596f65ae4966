// Runs as they are now, for those who watch one run or a whole tenant's. A run with news is read once for
// everybody, and whatever happened meanwhile is in the next read: the final state always comes, the ones between
// may not. Invariants: reads of one run never overlap, so no state is older than the one before; rows are shared
// within a tenant, never across. Called by feed.

import { AppError } from '../errors.js';
import type { RunKind } from '../domain/run.js';
import type { RunFilter } from '../store/run.js';
import { Board } from './board.js';
import type { FeedIterator } from './feed-iterator.js';
import { whenAvailable } from './patience.js';
import type { RunRow } from './run-row.js';
import { RunState, Watcher, type RunName } from './run-state.js';
import { SharedReads } from './shared-reads.js';

export interface RunReads {
  findRows(tenantId: string, kind: RunKind, ids: readonly string[]): Promise<ReadonlyMap<string, RunRow>>;
  /** The newest runs that have not ended. */
  findActive(tenantId: string, filter: RunFilter, most: number): Promise<readonly RunName[]>;
}

export interface StateOptions {
  /** Least time between two states of a run. */
  readonly intervalMs: number;
  /** Changed runs that a board's subscriber may leave unread. */
  readonly maxUnreadRuns: number;
}

/** Rows read at once. Also what a board is handed at once, so well below what it may leave unread. */
const ROWS_PER_READ = 250;
/** Runs under way that a board is shown when it comes. */
const MOST_AT_FIRST = 100;
/** How long a run that nobody watches is remembered: a late bell is then no news to a board. */
const REMEMBERED_MS = 5_000;

export class RunStates {
  private readonly states = new Map<string, RunState>();
  private readonly boards = new Map<string, Set<Board>>();
  private readonly active = new SharedReads<readonly RunName[]>();
  private due: RunState[] = [];
  private stopped = false;

  constructor(
    private readonly reads: RunReads,
    private readonly options: StateOptions,
  ) {}

  /** The run as it is at this moment, then as it becomes. */
  watch(run: RunName): FeedIterator<RunRow> {
    const state = this.stateOf(run);
    const watcher = new Watcher(state, () => this.settle(state));
    state.admit(watcher);
    this.settle(state);
    return watcher;
  }

  /** The runs of the tenant that are under way, then every one that changes. */
  board(tenantId: string, filter: RunFilter): FeedIterator<RunRow> {
    const boards = this.boards.get(tenantId) ?? new Set<Board>();
    this.boards.set(tenantId, boards);
    const board = new Board(filter, this.options.maxUnreadRuns, () => {
      boards.delete(board);
      if (boards.size === 0) this.boards.delete(tenantId);
    });
    boards.add(board);
    void this.showActive(tenantId, board);
    return board;
  }

  hear(run: RunName): void {
    const isWatched = (this.states.get(keyOf(run))?.watchers.size ?? 0) > 0;
    if (!isWatched && !this.boards.has(run.tenantId)) return;
    const state = this.stateOf(run);
    state.hear();
    this.settle(state);
  }

  /** Reads every run that is watched by itself: what is shown of it may change without a line of its ledger. */
  readAgain(): void {
    for (const state of this.states.values()) {
      if (state.watchers.size === 0) continue;
      state.marked = true;
      this.settle(state);
    }
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

  private async showActive(tenantId: string, board: Board): Promise<void> {
    try {
      const { filter } = board;
      const key = JSON.stringify([tenantId, filter.kind ?? null, filter.projectId ?? null]);
      // It costs the more, the more runs are under way, and after a restart all boards come at once.
      const runs = await this.active.read(key, () =>
        this.ask(() => this.reads.findActive(tenantId, filter, MOST_AT_FIRST)),
      );
      for (const run of runs) {
        const state = this.stateOf(run);
        state.admit(board);
        this.settle(state);
      }
    } catch (error) {
      board.fail(asError(error));
    }
  }

  private stateOf(run: RunName): RunState {
    const key = keyOf(run);
    const state = this.states.get(key) ?? new RunState(run);
    this.states.set(key, state);
    return state;
  }

  /** Sees to what comes next for a run: a read, at once or as soon as the interval allows, or to be forgotten. */
  private settle(state: RunState): void {
    if (state.reading || state.queued || this.stopped) return;
    clearTimeout(state.timer);
    if (state.marked) {
      const wait = state.isAwaited ? 0 : state.nextShowAt - performance.now();
      if (wait > 0) state.timer = setTimeout(() => this.enqueue(state), wait);
      else this.enqueue(state);
    } else if (state.watchers.size === 0) {
      state.timer = setTimeout(() => this.states.delete(keyOf(state.run)), REMEMBERED_MS).unref();
    }
  }

  /** Runs that fall due in the same turn of the event loop are read together. */
  private enqueue(state: RunState): void {
    state.queued = true;
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
    for (const state of group) state.beginRead();
    const ids = group.map(({ run }) => run.id);
    // Whoever comes while it is read has perhaps seen newer rows, and has a read of their own.
    const boards = [...(this.boards.get(tenantId) ?? [])];
    try {
      const rows = await this.ask(() => this.reads.findRows(tenantId, kind, ids));
      for (const state of group) {
        state.endRead(rows.get(state.run.id) ?? null, boards, this.options.intervalMs);
      }
    } catch (error) {
      for (const state of group) state.fail(asError(error), boards);
    }
    for (const state of group) this.settle(state);
  }

  private ask<T>(work: () => Promise<T>): Promise<T> {
    return whenAvailable(work, () => !this.stopped);
  }
}

/** All that a bell says of who a run is: one that is forged must not stand in the way of a true one. */
function keyOf({ kind, tenantId, id }: RunName): string {
  return `${kind} ${tenantId} ${id}`;
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
