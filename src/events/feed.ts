// What subscriptions are fed from. A bell only says where there is news; what is delivered is always read from
// the tables, so a bell that is lost costs time and no event: after the listener was away, and now and then in
// any case, the runs that somebody watches are asked where they stand. Everything is scoped to the viewer's
// tenant. Called by resolvers.

import type { Logger } from 'pino';
import { AppError } from '../errors.js';
import type { RunKind } from '../domain/run.js';
import type { Viewer } from '../domain/viewer.js';
import type { Database } from '../store/db.js';
import { readLedger, type RunEventRow } from '../store/ledger.js';
import {
  findRunHead,
  readActiveRuns,
  readRunHeads,
  readRunHeadsSince,
  type RunFilter,
  type RunHead,
} from '../store/run.js';
import { HeardBells } from './heard-bells.js';
import type { BellListener } from './listener.js';
import { DEFAULT_BACKSTOP_MS, whenAvailable } from './patience.js';
import { prunedLedger, RunLog } from './run-log.js';
import { findRunRows, type RunRow } from './run-row.js';
import { RunStates } from './run-states.js';

export interface FeedOptions {
  readonly log: Logger;
  /** Least time between two states of a run. */
  readonly progressIntervalMs?: number;
  /** Between looks for bells that were lost. */
  readonly backstopMs?: number;
  /** Ledger lines read at once. */
  readonly pageSize?: number;
  /** Changed runs that a board's subscriber may leave unread before it is sent away. */
  readonly maxUnreadRuns?: number;
  /** Lines are stamped before they are committed: one may be this much older than its bell. */
  readonly longestTransactionMs?: number;
}

const DEFAULT_PROGRESS_INTERVAL_MS = 100;
const DEFAULT_PAGE_SIZE = 100;
/** An ops run's lines may have 128 KiB each. */
const DEFAULT_PAGE_BYTES = 2 ** 20;
const DEFAULT_MAX_UNREAD_RUNS = 10_000;
const DEFAULT_LONGEST_TRANSACTION_MS = 30_000;

export class RunFeed {
  private readonly logs = new Map<string, RunLog>();
  private readonly states: RunStates;
  private readonly backstop: NodeJS.Timeout;
  private readonly bells: HeardBells;
  private readonly forget: readonly (() => void)[];
  private currentLook = Promise.resolve();
  private nextLook: Promise<void> | null = null;
  private stopped = false;
  /** Since when the listener was away, and boards may have missed something. */
  private awaySince = Infinity;

  constructor(
    private readonly db: Database,
    listener: Pick<BellListener, 'onBell' | 'onReconnect'>,
    private readonly options: FeedOptions,
  ) {
    const reads = {
      findRows: (tenantId: string, kind: RunKind, ids: readonly string[]) =>
        findRunRows(db, tenantId, kind, ids),
      findActive: (tenantId: string, filter: RunFilter, most: number) =>
        readActiveRuns(db, tenantId, filter, most),
    };
    this.states = new RunStates(reads, {
      intervalMs: options.progressIntervalMs ?? DEFAULT_PROGRESS_INTERVAL_MS,
      maxUnreadRuns: options.maxUnreadRuns ?? DEFAULT_MAX_UNREAD_RUNS,
    });
    // Twice: what was heard just before an absence is still known when the look after it comes late.
    this.bells = new HeardBells(2 * this.longestTransactionMs);
    this.forget = [
      listener.onBell((head) => this.hear(head)),
      listener.onReconnect(() => {
        // Kept now: by the time of the look, bells may have come in again.
        this.awaySince = Math.min(this.awaySince, this.bells.caughtUpAt);
        void this.lookAgain();
      }),
    ];
    this.backstop = setInterval(() => void this.lookAgain(), this.backstopMs);
    this.backstop.unref();
  }

  private get backstopMs(): number {
    return this.options.backstopMs ?? DEFAULT_BACKSTOP_MS;
  }

  private get longestTransactionMs(): number {
    return this.options.longestTransactionMs ?? DEFAULT_LONGEST_TRANSACTION_MS;
  }

  /** Every ledger line of the run after `after`: first those that are there, then each as it is written. */
  async runEvents(viewer: Viewer, runId: string, after: number): Promise<AsyncIterableIterator<RunEventRow>> {
    if (after < 0) throw badCursor(`after must be 0 or more, not ${after}.`, {});
    const head = await this.requireRun(viewer, runId);
    if (after > head.seq) {
      // Waiting for the ledger to get there would pass over the lines between without a word.
      const message = `after is ${after}, but the run's ledger ends at ${head.seq}.`;
      throw badCursor(message, { lastSeq: head.seq });
    }
    if (after < (head.prunedSeq ?? 0)) throw prunedLedger(head.prunedSeq!, head.seq);
    const log = this.logs.get(head.id) ?? this.openLog(head);
    log.hear(head.seq);
    return log.read(after);
  }

  /** The run as it is now, then again whenever it changes, and always as it ends up. */
  async runProgress(viewer: Viewer, kind: RunKind, runId: string): Promise<AsyncIterableIterator<RunRow>> {
    const run = await this.requireRun(viewer, runId);
    if (run.kind !== kind) throw unknownRun(runId);
    return this.states.watch(run);
  }

  /** The tenant's runs that are under way, as they are now, then any run that changes, as it is then. */
  runChanges(viewer: Viewer, filter: RunFilter): AsyncIterableIterator<RunRow> {
    this.assertRunning();
    return this.states.board(viewer.tenantId, filter);
  }

  /** Answers when all bells that may have been missed so far have been made up for. */
  lookAgain(): Promise<void> {
    // One that has begun may have asked too early for this caller; the next one serves all who wait for it.
    this.nextLook ??= this.currentLook.then(() => {
      this.nextLook = null;
      this.currentLook = this.findMissed();
      return this.currentLook;
    });
    return this.nextLook;
  }

  /** Ends every subscription, with the place to go on from. */
  stop(): void {
    this.stopped = true;
    clearInterval(this.backstop);
    for (const forget of this.forget) forget();
    for (const log of this.logs.values()) log.close();
    this.states.stop();
  }

  private async requireRun(viewer: Viewer, id: string): Promise<RunHead> {
    const head = await findRunHead(this.db, viewer, id);
    this.assertRunning();
    if (head === null) throw unknownRun(id);
    return head;
  }

  private assertRunning(): void {
    if (this.stopped) throw new AppError('UNAVAILABLE', 'The server is stopping; subscribe again.');
  }

  private openLog(head: RunHead): RunLog {
    const portion = { lines: this.options.pageSize ?? DEFAULT_PAGE_SIZE, bytes: DEFAULT_PAGE_BYTES };
    const reads = {
      readPage: (after: number) => readLedger(this.db, head, head.id, after, portion),
      readHead: async () => (await readRunHeads(this.db, [head.id]))[0] ?? null,
    };
    const log = new RunLog(head, reads, () => this.logs.delete(head.id));
    this.logs.set(head.id, log);
    return log;
  }

  private hear(head: RunHead): void {
    this.bells.note(head);
    this.logs.get(head.id)?.hear(head.seq);
    this.states.hear(head);
  }

  private async findMissed(): Promise<void> {
    try {
      await Promise.all([this.findMissedByRun(), this.findMissedByTenant()]);
    } catch (err) {
      this.options.log.error({ err }, 'lost bells could not be looked for');
    }
  }

  private async findMissedByRun(): Promise<void> {
    this.states.readAgain();
    const known = this.states.watched();
    for (const [id, log] of this.logs) known.set(id, Math.min(log.lastSeq, known.get(id) ?? Infinity));
    if (known.size === 0) return;
    const heads = await this.ask(() => readRunHeads(this.db, [...known.keys()]));
    for (const head of heads) if (head.seq > known.get(head.id)!) this.hear(head);
  }

  /** For boards: any run may be one that nobody here has heard of. */
  private async findMissedByTenant(): Promise<void> {
    const since = Math.min(this.awaySince, this.bells.caughtUpAt);
    const isAway = this.awaySince < Infinity;
    // While bells come in, none has been lost: the database delivers all of them, in order.
    if (!isAway && performance.now() - since < this.backstopMs) return;
    this.awaySince = Infinity;
    const tenantIds = this.states.boardTenants();
    let lookedAt = performance.now();
    const look = (): Promise<RunHead[]> => {
      lookedAt = performance.now();
      return readRunHeadsSince(this.db, tenantIds, lookedAt - since + this.longestTransactionMs);
    };
    try {
      const heads = tenantIds.length > 0 ? await this.ask(look) : [];
      for (const head of heads) if (this.bells.isNews(head)) this.hear(head);
      this.bells.catchUp(lookedAt);
    } catch (error) {
      this.awaySince = Math.min(this.awaySince, since);
      throw error;
    }
  }

  private ask<T>(work: () => Promise<T>): Promise<T> {
    return whenAvailable(work, () => !this.stopped);
  }
}

function unknownRun(id: string): AppError {
  return new AppError('NOT_FOUND', `Run ${id} was not found.`, { field: ['runId'] });
}

function badCursor(message: string, details: Record<string, unknown>): AppError {
  return new AppError('BAD_USER_INPUT', message, { field: ['after'], details });
}
