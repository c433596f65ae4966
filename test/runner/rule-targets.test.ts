// Rule targets as the runner works them: over real HTTP against the sandbox's shop, with real claims.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { RuleTargets } from '../../src/runner/rule-targets.js';
import type { RecoveredRun } from '../../src/runner/observer.js';
import type { Work } from '../../src/runner/work.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';
import { registerChannel } from '../../src/store/channel.js';
import { MAX_LOST_LEASES } from '../../src/store/recover.js';
import { expectInvariants } from '../store/invariants.js';
import { linesOf } from '../store/rows.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import {
  drain,
  makeRuleTargets,
  named,
  NEVER,
  pointAt,
  runOf,
  targetsIn,
  untilHeld,
  type KindOptions,
} from './shop-world.js';
import { KeptLog } from './support.js';

let database: TestDatabase;
let world: World;
let sandbox: Sandbox;
let log: KeptLog;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(async () => {
  log = new KeptLog();
  sandbox = await startSandbox();
  await pointAt(database.db, sandbox);
});
afterEach(async () => {
  await sandbox.stop();
  // What a test leaves undone is not for the next one to find.
  await database.db.query('UPDATE rule_run SET paused = true');
});
afterAll(() => database.drop());

/** Gives the channel a configuration that cannot be used. */
function breakChannel(): Promise<string> {
  const config = { endpoint: 'nonsense' };
  return registerChannel(database.db, { tenantId: 'default', name: 'shop', kind: 'shopify', config });
}

const makeKind = (options?: KindOptions) => makeRuleTargets(database.db, log, options);

async function claimOf(kind: RuleTargets, worker = 'w'): Promise<Work> {
  const work = await kind.claim(worker);
  if (!work) throw new Error('nothing to claim');
  return work;
}

describe('a run', () => {
  test('is applied, each price written once', async () => {
    const run = await makeQueuedRun(database.db, world.home, { targets: targetsOf(1_200) });
    await drain(makeKind());
    expect(await runOf(database.db, run.id)).toMatchObject({ status: 'APPLIED', appliedCount: 1_200 });
    expect(sandbox.writes('sku-1')).toBe(1);
    expect(sandbox.writes('sku-1200')).toBe(1);
    await expectInvariants(database.db, run.id);
  });

  test('with every fault ends with what each of them comes to', async () => {
    const ids = ['fail-1', 'auth-1', 'down-1', 'flaky1-1', 'flaky2-1', 'flaky3-1', 'drift-1', 'plain'];
    const run = await makeQueuedRun(database.db, world.home, { targets: named(...ids) });
    await drain(makeKind());
    const targets = await targetsIn(database.db, run.id);
    const facts = [...targets].map(([id, { status, attempts, errorCode }]) => [
      id,
      status,
      attempts,
      errorCode,
    ]);
    expect(facts).toEqual([
      ['fail-1', 'FAILED', 1, 'INVALID'],
      ['auth-1', 'FAILED', 1, 'AUTH'],
      ['down-1', 'FAILED', 3, 'UPSTREAM'],
      ['flaky1-1', 'APPLIED', 2, null],
      ['flaky2-1', 'APPLIED', 3, null],
      ['flaky3-1', 'FAILED', 3, 'UPSTREAM'],
      ['drift-1', 'APPLIED', 1, null],
      ['plain', 'APPLIED', 1, null],
    ]);
    expect(await runOf(database.db, run.id)).toMatchObject({
      status: 'PARTIAL',
      appliedCount: 4,
      failedCount: 4,
    });
    await expectInvariants(database.db, run.id);
  });

  test('whose channel cannot be used fails, with the reason on its targets', async () => {
    await breakChannel();
    const run = await makeQueuedRun(database.db, world.home);
    await drain(makeKind());
    expect(await runOf(database.db, run.id)).toMatchObject({ status: 'FAILED', failedCount: 3 });
    const [target] = (await targetsIn(database.db, run.id)).values();
    expect(target).toMatchObject({ errorCode: 'INVALID', attempts: 1 });
    expect(target!.errorMessage).toContain('endpoint');
  });

  test('takes up a changed channel at its next claim', async () => {
    await breakChannel();
    const kind = makeKind();
    const first = await makeQueuedRun(database.db, world.home);
    await drain(kind);
    await pointAt(database.db, sandbox);
    const second = await makeQueuedRun(database.db, world.home);
    await drain(kind);
    expect(await runOf(database.db, first.id)).toMatchObject({ status: 'FAILED' });
    expect(await runOf(database.db, second.id)).toMatchObject({ status: 'APPLIED' });
  });
});

describe('a call that hangs', () => {
  test('holds back nothing else of its batch; cut, it is handed back at no cost', async () => {
    const run = await makeQueuedRun(database.db, world.home, { targets: named('hang-1', 'a', 'b', 'c') });
    const work = await claimOf(makeKind());
    const cut = new AbortController();
    const processing = work.process(cut.signal);
    await untilHeld(sandbox);
    while (work.leases > 1) await new Promise(setImmediate);
    expect(await runOf(database.db, run.id)).toMatchObject({ appliedCount: 3, applyingCount: 1 });
    cut.abort();
    expect(await processing).toBe('success');
    expect((await targetsIn(database.db, run.id)).get('hang-1')).toMatchObject({
      status: 'QUEUED',
      attempts: 0,
    });
    expect(work.leases).toBe(0);
    await expectInvariants(database.db, run.id);
  });

  test('that lost its lease changes nothing, and leaves a line', async () => {
    const run = await makeQueuedRun(database.db, world.home, { targets: named('hang-1') });
    const slow = makeKind({ callTimeoutMs: 60_000 });
    const processing = new AbortController();
    const work = await claimOf(slow, 'slow');
    const late = work.process(processing.signal);
    await untilHeld(sandbox);
    // Its worker is declared dead while the call is under way.
    expect(await slow.recover(['slow'])).toBe(1);
    expect((await targetsIn(database.db, run.id)).get('hang-1')).toMatchObject({
      status: 'QUEUED',
      attempts: 0,
    });
    const quick = await claimOf(makeKind({ callTimeoutMs: 20 }), 'quick');
    expect(await quick.process(NEVER)).toBe('failure');
    expect((await targetsIn(database.db, run.id)).get('hang-1')).toMatchObject({
      attempts: 1,
      errorCode: 'TIMEOUT',
    });
    const before = await targetsIn(database.db, run.id);
    await sandbox.stop();
    expect(await late).toBe('failure');
    expect(await targetsIn(database.db, run.id)).toEqual(before);
    const lines = await linesOf(database.db, run.id);
    expect(lines.at(-1)).toMatchObject({ type: 'rule_target.late_result', actor: 'slow', level: 'WARN' });
    await expectInvariants(database.db, run.id);
  });

  test('that loses its worker once too often ends the run, and that is told like any other end', async () => {
    const run = await makeQueuedRun(database.db, world.home, { targets: named('plain') });
    const told: RecoveredRun[] = [];
    const kind = makeKind({ observer: { onRecover: (recovered) => told.push(recovered) } });
    for (let lost = 1; lost <= MAX_LOST_LEASES; lost += 1) {
      await claimOf(kind, 'gone');
      expect(await kind.recover(['gone'])).toBe(1);
    }
    expect(await runOf(database.db, run.id)).toMatchObject({ status: 'FAILED', failedCount: 1 });
    const none = { kind: 'rule_target', runId: run.id, givenUp: 0, runMs: null };
    const end = { ...none, givenUp: 1, runMs: expect.any(Number) as number };
    expect(told).toEqual([none, none, none, none, end]);
  });

  test('keeps its lease for as long as it takes', async () => {
    const run = await makeQueuedRun(database.db, world.home, { targets: named('hang-1') });
    const kind = makeKind({ leaseMs: 30 });
    const work = await claimOf(kind);
    const until = async (): Promise<number> => {
      const [row] = await database.db.query<{ at: Date }>(
        'SELECT lease_until AS at FROM rule_target WHERE run_id = $1',
        [run.id],
      );
      return row!.at.getTime();
    };
    const first = await until();
    const cut = new AbortController();
    const processing = work.process(cut.signal);
    while ((await until()) <= first) await new Promise(setImmediate);
    cut.abort();
    await processing;
  });
});

test('results that are known survive a database that does not answer for a moment', async () => {
  const run = await makeQueuedRun(database.db, world.home, { targets: targetsOf(5) });
  const work = await claimOf(makeKind());
  await database.db.query(
    `ALTER TABLE rule_target ADD CONSTRAINT broken CHECK (status <> 'APPLIED') NOT VALID`,
  );
  const processing = work.process(NEVER);
  while (sandbox.writes('sku-5') === 0) await new Promise(setImmediate);
  await database.db.query('ALTER TABLE rule_target DROP CONSTRAINT broken');
  expect(await processing).toBe('success');
  expect(await runOf(database.db, run.id)).toMatchObject({ status: 'APPLIED' });
  expect(sandbox.writes('sku-5')).toBe(1);
});
