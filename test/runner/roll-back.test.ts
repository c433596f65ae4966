// Rollback as the runner does it, over real HTTP: what is read, what is written, what is left and said, and
// how it survives failures, crashes and what happens meanwhile.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ruleRunMachine, type OnConflict } from '../../src/domain/rule-run.js';
import { autoRevertJob } from '../../src/runner/auto-revert.js';
import type { RuleTargets } from '../../src/runner/rule-targets.js';
import { MemorySandboxState } from '../../src/sandbox/state.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';
import { claimTargets } from '../../src/store/claim.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import {
  cancelRuleRun,
  pauseRuleRun,
  retryFailedTargets,
  retryRuleRun,
} from '../../src/store/rule-run-control.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { expectInvariants } from '../store/invariants.js';
import { faultOf, linesOf, pictureOf } from '../store/rows.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import {
  makeQueuedRun,
  makeRuleRun,
  seedWorld,
  targetsOf,
  viewerOf,
  type World,
} from '../support/fixtures.js';
import { drain, makeRuleTargets, named, NEVER, pointAt, runOf, targetsIn } from './shop-world.js';
import { KeptLog } from './support.js';

let database: TestDatabase;
let world: World;
let shop: MemorySandboxState;
let sandbox: Sandbox;
let kind: RuleTargets;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(async () => {
  shop = new MemorySandboxState();
  sandbox = await startSandbox({ state: shop });
  await pointAt(database.db, sandbox);
  kind = makeRuleTargets(database.db, new KeptLog());
});
afterEach(async () => {
  await sandbox.stop();
  await database.db.query('UPDATE rule_run SET paused = true');
});
afterAll(() => database.drop());

async function appliedRun(...ids: string[]): Promise<string> {
  const targets = named(...ids);
  const run = await makeQueuedRun(database.db, world.home, { targets });
  await drain(kind);
  return run.id;
}

function ask(runId: string, onConflict: OnConflict = 'SKIP', targetIds: string[] | null = null) {
  return rollBackRuleRun(database.db, viewerOf('default'), {
    runId,
    idempotencyKey: null,
    targetIds,
    onConflict,
  });
}

const priceOf = async (id: string) => (await shop.readPrices([id])).get(id);
const change = (id: string, price: string) => shop.writePrices(new Map([[id, price]]));
const typesOf = async (runId: string) => (await linesOf(database.db, runId)).map(({ type }) => type);

async function stateOf(runId: string) {
  const targets = await targetsIn(database.db, runId);
  return [...targets].map(([id, { status, errorCode }]) => [id, status, errorCode]);
}

test('a whole run is set back, and is ROLLED_BACK with its last target', async () => {
  const runId = await appliedRun('a', 'b', 'c');
  expect(await priceOf('a')).toBe('15.00');
  const asked = await ask(runId);
  expect(asked).toMatchObject({
    status: 'APPLIED',
    rollingBack: true,
    rollbackAll: true,
    rollbackOnConflict: 'SKIP',
  });
  await drain(kind);
  expect(await runOf(database.db, runId)).toMatchObject({
    status: 'ROLLED_BACK',
    rolledBackCount: 3,
    rollingBack: false,
  });
  expect(await priceOf('a')).toBe('10.00');
  for (const target of (await targetsIn(database.db, runId)).values())
    expect(target.rolledBackAt).not.toBeNull();
  expect(await typesOf(runId)).toEqual(
    expect.arrayContaining(['rule_run.ask_roll_back', 'rule_target.roll_back', 'rule_run.roll_back']),
  );
  await expectInvariants(database.db, runId);
});

test('SKIP leaves a price that somebody else has changed, and says so; the run keeps its state', async () => {
  const runId = await appliedRun('a', 'b');
  await change('a', '99.00');
  await ask(runId);
  await drain(kind);
  expect(await stateOf(runId)).toEqual([
    ['a', 'APPLIED', 'CONFLICT'],
    ['b', 'ROLLED_BACK', null],
  ]);
  expect(await priceOf('a')).toBe('99.00');
  expect(await runOf(database.db, runId)).toMatchObject({
    status: 'APPLIED',
    rollingBack: false,
    error: '1 target was not set back: 1 CONFLICT',
  });
  const lines = await linesOf(database.db, runId);
  expect(lines.filter(({ type }) => type === 'rule_target.roll_back_conflict')).toHaveLength(1);
  expect(lines.at(-1)).toMatchObject({ type: 'rule_run.end_roll_back', level: 'WARN', payload: { left: 1 } });
  await expectInvariants(database.db, runId);
  // Asked again, it takes up what was left.
  await ask(runId, 'OVERWRITE');
  await drain(kind);
  expect(await priceOf('a')).toBe('10.00');
  expect(await runOf(database.db, runId)).toMatchObject({ status: 'ROLLED_BACK', error: null });
  await expectInvariants(database.db, runId);
});

test('OVERWRITE sets the former price whatever stands', async () => {
  const runId = await appliedRun('a', 'drift-1');
  await change('a', '99.00');
  await ask(runId, 'OVERWRITE');
  await drain(kind);
  expect(await runOf(database.db, runId)).toMatchObject({ status: 'ROLLED_BACK' });
  expect(await priceOf('a')).toBe('10.00');
});

test('some targets are set back, the run stays as it is', async () => {
  const runId = await appliedRun('a', 'b', 'fail-1');
  const [first] = [...(await targetsIn(database.db, runId)).values()];
  await ask(runId, 'SKIP', [first!.id]);
  await drain(kind);
  expect(await stateOf(runId)).toEqual([
    ['a', 'ROLLED_BACK', null],
    ['b', 'APPLIED', null],
    ['fail-1', 'FAILED', 'INVALID'],
  ]);
  expect(await runOf(database.db, runId)).toMatchObject({
    status: 'PARTIAL',
    rollingBack: false,
    error: null,
  });
  expect(await typesOf(runId)).toContain('rule_run.end_roll_back');
  await expectInvariants(database.db, runId);
});

test('what fails in passing is tried again, like an apply; what fails for good is left, with the reason', async () => {
  const runId = await appliedRun('flaky2-1', 'plain');
  await ask(runId);
  await drain(kind);
  expect(await runOf(database.db, runId)).toMatchObject({ status: 'ROLLED_BACK' });
  const retries = (await linesOf(database.db, runId)).filter(
    ({ type }) => type === 'rule_target.roll_back_retry',
  );
  expect(retries.map(({ payload }) => [payload['externalId'], payload['attempt']])).toEqual([
    ['flaky2-1', 1],
    ['flaky2-1', 2],
  ]);
  const other = await appliedRun('x');
  await sandbox.stop();
  await ask(other);
  await drain(kind);
  expect(await stateOf(other)).toEqual([['x', 'APPLIED', 'UPSTREAM']]);
  expect(await runOf(database.db, other)).toMatchObject({
    status: 'APPLIED',
    error: '1 target was not set back: 1 UPSTREAM',
  });
  await expectInvariants(database.db, other);
});

test('a worker that dies in the middle: nothing is lost, nothing written twice', async () => {
  const runId = await appliedRun('a', 'b', 'c');
  await ask(runId);
  const claim = await claimTargets(database.db, { runId, workerId: 'dead', limit: 10, leaseMs: 3_600_000 });
  expect(claim).toMatchObject({ purpose: 'roll_back', targets: { length: 3 } });
  // It had set one back, and did not live to say so.
  await change('a', '10.00');
  const writes = sandbox.writes('a');
  expect(await kind.recover(['dead'])).toBe(3);
  await drain(kind);
  expect(await runOf(database.db, runId)).toMatchObject({ status: 'ROLLED_BACK' });
  expect(sandbox.writes('a')).toBe(writes);
  expect(sandbox.writes('b')).toBe(2);
  await expectInvariants(database.db, runId);
});

test('a lease that expires comes up again by itself, and its late result changes nothing', async () => {
  const runId = await appliedRun('a');
  await ask(runId);
  const request = { runId, limit: 10, leaseMs: 0 };
  const late = (await claimTargets(database.db, { ...request, workerId: 'slow' }))!;
  await drain(kind);
  expect(await runOf(database.db, runId)).toMatchObject({ status: 'ROLLED_BACK' });
  const settled = [{ targetId: late.targets[0]!.id, settlement: { event: 'succeed' as const } }];
  expect(await settleIfClaimed(database.db, late, settled)).toMatchObject({ late: settled });
  expect(await typesOf(runId)).toContain('rule_target.late_result');
  await expectInvariants(database.db, runId);
});

test('cut, it hands back what it has not tried', async () => {
  const runId = await appliedRun('a', 'b');
  await ask(runId);
  const work = await kind.claim('w');
  expect(work!.leases).toBe(2);
  const cut = new AbortController();
  cut.abort();
  await work!.process(cut.signal);
  await expectInvariants(database.db, runId);
  await drain(kind);
  expect(await runOf(database.db, runId)).toMatchObject({ status: 'ROLLED_BACK' });
  const [row] = await database.db.query<{ n: number }>(
    'SELECT max(rollback_attempts) AS n FROM rule_target WHERE run_id = $1',
    [runId],
  );
  expect(row!.n).toBe(1);
});

test('a cancelled run is rolled back with what was still in flight', async () => {
  const { id: runId } = await makeQueuedRun(database.db, world.home, { targets: named('a', 'b', 'fail-1') });
  const work = await kind.claim('w');
  await cancelRuleRun(database.db, viewerOf('default'), { runId, idempotencyKey: null });
  expect(await ask(runId)).toMatchObject({ status: 'CANCELLED', rollingBack: true });
  await work!.process(NEVER);
  await drain(kind);
  expect(await stateOf(runId)).toEqual([
    ['a', 'ROLLED_BACK', null],
    ['b', 'ROLLED_BACK', null],
    ['fail-1', 'FAILED', 'INVALID'],
  ]);
  expect(await runOf(database.db, runId)).toMatchObject({ status: 'ROLLED_BACK' });
  await expectInvariants(database.db, runId);
});

test('a cancelled run that applied nothing is rolled back at once', async () => {
  const { id: runId } = await makeRuleRun(database.db, world.home);
  await cancelRuleRun(database.db, viewerOf('default'), { runId, idempotencyKey: null });
  expect(await ask(runId)).toMatchObject({ status: 'ROLLED_BACK', rollingBack: false });
});

test('while it is rolled back nothing is retried, and it can be paused', async () => {
  const runId = await appliedRun('a', 'fail-1');
  await ask(runId);
  const request = { runId, idempotencyKey: null };
  const refused = await faultOf(
    retryFailedTargets(database.db, viewerOf('default'), { ...request, targetIds: null }),
  );
  expect(refused).toMatchObject({ code: 'CONFLICT' });
  await pauseRuleRun(database.db, viewerOf('default'), request);
  expect(await kind.claim('w')).toBeNull();
});

test('what the machine forbids anyway is refused by it, also while the run is rolled back', async () => {
  const runId = await appliedRun('a');
  await ask(runId);
  const request = { runId, idempotencyKey: null };
  const viewer = viewerOf('default');
  const verbs = [
    () => retryFailedTargets(database.db, viewer, { ...request, targetIds: null }),
    () => retryRuleRun(database.db, viewer, request),
  ];
  for (const verb of verbs) {
    expect(await faultOf(verb())).toMatchObject({
      code: 'ILLEGAL_TRANSITION',
      details: { from: 'APPLIED', allowed: ['roll_back'] },
    });
  }
});

test.each([
  { name: 'a target that is not applied', index: 1, code: 'ILLEGAL_TRANSITION' },
  { name: 'a target that is not there', index: 9, code: 'NOT_FOUND' },
])('$name refuses all of the request', async ({ index, code }) => {
  const runId = await appliedRun('a', 'fail-1');
  const ids = [...(await targetsIn(database.db, runId)).values()].map(({ id }) => id);
  const before = await pictureOf(database.db, { machine: ruleRunMachine, runId });
  expect(await faultOf(ask(runId, 'SKIP', [ids[0]!, ids[index] ?? '99999999']))).toMatchObject({ code });
  expect(await pictureOf(database.db, { machine: ruleRunMachine, runId })).toEqual(before);
});

test('a run sets itself back when its time has come, once, and one under way is stopped for it', async () => {
  const soon = new Date(Date.now() + 3_600_000);
  const make = (ids: string[]) =>
    makeQueuedRun(database.db, world.home, { targets: named(...ids), autoRevertAt: soon });
  const applied = await make(['a', 'b']);
  await drain(kind);
  const underWay = await makeQueuedRun(database.db, world.home, {
    targets: targetsOf(100, 'u'),
    autoRevertAt: soon,
  });
  const work = (await kind.claim('w'))!;
  const appliedCount = work.leases;
  await work.process(NEVER);
  const job = autoRevertJob(database.db);
  await job.run(NEVER);
  expect(await runOf(database.db, applied.id)).toMatchObject({ status: 'APPLIED', rollingBack: false });
  await database.db.query(
    'UPDATE rule_run SET auto_revert_at = clock_timestamp() WHERE auto_revert_at IS NOT NULL',
  );
  await job.run(NEVER);
  expect(await runOf(database.db, underWay.id)).toMatchObject({
    status: 'CANCELLED',
    rollingBack: true,
    appliedCount,
  });
  await drain(kind);
  for (const { id } of [applied, underWay]) {
    expect(await runOf(database.db, id)).toMatchObject({ status: 'ROLLED_BACK' });
    await expectInvariants(database.db, id);
  }
  await job.run(NEVER);
  const asked = (await typesOf(applied.id)).filter((type) => type === 'rule_run.ask_roll_back');
  expect(asked).toHaveLength(1);
});

test('a run that cannot be asked to set itself back keeps no other waiting, and is told', async () => {
  const soon = new Date(Date.now() + 3_600_000);
  const make = async (id: string) =>
    (await makeQueuedRun(database.db, world.home, { targets: named(id), autoRevertAt: soon })).id;
  const [broken, sound] = [await make('broken'), await make('sound')];
  await drain(kind);
  await database.db.query(
    `CREATE FUNCTION refuse_revert() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'out of order'; END $$;
     CREATE TRIGGER refuse_revert BEFORE UPDATE OF auto_reverted ON rule_run FOR EACH ROW
       WHEN (OLD.id = '${broken}') EXECUTE FUNCTION refuse_revert();
     UPDATE rule_run SET auto_revert_at = clock_timestamp() - interval '1 minute' WHERE id = '${broken}';
     UPDATE rule_run SET auto_revert_at = clock_timestamp() WHERE id = '${sound}'`,
  );
  const fault = await faultOf(autoRevertJob(database.db).run(NEVER));
  expect((fault as unknown as AggregateError).errors).toMatchObject([{ message: 'out of order' }]);
  await database.db.query('DROP TRIGGER refuse_revert ON rule_run');
  await drain(kind);
  expect(await runOf(database.db, sound)).toMatchObject({ status: 'ROLLED_BACK' });
  await autoRevertJob(database.db).run(NEVER);
  await drain(kind);
  expect(await runOf(database.db, broken)).toMatchObject({ status: 'ROLLED_BACK' });
});

describe('a sale that ends while the channel is away', () => {
  const soon = new Date(Date.now() + 3_600_000);
  const saleOf = async (...ids: string[]) => {
    const { id } = await makeQueuedRun(database.db, world.home, {
      targets: named(...ids),
      autoRevertAt: soon,
    });
    await drain(kind);
    return id;
  };
  async function comes(runId: string, column: string, time = 'clock_timestamp()'): Promise<void> {
    await database.db.query(`UPDATE rule_run SET ${column} = ${time} WHERE id = $1`, [runId]);
    await autoRevertJob(database.db).run(NEVER);
    await drain(kind);
  }
  const countsOf = async (runId: string) =>
    (await linesOf(database.db, runId))
      .filter(({ type }) => type === 'rule_run.ask_roll_back')
      .map(({ payload }) => payload['count']);

  test('ends when it is back; of what stands for another reason it does not ask again', async () => {
    const runId = await saleOf('flaky1-a', 'b', 'sold');
    await change('sold', '99.00');
    await sandbox.stop();
    await comes(runId, 'auto_revert_at');
    expect(await runOf(database.db, runId)).toMatchObject({
      status: 'APPLIED',
      rollingBack: false,
      error: expect.stringMatching(/^3 targets were not set back: 3 UPSTREAM; they are asked for again at /),
    });
    expect((await linesOf(database.db, runId)).at(-1)).toMatchObject({
      type: 'rule_run.end_roll_back',
      level: 'WARN',
      payload: { left: 3, againAt: expect.any(String) },
    });
    await autoRevertJob(database.db).run(NEVER);
    expect(await countsOf(runId)).toEqual([3]);

    sandbox = await startSandbox({ state: shop });
    await pointAt(database.db, sandbox);
    await database.db.query(
      `UPDATE channel SET config = config || '{"policy": {"retry": {"maxAttempts": 1}}}', updated_at = clock_timestamp()
       WHERE id = $1`,
      [world.home.channelId],
    );
    await comes(runId, 'revert_again_at');
    expect(await stateOf(runId)).toEqual([
      ['flaky1-a', 'APPLIED', 'UPSTREAM'],
      ['b', 'ROLLED_BACK', null],
      ['sold', 'APPLIED', 'CONFLICT'],
    ]);
    await pointAt(database.db, sandbox);
    await comes(runId, 'revert_again_at');
    expect(await runOf(database.db, runId)).toMatchObject({
      rolledBackCount: 2,
      error: '1 target was not set back: 1 CONFLICT',
    });
    await comes(runId, 'revert_again_at');
    expect(await countsOf(runId)).toEqual([3, 3, 1]);
    expect(await priceOf('sold')).toBe('99.00');
    await expectInvariants(database.db, runId);
  });

  test('a day later it is left as it is', async () => {
    const runId = await saleOf('a');
    await sandbox.stop();
    await comes(runId, 'auto_revert_at', `clock_timestamp() - interval '25 hours'`);
    expect(await runOf(database.db, runId)).toMatchObject({ error: '1 target was not set back: 1 UPSTREAM' });
    await comes(runId, 'revert_again_at');
    expect(await countsOf(runId)).toEqual([1]);
  });
});

test('a run with a startAt waits for it', async () => {
  const startAt = new Date(Date.now() + 3_600_000);
  const run = await makeQueuedRun(database.db, world.home, { startAt });
  expect(await kind.claim('w')).toBeNull();
  expect(await kind.nextDueMs()).toBeGreaterThan(3_000_000);
  await database.db.query('UPDATE rule_run SET start_at = clock_timestamp() WHERE id = $1', [run.id]);
  await drain(kind);
  expect(await runOf(database.db, run.id)).toMatchObject({ status: 'APPLIED' });
});
