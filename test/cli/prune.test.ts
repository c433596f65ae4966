// `runledger prune` as a process of its own, on a real database.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Arguments, UsageError } from '../../src/cli/command.js';
import { pruneCommand } from '../../src/cli/prune.js';
import { countRows } from '../store/rows.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { seedWorld, type World } from '../support/fixtures.js';
import { endedRun, keepFor, NOTHING, rowsOf } from '../support/retention.js';
import { Cli, type Ended } from './support.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

const run = (...args: string[]): Promise<Ended> => Cli.run('', args, { DATABASE_URL: database.url });

test('tells what is due and deletes nothing, or deletes it', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31);
  const { run_event: lines } = await rowsOf(database.db, runId);
  expect(await run('prune', '--dry-run')).toMatchObject({ code: 0, stdout: 'nothing is due\n', stderr: '' });
  await keepFor(database.db, world.home, 'RULE', 30);
  const before = await countRows(database.db);
  const told = await run('prune', '--dry-run');
  expect(told).toMatchObject({
    code: 0,
    stdout: `default: 1 RULE runs, with ${lines} events and 3 parts\n`,
    stderr: '',
  });
  expect(await countRows(database.db)).toEqual(before);
  expect((await run('prune', '--tenant', 'other', '--json')).stdout).toBe('{"runs":0,"rows":0}\n');
  expect((await run('prune')).stdout).toBe(`pruned 1 runs: ${lines! + 3} rows\n`);
  expect(await rowsOf(database.db, runId)).toEqual(NOTHING);
  expect(await database.db.query('SELECT actor FROM retention_audit')).toEqual([{ actor: 'cli' }]);
});

test('obeys the hold after a leap of the clock, and says so', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31);
  await database.db.query(`UPDATE retention_clock SET seen_at = seen_at - interval '1 year'`);
  const told = await run('prune');
  expect(told).toMatchObject({ code: 1, stdout: 'pruned 0 runs: 0 rows\n' });
  expect(told.stderr).toMatch(/^Nothing is pruned until \d{4}-.*leapt by more than a day/);
  expect(await rowsOf(database.db, runId)).not.toEqual(NOTHING);
});

test('wrong usage', async () => {
  const running = pruneCommand.run(Arguments.parse(pruneCommand, ['everything']));
  await expect(running).rejects.toThrow(UsageError);
});
