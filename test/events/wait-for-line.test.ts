import { afterAll, beforeAll, expect, test } from 'vitest';
import { waitForLine } from '../../src/events/wait-for-line.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRuleRun, seedWorld, type World } from '../support/fixtures.js';
import { appendEnd, appendLines, startFeed, type Live } from './support.js';

let database: TestDatabase;
let world: World;
let live: Live;
beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  live = await startFeed(database);
});
afterAll(async () => {
  await live.stop();
  await database.drop();
});

function wait(runId: string, after: number, longestMs: number) {
  const isIt = ({ message }: { message: string }) => message === 'end';
  return waitForLine(live.feed, world.home.viewer, { runId, after, isIt, longestMs });
}

test('a line that is there already is found at once', async () => {
  const { id } = await makeRuleRun(database.db, world.home);
  await appendLines(database.db, id, 3);
  await appendEnd(database.db, id);
  expect(await wait(id, 0, 60_000)).toMatchObject({ message: 'end' });
});

test('one that comes is waited for', async () => {
  const { id, lastSeq } = await makeRuleRun(database.db, world.home);
  const found = wait(id, lastSeq, 60_000);
  await appendLines(database.db, id, 3);
  await appendEnd(database.db, id);
  expect(await found).toMatchObject({ message: 'end', seq: lastSeq + 4 });
});

test('one that does not come is not waited for without end', async () => {
  const { id, lastSeq } = await makeRuleRun(database.db, world.home);
  expect(await wait(id, lastSeq, 20)).toBeNull();
});

test('of nobody else’s run', async () => {
  const { id } = await makeRuleRun(database.db, world.other);
  await expect(wait(id, 0, 20)).rejects.toMatchObject({ code: 'NOT_FOUND' });
});
