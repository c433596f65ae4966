// `runledger watch` for runs of each kind: what it shows, that it waits for the end, and what it ends with.
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../support/database.js';
import { TestApp } from '../support/app.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { makeRowIn, makeRuleRun, seedWorld, targetsOf } from '../support/fixtures.js';
import { pruneDueRuns } from '../../src/store/prune.js';
import { endedRun, keepFor } from '../support/retention.js';
import { OpsSurface, surfaceOf } from '../ops/support.js';
import { Cli } from './support.js';

let app: TestApp;
let client: pg.Client;
let ops: OpsSurface;

beforeAll(async () => {
  app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
  client = await connect(app.database.url);
  ops = surfaceOf(client);
});
afterAll(async () => {
  await client.end();
  await app.stop();
});

test('an ops run: its ledger, what is there and what comes, then how it ended', async () => {
  const runId = await ops.running('worker-1');
  const watcher = Cli.start(app.url, ['watch', runId]);
  await watcher.says('began');
  await ops.append(runId, 'two\nlines with \u001b[31mcolour\u001b[0m and a bell \u0007', 'warn');
  await ops.finish(runId, 'failed', { error: 'it broke' });
  const { code, stdout } = await watcher.ended;
  expect(code).toBe(1);
  const shown = stdout.replace(/^\d\d:\d\d:\d\d /gm, '');
  expect(shown.split('\n').slice(-8)).toEqual([
    'INFO  ops_run.claim  queued → claimed',
    'INFO  ops_run.start  claimed → running',
    'INFO  began',
    'WARN  two',
    'lines with [31mcolour[0m and a bell ',
    'ERROR ops_run.fail  it broke',
    'FAILED · worker-1 · it broke',
    '',
  ]);
});

test.each([
  ['success', 0],
  ['failed', 1],
  ['cancelled', 3],
])('a run that is %s already ends it with %i', async (status, code) => {
  const runId = await ops.running();
  await ops.finish(runId, status);
  expect(await Cli.run(app.url, ['watch', runId])).toMatchObject({ code, stderr: '' });
});

test('--json is one object per line: every event once, and states', async () => {
  const runId = await ops.running('worker-1');
  await ops.finish(runId, 'success', { artifacts: [{ type: 'image', url: 'x:y' }] });
  const { code, stdout } = await Cli.run(app.url, ['watch', '--json', runId]);
  expect(code).toBe(0);
  const objects = stdout
    .trimEnd()
    .split('\n')
    .map(
      (line) =>
        JSON.parse(line) as { event?: { seq: number; type: string }; state?: Record<string, unknown> },
    );
  expect(objects.flatMap(({ event }) => event?.seq ?? [])).toEqual([1, 2, 3, 4, 5]);
  expect(objects.flatMap(({ state }) => state ?? [])).toMatchObject([
    { id: runId, status: 'SUCCESS', lastSeq: 5, artifacts: [{ type: 'image', url: 'x:y' }] },
  ]);
});

test('a rule run: how far it is, at every change', async () => {
  const world = await seedWorld(app.db);
  const { id } = await makeRuleRun(app.db, world.home, { targets: targetsOf(4) });
  const watcher = Cli.start(app.url, ['watch', id]);
  await watcher.says('0 %  PREVIEW · 0 of 4 applied');
  await app.request('mutation ($id: ID!) { queueRuleRun(input: { runId: $id }) { userErrors { code } } }', {
    id,
  });
  await watcher.says('QUEUED');
  expect(await Cli.run(app.url, ['cancel', id])).toMatchObject({ code: 0 });
  const { code, stdout } = await watcher.ended;
  expect(code).toBe(3);
  expect(stdout.trimEnd().split('\n').at(-1)).toMatch(/^█{24} 100 % {2}CANCELLED/);
});

test('a rule run with --events shows its ledger', async () => {
  const world = await seedWorld(app.db);
  const { id } = await makeRuleRun(app.db, world.home, { targets: targetsOf(2) });
  await client.query(`UPDATE rule_run SET status = 'CANCELLED' WHERE id = $1`, [id]);
  const { code, stdout } = await Cli.run(app.url, ['watch', '--events', id]);
  expect(code).toBe(3);
  for (const type of ['rule_run.create', 'rule_run.add_targets', 'rule_run.cancel'])
    expect(stdout).toContain(type);
});

test('a pipeline run: its partitions and records; cancel stops any kind', async () => {
  const world = await seedWorld(app.db);
  const { id } = await makeRowIn(app.db, world.home, pipelineRunMachine, 'CREATED');
  const watcher = Cli.start(app.url, ['watch', id]);
  await watcher.says('CREATED · 0 of 1 partitions · 0 records in · 0 consolidated');
  expect(await Cli.run(app.url, ['cancel', id])).toMatchObject({ code: 0, stdout: `${id} is cancelled\n` });
  const { code, stdout } = await watcher.ended;
  expect(code).toBe(3);
  expect(stdout).toContain('CANCELLED');
});

test('queue --wait ends with the run', async () => {
  const waiting = Cli.start(app.url, ['queue', '--env', 'waited-for', '--wait']);
  await waiting.says('ops_run.create');
  const runId = (await ops.claim('worker-1', 'waited-for'))!;
  await ops.finish(runId, 'success');
  const { code, stdout } = await waiting.ended;
  expect(code).toBe(0);
  expect(stdout.split('\n')[0]).toBe(runId);
});

test("a run whose ledger was deleted by retention: it says so, and ends with the run's exit code", async () => {
  const { home } = await seedWorld(app.db);
  const id = await endedRun(app.db, home, 'FAILED', 31);
  await keepFor(app.db, home, 'RULE', 30);
  await pruneDueRuns(app.db);
  const { code, stdout, stderr } = await Cli.run(app.url, ['watch', '--events', id]);
  expect(code).toBe(1);
  expect(stdout).toContain('FAILED');
  expect(`${stdout}${stderr}`).toMatch(/Lines 1 to \d+ of the ledger were deleted by retention/);
});
