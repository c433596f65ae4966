// The runner of a process: heartbeats that show what its loops do, a stop that hands every lease back, and
// the recovery of what a killed process held, long before its leases would have run out.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { Runner, type RunnerOptions } from '../../src/runner/runner.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';
import { listWorkers } from '../../src/store/worker.js';
import { expectInvariants } from '../store/invariants.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, type World } from '../support/fixtures.js';
import { makeRuleTargets, named, pointAt, runOf, targetsIn, untilHeld } from './shop-world.js';
import { KeptLog, ScriptedKind, signalled, whenAborted } from './support.js';

let database: TestDatabase;
let world: World;
let sandbox: Sandbox;
const children: ChildProcess[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(async () => {
  sandbox = await startSandbox();
  await pointAt(database.db, sandbox);
});
afterEach(async () => {
  for (const child of children.splice(0)) if (child.exitCode === null) child.kill('SIGKILL');
  await sandbox.stop();
  await database.db.query('UPDATE rule_run SET paused = true');
});
afterAll(() => database.drop());

function makeRunner(options: Partial<RunnerOptions> = {}): Runner {
  const { db } = database;
  const log = new KeptLog();
  return new Runner({ db, kinds: [makeRuleTargets(db, log)], workers: 2, log, ...options });
}

async function startChild(): Promise<ChildProcess> {
  const script = fileURLToPath(new URL('./run-worker.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', script, database.url], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  await once(createInterface(child.stdout!), 'line');
  return child;
}

async function workersOf(pid: number) {
  return (await listWorkers(database.db, world.home.viewer)).filter((worker) => worker.pid === pid);
}

test('the table shows what each loop does, and STOPPED when it is over', async () => {
  const kind = new ScriptedKind('a');
  const started = signalled();
  kind.add(async (signal) => {
    started.resolve();
    await whenAborted(signal);
    return 'success';
  });
  const runner = makeRunner({ kinds: [kind], timing: { graceMs: 0, heartbeatMs: 5 } });
  runner.start();
  await started.promise;
  const seen = async () =>
    (await listWorkers(database.db, world.home.viewer))
      .filter(({ id }) => runner.workerIds.includes(id))
      .map(({ state }) => state);
  while (!(await seen()).includes('PROCESSING')) await new Promise(setImmediate);
  await runner.stop();
  expect(await seen()).toEqual(['STOPPED', 'STOPPED']);
  const [worker] = await listWorkers(database.db, world.home.viewer);
  expect(worker).toMatchObject({ pid: process.pid, activeLeases: 0 });
});

test('wake makes a resting runner look at once', async () => {
  const kind = new ScriptedKind('a');
  const runner = makeRunner({ kinds: [kind], timing: { minIdleMs: 3_600_000, maxIdleMs: 3_600_000 } });
  runner.start();
  const served = signalled();
  kind.add(async () => {
    served.resolve();
    return 'success';
  });
  runner.wake();
  await served.promise;
  await runner.stop();
});

test('SIGTERM hands leases back: no attempt is spent, and another runner goes on at once', async () => {
  const run = await makeQueuedRun(database.db, world.home, { targets: named('hang-1', 'a', 'b') });
  const child = await startChild();
  await untilHeld(sandbox);
  while ((await runOf(database.db, run.id))!.appliedCount < 2) await new Promise(setImmediate);
  child.kill('SIGTERM');
  const [code] = (await once(child, 'exit')) as [number | null];
  expect(code).toBe(0);
  const target = (await targetsIn(database.db, run.id)).get('hang-1');
  expect(target).toMatchObject({ status: 'QUEUED', attempts: 0, errorCode: null });
  expect((await workersOf(child.pid!)).map(({ state }) => state)).toEqual(['STOPPED', 'STOPPED']);
  await expectInvariants(database.db, run.id);
  const log = new KeptLog();
  const kinds = [makeRuleTargets(database.db, log, { callTimeoutMs: 300 })];
  while (await makeRunner({ kinds }).runOnce());
  expect(await runOf(database.db, run.id)).toMatchObject({
    status: 'PARTIAL',
    appliedCount: 2,
    failedCount: 1,
  });
  await expectInvariants(database.db, run.id);
});

test('kill -9: the next runner of this machine takes the leases back at once', async () => {
  const run = await makeQueuedRun(database.db, world.home, { targets: named('hang-1', 'a', 'b') });
  const child = await startChild();
  await untilHeld(sandbox);
  while ((await workersOf(child.pid!)).length === 0) await new Promise(setImmediate);
  while ((await runOf(database.db, run.id))!.appliedCount < 2) await new Promise(setImmediate);
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect((await targetsIn(database.db, run.id)).get('hang-1')).toMatchObject({ status: 'APPLYING' });
  const log = new KeptLog();
  const kinds = [makeRuleTargets(database.db, log, { callTimeoutMs: 300 })];
  const runner = makeRunner({ kinds, log });
  while (await runner.runOnce());
  expect(await runOf(database.db, run.id)).toMatchObject({
    status: 'PARTIAL',
    appliedCount: 2,
    failedCount: 1,
  });
  expect((await targetsIn(database.db, run.id)).get('hang-1')).toMatchObject({
    status: 'FAILED',
    attempts: 3,
    errorCode: 'TIMEOUT',
  });
  expect((await workersOf(child.pid!)).map(({ state }) => state)).toEqual(['STOPPED', 'STOPPED']);
  await expectInvariants(database.db, run.id);
});

test('only workers whose process is known to be gone are recovered', async () => {
  const { pid: gone } = spawnSync(process.execPath, ['-e', '']);
  const kind = new ScriptedKind('a');
  const runner = makeRunner({ kinds: [kind] });
  await runner.runOnce();
  const insert = (id: string, pid: number, host: string) =>
    database.db.query(
      `INSERT INTO worker (id, host, pid_space, pid, state)
       SELECT $1, ${host}, pid_space, $2, 'PROCESSING' FROM worker WHERE id = $3`,
      [id, pid, runner.workerIds[0]],
    );
  await insert('living', process.ppid, 'host');
  await insert('gone', gone, 'host');
  // A process that came before this one under the same pid, as in a restarted container.
  await insert('namesake', process.pid, 'host');
  await insert('far', gone, `'elsewhere'`);
  await makeRunner({ kinds: [kind] }).runOnce();
  const recovered = kind.recoveries.at(-1)!.filter((id) => !runner.workerIds.includes(id));
  expect(recovered.toSorted()).toEqual(['gone', 'namesake']);
  const states = (await listWorkers(database.db, world.home.viewer)).map(({ id, state }) => [id, state]);
  expect(states).toEqual(
    expect.arrayContaining([
      ['gone', 'STOPPED'],
      ['living', 'PROCESSING'],
      ['far', 'PROCESSING'],
    ]),
  );
});
