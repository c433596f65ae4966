// How much of the ledgers a feed holds: what somebody still has to read, and a page of it at a time.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RunFeed } from '../../src/events/feed.js';
import { appendRunLines, readLedger, type RunEventRow } from '../../src/store/ledger.js';
import { until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRuleRun, seedWorld, type World } from '../support/fixtures.js';
import { appendLines, ledgerSeqs, startFeed, take } from './support.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

/** Lines that a feed holds, run by run. */
function linesHeldBy(feed: RunFeed): number[] {
  const { logs } = feed as unknown as {
    logs: Map<string, { pages: readonly { rows: readonly unknown[] }[] }>;
  };
  return [...logs.values()].map(({ pages }) => pages.reduce((sum, { rows }) => sum + rows.length, 0));
}

test.each([
  ['ends with a page', 39],
  ['ends within one', 42],
])('of a ledger that %s nothing is held once all have read it', async (_where, lines) => {
  const { feed, stop } = await startFeed(database, { pageSize: 10 });
  try {
    const runs = await Promise.all(
      Array.from({ length: 3 }, () => makeRuleRun(database.db, world.home, { targets: [] })),
    );
    const readers: AsyncIterableIterator<RunEventRow>[] = [];
    for (const { id } of runs) {
      await appendLines(database.db, id, lines);
      readers.push(
        await feed.runEvents(world.home.viewer, id, 0),
        await feed.runEvents(world.home.viewer, id, 5),
      );
    }
    await Promise.all(
      readers.map(async (reader) => {
        while ((await take(reader)).seq <= lines);
      }),
    );
    const next = Promise.all(readers.map(take));
    await until(
      async () => linesHeldBy(feed),
      (held) => held.every((count) => count === 0),
    );
    for (const { id } of runs) await appendLines(database.db, id, 1);
    // Two readers each, of the same row.
    expect(new Set(await next).size).toBe(runs.length);
  } finally {
    await stop();
  }
});

test('a page is bounded in bytes, however large its lines are, and the next begins where it ends', async () => {
  const { db } = database;
  const { id } = await makeRuleRun(db, world.home, { targets: [] });
  const line = {
    type: 'log',
    level: 'INFO' as const,
    message: 'm'.repeat(65_536),
    payload: { p: 'x'.repeat(65_000) },
  };
  await db.transaction('writer', (connection) =>
    appendRunLines(
      connection,
      'RULE',
      id,
      Array.from({ length: 20 }, () => line),
    ),
  );
  const seqs: number[] = [];
  for (let isLast = false; !isLast;) {
    const portion = { lines: 100, bytes: 2 ** 20 };
    const page = await readLedger(db, world.home.viewer, id, seqs.at(-1) ?? 0, portion);
    expect(JSON.stringify(page.rows).length).toBeLessThan(2 ** 20 + 140_000);
    expect(Object.keys(page.rows[0]!)).not.toContain('isLast');
    seqs.push(...page.rows.map(({ seq }) => seq));
    ({ isLast } = page);
  }
  expect(seqs).toEqual(await ledgerSeqs(db, id));
  const { feed, stop } = await startFeed(database);
  try {
    const lines = await feed.runEvents(world.home.viewer, id, 0);
    for (const seq of seqs) expect((await take(lines)).seq).toBe(seq);
  } finally {
    await stop();
  }
});

test('one line that is larger than a page is read by itself', async () => {
  const { id } = await makeRuleRun(database.db, world.home, { targets: [] });
  await appendLines(database.db, id, 2);
  const read = (after: number) =>
    readLedger(database.db, world.home.viewer, id, after, { lines: 100, bytes: 1 });
  expect(await read(0)).toMatchObject({ rows: [{ seq: 1 }], isLast: false });
  expect(await read(2)).toMatchObject({ rows: [{ seq: 3 }], isLast: true });
  expect(await read(3)).toEqual({ rows: [], isLast: true });
});
