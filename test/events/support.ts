// A feed on a real database, writers that add to ledgers while it is read, and ways to cut its connection.
import { pino } from 'pino';
import { afterEach } from 'vitest';
import { RunFeed, type FeedOptions } from '../../src/events/feed.js';
import { BellListener } from '../../src/events/listener.js';
import { appendRunLines, type RunEventRow } from '../../src/store/ledger.js';
import type { Database } from '../../src/store/db.js';
import type { RunHead } from '../../src/store/run.js';

export const silentLog = pino({ level: 'silent' });

export interface Live {
  readonly listener: BellListener;
  readonly feed: RunFeed;
  stop(): Promise<void>;
}

export async function startFeed(
  { db, url }: { readonly db: Database; readonly url: string },
  options: Partial<FeedOptions> = {},
): Promise<Live> {
  const listener = await BellListener.start({ url, log: silentLog, retryMs: 10 });
  const feed = new RunFeed(db, listener, { log: silentLog, ...options });
  const stop = async (): Promise<void> => {
    feed.stop();
    await listener.stop();
  };
  return { listener, feed, stop };
}

type Start = (options?: Partial<FeedOptions>) => Promise<Live>;

/** Answers how a test file starts feeds on its database. What a test leaves open is stopped after it. */
export function useFeeds(database: () => Parameters<typeof startFeed>[0]): Start {
  const open: Live[] = [];
  afterEach(async () => {
    await Promise.all(open.splice(0).map((live) => live.stop()));
  });
  return async (options) => {
    const live = await startFeed(database(), options);
    open.push(live);
    return live;
  };
}

/** A listener that hears what it is told to. */
export class FakeListener {
  ring: (head: RunHead) => void = () => {};
  reconnect: () => void = () => {};

  onBell(handle: (head: RunHead) => void): () => void {
    this.ring = handle;
    return () => {};
  }

  onReconnect(handle: () => void): () => void {
    this.reconnect = handle;
    return () => {};
  }
}

/** Appends `count` numbered lines, in transactions of 1 to 5 of them. */
export async function appendLines(db: Database, runId: string, count: number): Promise<void> {
  for (let written = 0; written < count;) {
    const size = Math.min(1 + (written % 5), count - written);
    await append(
      db,
      runId,
      Array.from({ length: size }, (_, index) => `line ${written + index}`),
    );
    written += size;
  }
}

/** The line by which readers know that no more will be written. */
export const appendEnd = (db: Database, runId: string): Promise<void> => append(db, runId, ['end']);

function append(db: Database, runId: string, messages: readonly string[]): Promise<void> {
  const lines = messages.map((message) => ({ type: 'log', level: 'INFO' as const, message, payload: {} }));
  return db.transaction('writer', (connection) => appendRunLines(connection, 'RULE', runId, lines));
}

export async function ledgerSeqs(db: Database, runId: string): Promise<number[]> {
  const rows = await db.query<{ seq: number }>('SELECT seq FROM run_event WHERE run_id = $1 ORDER BY seq', [
    runId,
  ]);
  return rows.map(({ seq }) => seq);
}

/** The seqs of all lines up to the end line. */
export async function readToEnd(events: AsyncIterableIterator<RunEventRow>): Promise<number[]> {
  const seqs: number[] = [];
  for await (const { seq, message } of events) {
    seqs.push(seq);
    if (message === 'end') return seqs;
  }
  throw new Error(`ended after ${seqs.at(-1)}`);
}

export async function take<T>(iterator: AsyncIterator<T>): Promise<T> {
  const { value, done } = await iterator.next();
  if (done) throw new Error('ended');
  return value;
}

/** Cuts every LISTEN connection to the database; answers how many there were. */
export async function cutListeners(db: Database): Promise<number> {
  const rows = await db.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'runledger-listener'`,
  );
  return rows.length;
}
