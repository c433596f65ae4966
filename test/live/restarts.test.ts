// runEvents while what it stands on goes away and comes back: the database restarted, the server killed or stopped, several
// servers at work. Every reader is sent exactly the ledger, whichever way it reads.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Database } from '../../src/store/db.js';
import { queueMix, waitForEnd } from '../app/mixed-run.js';
import { appendEnd, appendLines, ledgerSeqs } from '../events/support.js';
import { startApp } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRuleRun, seedWorld } from '../support/fixtures.js';
import { useServers } from '../support/servers.js';
import { OwnPostgres } from './own-postgres.js';
import { FOLLOW, WAYS, type Followed } from './readers.js';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

const spawnServer = useServers(() => database.url);

const API_ONLY = { RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' };

async function newRun(db: Database): Promise<string> {
  const { home } = await seedWorld(db);
  return (await makeRuleRun(db, home, { targets: [] })).id;
}

/** Writes until it is told to stop; a write that fails is tried again, and may then be there twice. */
class Writer {
  private stopping = false;
  private readonly done: Promise<void>;

  constructor(
    private readonly db: Database,
    private readonly runId: string,
  ) {
    this.done = this.write();
  }

  async stop(): Promise<void> {
    this.stopping = true;
    await this.done;
    await appendEnd(this.db, this.runId);
  }

  private async write(): Promise<void> {
    while (!this.stopping) await appendLines(this.db, this.runId, 5).catch(() => undefined);
  }
}

/** A reader of each kind, and how much they have read so far. */
class Readers {
  readonly all: Promise<Followed[]>;
  private readonly heard = WAYS.map(() => 0);
  private onHeard: () => void = () => {};

  constructor(url: string, runId: string) {
    const follow = (way: (typeof WAYS)[number], index: number): Promise<Followed> => {
      const onLine = (): void => {
        this.heard[index]! += 1;
        this.onHeard();
      };
      return FOLLOW[way](url, runId, { onLine });
    };
    this.all = Promise.all(WAYS.map(follow));
  }

  /** Answers when each of them has read so many more lines. */
  async hear(lines: number): Promise<void> {
    const wanted = this.heard.map((before) => before + lines);
    while (this.heard.some((heard, index) => heard < wanted[index]!)) {
      await new Promise<void>((resolve) => (this.onHeard = resolve));
    }
  }
}

test('the database is restarted under write load', async () => {
  const postgres = await OwnPostgres.start();
  const db = new Database({ url: postgres.url });
  const app = await startApp(postgres.url, { ...API_ONLY, RUNLEDGER_LOG_LEVEL: 'silent' });
  try {
    const runId = await newRun(db);
    const readers = new Readers(app.url!, runId);
    const writer = new Writer(db, runId);
    for (let round = 0; round < 3; round += 1) {
      await readers.hear(100);
      await postgres.restart();
    }
    await readers.hear(100);
    await writer.stop();
    const ledger = await ledgerSeqs(db, runId);
    // The server keeps its clients through all of it.
    for (const followed of await readers.all) expect(followed).toEqual({ seqs: ledger, connections: 1 });
  } finally {
    await app.stop();
    await db.close();
    await postgres.remove();
  }
}, 120_000);

test('the server is killed, and stopped, under write load, and started again at the same address', async () => {
  let server = await spawnServer(API_ONLY);
  const { url } = server;
  const runId = await newRun(database.db);
  const readers = new Readers(url, runId);
  const writer = new Writer(database.db, runId);
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    await readers.hear(100);
    await server.end(signal);
    server = await spawnServer({ ...API_ONLY, PORT: new URL(url).port });
  }
  await readers.hear(100);
  await writer.stop();
  const ledger = await ledgerSeqs(database.db, runId);
  for (const { seqs, connections } of await readers.all) {
    expect(seqs).toEqual(ledger);
    expect(connections).toBeGreaterThan(2);
  }
}, 120_000);

test('two servers work on one run, and readers of both, and such as move between them, are sent the same', async () => {
  const [first, second] = await Promise.all([spawnServer(), spawnServer()]);
  const runId = await queueMix(first.url, { total: 600, ofEachFault: 2, hanging: 0 });
  const reading = [first, second].map(({ url }) => new Readers(url, runId));
  const movers = (['a WebSocket', 'an event stream'] as const).map((way) =>
    FOLLOW[way](first.url, runId, { leavesAfter: () => 40, elsewhere: second.url }),
  );
  const writer = new Writer(database.db, runId);
  await waitForEnd(second.url, runId);
  await writer.stop();
  const ledger = await ledgerSeqs(database.db, runId);
  for (const { seqs, connections } of await Promise.all(movers)) {
    expect(seqs).toEqual(ledger);
    expect(connections).toBeGreaterThan(10);
  }
  for (const { all } of reading) for (const { seqs } of await all) expect(seqs).toEqual(ledger);
  const [workers] = await database.db.query<{ count: number }>(
    `SELECT count(DISTINCT actor)::int AS count FROM run_event WHERE run_id = $1 AND type = 'rule_target.claim'`,
    [runId],
  );
  expect(workers!.count).toBeGreaterThan(1);
}, 120_000);
