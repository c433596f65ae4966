// One run's ledger as its subscribers read it. The ledger itself is the queue: a subscriber is a cursor, and
// reads on from there a page at a time. Subscribers at the same place share the page, and so the very same
// row objects. Invariants: each gets every line after its cursor once and in order; a slow one holds one page
// and slows nobody; once all have come to the end, nothing is kept. Called by feed.

import type { LedgerPage, RunEventRow } from '../store/ledger.js';
import type { RunHead } from '../store/run.js';
import { AppError } from '../errors.js';
import { FeedIterator } from './feed-iterator.js';
import { whenAvailable } from './patience.js';

/** What a reader is told whose lines retention has deleted: to go on as if there were none would be a lie. */
export function prunedLedger(prunedSeq: number, lastSeq: number): AppError {
  return new AppError(
    'BAD_USER_INPUT',
    `The run's ledger was pruned: its lines up to ${prunedSeq} are deleted. Subscribe with after: ${prunedSeq}.`,
    { field: ['after'], details: { prunedSeq, lastSeq } },
  );
}

export interface LogReads {
  /** The lines after a seq, in order, as many as are read at once. */
  readPage(after: number): Promise<LedgerPage>;
  /** Where the run stands now; null when it is gone. */
  readHead(): Promise<RunHead | null>;
}

interface KeptPage {
  readonly after: number;
  readonly rows: readonly RunEventRow[];
  /** Whoever has read the page has all up to here. */
  readonly upTo: number;
}

/** Enough for followers that are a little apart, and for a crowd that replays at about the same time. */
const PAGES_KEPT = 4;

export class RunLog {
  private readonly readers = new Set<LedgerReader>();
  private readonly loading = new Set<number>();
  private pages: readonly KeptPage[] = [];
  /** Readers that have not come to the end since there last was something new. */
  private readonly behind = new Set<LedgerReader>();
  /** The highest seq that is known to exist. */
  private newest: number;
  /** Until a read has reached the end, a line may have come, and its bell gone by, that nobody knows of. */
  private isKnown = false;

  constructor(
    head: RunHead,
    private readonly reads: LogReads,
    private readonly onEmpty: () => void,
  ) {
    this.newest = head.seq;
  }

  get lastSeq(): number {
    return this.newest;
  }

  read(after: number): LedgerReader {
    const reader = new LedgerReader(this, after);
    this.readers.add(reader);
    this.behind.add(reader);
    return reader;
  }

  /** There are lines up to `seq`. */
  hear(seq: number): void {
    if (seq <= this.newest) return;
    this.newest = seq;
    for (const reader of this.readers) this.rouse(reader);
  }

  /** The page that a reader reads next, if it is at hand; otherwise it is on its way, or there is none yet. */
  pageFor(reader: LedgerReader): KeptPage | null {
    const { cursor } = reader;
    const page = this.pages.find(({ after, upTo }) => after <= cursor && cursor < upTo);
    if (page) return page;
    if (cursor < this.newest || !this.isKnown) void this.load(cursor);
    else this.atEnd(reader);
    return null;
  }

  remove(reader: LedgerReader): void {
    this.readers.delete(reader);
    this.atEnd(reader);
    if (this.readers.size === 0) this.onEmpty();
  }

  close(): void {
    for (const reader of this.readers) {
      reader.fail(
        new AppError('UNAVAILABLE', `The server is stopping; subscribe again with after: ${reader.cursor}.`, {
          details: { after: reader.cursor },
        }),
      );
    }
  }

  private rouse(reader: LedgerReader): void {
    this.behind.add(reader);
    reader.wake();
  }

  /** What all have read nobody asks for again: whoever comes later comes at the end, or replays from anywhere. */
  private atEnd(reader: LedgerReader): void {
    this.behind.delete(reader);
    if (this.behind.size === 0) this.pages = [];
  }

  private async load(after: number): Promise<void> {
    if (this.loading.has(after)) return;
    this.loading.add(after);
    let found = after;
    try {
      const { rows, isLast } = await this.ask(() => this.reads.readPage(after));
      this.isKnown ||= isLast;
      await this.assertWhole(after, rows);
      found = rows.at(-1)?.seq ?? after;
      this.newest = Math.max(this.newest, found);
      this.pages = [{ after, rows, upTo: found }, ...this.pages].slice(0, PAGES_KEPT);
    } catch (error) {
      this.failAt(after, error);
    } finally {
      this.loading.delete(after);
    }
    // The bell of a line that was found here has no news any more: whoever waits for it is woken now.
    for (const reader of this.readers) {
      if (reader.cursor === after || reader.cursor < found) this.rouse(reader);
    }
  }

  /** Numbers have no gap, and nobody rings before the line is there: what is missing was pruned, or never was. */
  private async assertWhole(after: number, rows: readonly RunEventRow[]): Promise<void> {
    const { newest } = this;
    const first = rows[0]?.seq ?? newest + 1;
    if (first <= after + 1) return;
    const head = await this.ask(() => this.reads.readHead());
    if (head === null || rows.length > 0) throw prunedLedger(first - 1, head?.seq ?? newest);
    if ((head.prunedSeq ?? 0) > after) throw prunedLedger(head.prunedSeq!, head.seq);
    // Anybody who can connect may ring. Bells of lines that are there may have seemed old beside that one.
    if (this.newest === newest) this.newest = Math.max(head.seq, after);
    this.isKnown = false;
  }

  private ask<T>(work: () => Promise<T>): Promise<T> {
    return whenAvailable(work, () => this.readers.size > 0);
  }

  private failAt(cursor: number, error: unknown): void {
    const fault = error instanceof Error ? error : new Error(String(error));
    for (const reader of this.readers) if (reader.cursor === cursor) reader.fail(fault);
  }
}

class LedgerReader extends FeedIterator<RunEventRow> {
  private page: KeptPage | null = null;
  private index = 0;

  constructor(
    private readonly log: RunLog,
    public cursor: number,
  ) {
    super();
  }

  protected take(): RunEventRow | null {
    for (;;) {
      const row = this.page?.rows[this.index];
      if (row) {
        this.index += 1;
        this.cursor = row.seq;
        return row;
      }
      if (this.page) this.cursor = Math.max(this.cursor, this.page.upTo);
      this.page = this.log.pageFor(this);
      if (!this.page) return null;
      this.index = this.page.rows.findIndex(({ seq }) => seq > this.cursor);
      if (this.index < 0) this.index = this.page.rows.length;
    }
  }

  protected leave(): void {
    this.page = null;
    this.log.remove(this);
  }
}
