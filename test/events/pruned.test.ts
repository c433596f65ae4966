// The feed of a run whose ledger retention has deleted: a reader is told so, and never shown a ledger with a hole.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { pruneDueRuns } from '../../src/store/prune.js';
import { findRuleRun } from '../../src/store/rule-run-row.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { seedWorld, type World } from '../support/fixtures.js';
import { age, endedRun, keepFor } from '../support/retention.js';
import { appendLines, startFeed, type Live } from './support.js';

let database: TestDatabase;
let world: World;
let live: Live;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  await keepFor(database.db, world.home, 'RULE', 30);
});
beforeEach(async () => {
  live = await startFeed(database, { pageSize: 5 });
});
afterEach(() => live.stop());
afterAll(() => database.drop());

const watch = (runId: string, after: number) => live.feed.runEvents(world.home.viewer, runId, after);

test('a reader from before the pruned lines is refused, and told where the ledger begins', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31);
  await pruneDueRuns(database.db);
  const { lastSeq } = (await findRuleRun(database.db, world.home.viewer, runId))!;
  for (const after of [0, lastSeq - 1]) {
    await expect(watch(runId, after)).rejects.toMatchObject({
      code: 'BAD_USER_INPUT',
      message: expect.stringContaining(`lines up to ${lastSeq} are deleted`) as string,
      details: { prunedSeq: lastSeq, lastSeq },
    });
  }
  const events = await watch(runId, lastSeq);
  const next = events.next();
  await appendLines(database.db, runId, 1);
  expect((await next).value).toMatchObject({ seq: lastSeq + 1 });
  await events.return!();
});

test('a reader that is overtaken in the middle is told, and skips nothing', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 0, 20);
  const { lastSeq } = (await findRuleRun(database.db, world.home.viewer, runId))!;
  const events = await watch(runId, 0);
  expect((await events.next()).value).toMatchObject({ seq: 1 });
  await age(database.db, 'RULE', runId, 31);
  await pruneDueRuns(database.db);
  const seqs: number[] = [1];
  const rest = (async () => {
    for await (const { seq } of events) seqs.push(seq);
  })();
  await expect(rest).rejects.toMatchObject({ code: 'BAD_USER_INPUT', details: { prunedSeq: lastSeq } });
  // What it had at hand came whole.
  expect(seqs).toEqual([1, 2, 3, 4, 5]);
});
