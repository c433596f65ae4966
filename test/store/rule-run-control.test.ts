// What a person asks of a run while targets of it are in flight: what each of them comes to, and what the
// run is then.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { Settlement } from '../../src/domain/rule-target.js';
import { claimTargets, type Claim } from '../../src/store/claim.js';
import { recoverLeases } from '../../src/store/recover.js';
import {
  cancelRuleRun,
  pauseRuleRun,
  resumeRuleRun,
  retryFailedTargets,
  retryRuleRun,
} from '../../src/store/rule-run-control.js';
import { releaseTargets, settleIfClaimed } from '../../src/store/settle.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, makeRuleRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { expectInvariants } from './invariants.js';
import { faultOf, linesOf, pictureOf } from './rows.js';
import { allowedActions, ruleRunMachine } from '../../src/domain/rule-run.js';
import { countsOf, findRuleRun } from '../../src/store/rule-run-row.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterEach(() => database.db.query('UPDATE rule_run SET paused = true'));
afterAll(() => database.drop());

const SUCCEED: Settlement = { event: 'succeed' };
const RETRY: Settlement = { event: 'retry', delayMs: 0, code: 'UPSTREAM', message: 'HTTP 503' };
const EXHAUST: Settlement = { event: 'exhaust', code: 'INVALID', message: 'no such item' };

const viewer = () => world.home.viewer;
const asked = (runId: string, idempotencyKey: string | null = null) => ({ runId, idempotencyKey });
const makeRun = (count: number) => makeQueuedRun(database.db, world.home, { targets: targetsOf(count) });

async function claim(runId: string, limit: number): Promise<Claim> {
  return (await claimTargets(database.db, { runId, workerId: 'w', limit, leaseMs: 60_000 }))!;
}

function settle(claimed: Claim, ...settlements: Settlement[]): Promise<unknown> {
  const settled = settlements.map((settlement, index) => ({
    targetId: claimed.targets[index]!.id,
    settlement,
  }));
  return settleIfClaimed(database.db, claimed, settled);
}

async function statusesOf(runId: string): Promise<[string, number, string | null][]> {
  const rows = await database.db.query<{ status: string; attempts: number; code: string | null }>(
    'SELECT status, attempts, error_code AS code FROM rule_target WHERE run_id = $1 ORDER BY id',
    [runId],
  );
  return rows.map(({ status, attempts, code }) => [status, attempts, code]);
}

/** A run that ended with the first targets failed and the rest applied. */
async function endedRun(failed: number, applied: number) {
  const { id } = await makeRun(failed + applied);
  const claimed = await claim(id, failed + applied);
  const byId = claimed.targets.toSorted((a, b) => Number(a.id) - Number(b.id));
  await settle(
    { ...claimed, targets: byId },
    ...Array<Settlement>(failed).fill(EXHAUST),
    ...Array<Settlement>(applied).fill(SUCCEED),
  );
  return { id, targetIds: byId.map((target) => target.id) };
}

describe('cancel', () => {
  test('a preview, or a run that waits, takes its targets along', async () => {
    const preview = await makeRuleRun(database.db, world.home, { targets: targetsOf(2) });
    const queued = await makeRun(2);
    for (const { id } of [preview, queued]) {
      const run = await cancelRuleRun(database.db, viewer(), asked(id));
      expect(run).toMatchObject({ status: 'CANCELLED', cancelledCount: 2, totalCount: 2 });
      expect(run.finishedAt).not.toBeNull();
      await expectInvariants(database.db, id);
    }
  });

  test('what is in flight settles with its true result; what would be tried again is cancelled', async () => {
    const { id } = await makeRun(6);
    const claimed = await claim(id, 4);
    expect(await cancelRuleRun(database.db, viewer(), asked(id))).toMatchObject({
      status: 'CANCELLED',
      cancelledCount: 2,
      applyingCount: 4,
    });
    expect(await claimTargets(database.db, { runId: id, workerId: 'w', limit: 4, leaseMs: 1 })).toBeNull();
    await settle(claimed, SUCCEED, EXHAUST, RETRY);
    await releaseTargets(database.db, claimed, [claimed.targets[3]!.id]);
    const run = await cancelledRun(id);
    expect(run).toMatchObject({ status: 'CANCELLED', applied_count: 1, failed_count: 1, cancelled_count: 4 });
    const histories = (await linesOf(database.db, id)).filter(({ type }) => type === 'rule_target.cancel');
    expect(histories).toHaveLength(4);
    await expectInvariants(database.db, id);
  });

  test('a lease that is lost after it is cancelled, not tried again', async () => {
    const { id } = await makeRun(1);
    await claim(id, 1);
    await cancelRuleRun(database.db, viewer(), asked(id));
    expect(await recoverLeases(database.db, ['w'])).toBe(1);
    expect(await statusesOf(id)).toEqual([['CANCELLED', 0, 'LEASE_EXPIRED']]);
    await expectInvariants(database.db, id);
  });

  async function cancelledRun(id: string) {
    return (await pictureOf(database.db, { machine: ruleRunMachine, runId: id })).run;
  }
});

describe('pause', () => {
  test('stops claims at once and resume lets them go on; what is in flight settles', async () => {
    const { id } = await makeRun(4);
    const claimed = await claim(id, 2);
    expect(await pauseRuleRun(database.db, viewer(), asked(id))).toMatchObject({
      paused: true,
      status: 'APPLYING',
    });
    expect(await claimTargets(database.db, { runId: id, workerId: 'w', limit: 2, leaseMs: 1 })).toBeNull();
    await settle(claimed, SUCCEED, RETRY);
    expect(await resumeRuleRun(database.db, viewer(), asked(id))).toMatchObject({ paused: false });
    expect((await claim(id, 10)).targets).toHaveLength(3);
    const types = (await linesOf(database.db, id)).map(({ type }) => type);
    expect(types.filter((type) => /pause|resume/.test(type))).toEqual(['rule_run.pause', 'rule_run.resume']);
    await expectInvariants(database.db, id);
  });

  test('twice is once; a run that ends while it is paused is not paused any more', async () => {
    const { id } = await makeRun(1);
    const claimed = await claim(id, 1);
    await pauseRuleRun(database.db, viewer(), asked(id));
    const { lastSeq } = await pauseRuleRun(database.db, viewer(), asked(id));
    await settle(claimed, SUCCEED);
    const { run } = await pictureOf(database.db, { machine: ruleRunMachine, runId: id });
    expect(run).toMatchObject({ status: 'APPLIED', paused: false, last_seq: lastSeq + 2 });
  });
});

describe('retry', () => {
  test('of a partial run requeues every failed target, from its first attempt', async () => {
    const { id } = await endedRun(2, 1);
    const run = await retryFailedTargets(database.db, viewer(), { ...asked(id), targetIds: null });
    expect(run).toMatchObject({ status: 'APPLYING', queuedCount: 2, appliedCount: 1, finishedAt: null });
    expect(await statusesOf(id)).toEqual([
      ['QUEUED', 0, null],
      ['QUEUED', 0, null],
      ['APPLIED', 1, null],
    ]);
    await settle(await claim(id, 10), SUCCEED, SUCCEED);
    const { run: now } = await pictureOf(database.db, { machine: ruleRunMachine, runId: id });
    expect(now).toMatchObject({ status: 'APPLIED', applied_count: 3, error: null });
    await expectInvariants(database.db, id);
  });

  test('of some targets leaves the others failed', async () => {
    const { id, targetIds } = await endedRun(3, 1);
    const request = { ...asked(id), targetIds: [targetIds[1]!] };
    expect(await retryFailedTargets(database.db, viewer(), request)).toMatchObject({
      queuedCount: 1,
      failedCount: 2,
    });
    await settle(await claim(id, 10), SUCCEED);
    const { run } = await pictureOf(database.db, { machine: ruleRunMachine, runId: id });
    expect(run).toMatchObject({ status: 'PARTIAL', failed_count: 2 });
    await expectInvariants(database.db, id);
  });

  test('of a failed run requeues all of it; the run had said what failed it', async () => {
    const { id } = await endedRun(2, 0);
    const { run } = await pictureOf(database.db, { machine: ruleRunMachine, runId: id });
    expect(run).toMatchObject({
      status: 'FAILED',
      error: 'Every target failed, the last one with: no such item',
    });
    expect(await retryRuleRun(database.db, viewer(), asked(id))).toMatchObject({
      status: 'APPLYING',
      queuedCount: 2,
      error: null,
    });
    await expectInvariants(database.db, id);
  });

  test.each([
    {
      name: 'a target that did not fail',
      pick: (ids: string[]) => [ids[1]!, ids[2]!],
      code: 'ILLEGAL_TRANSITION',
    },
    { name: 'a target of no run', pick: () => ['999999999'], code: 'NOT_FOUND' },
    { name: 'an id that is none', pick: () => ['nonsense'], code: 'NOT_FOUND' },
    { name: 'nothing', pick: () => [], code: 'INVALID_INPUT' },
    { name: 'too many', pick: () => Array<string>(10_001).fill('1'), code: 'LIMIT_EXCEEDED' },
  ])('of $name is refused, and nothing is changed', async ({ pick, code }) => {
    const { id, targetIds } = await endedRun(2, 1);
    const before = await pictureOf(database.db, { machine: ruleRunMachine, runId: id });
    const request = { ...asked(id), targetIds: pick(targetIds) };
    expect(await faultOf(retryFailedTargets(database.db, viewer(), request))).toMatchObject({ code });
    expect(await pictureOf(database.db, { machine: ruleRunMachine, runId: id })).toEqual(before);
  });
});

test('a key makes a repeat harmless, and another input under it is refused', async () => {
  const { id, targetIds } = await endedRun(2, 1);
  const request = { ...asked(id, 'k'), targetIds: [targetIds[0]!] };
  await retryFailedTargets(database.db, viewer(), request);
  await settle(await claim(id, 10), EXHAUST);
  const before = await pictureOf(database.db, { machine: ruleRunMachine, runId: id });
  expect(await retryFailedTargets(database.db, viewer(), request)).toMatchObject({ status: 'PARTIAL' });
  expect(await pictureOf(database.db, { machine: ruleRunMachine, runId: id })).toEqual(before);
  const other = { ...request, targetIds: null };
  expect(await faultOf(retryFailedTargets(database.db, viewer(), other))).toMatchObject({
    code: 'IDEMPOTENCY_MISMATCH',
  });
});

test("another tenant's run is not there", async () => {
  const { id } = await makeRun(1);
  for (const verb of [cancelRuleRun, pauseRuleRun, resumeRuleRun, retryRuleRun]) {
    expect(await faultOf(verb(database.db, world.other.viewer, asked(id)))).toMatchObject({
      code: 'NOT_FOUND',
    });
  }
});

test('what was to be set back by now is not tried again', async () => {
  const overrides = { targets: targetsOf(2), autoRevertAt: new Date(Date.now() + 3_600_000) };
  const { id: runId } = await makeQueuedRun(database.db, world.home, overrides);
  await settle(await claim(runId, 2), SUCCEED, EXHAUST);
  await database.db.query('UPDATE rule_run SET auto_revert_at = clock_timestamp() WHERE id = $1', [runId]);
  const before = await pictureOf(database.db, { machine: ruleRunMachine, runId });
  const retry = retryFailedTargets(database.db, viewer(), { ...asked(runId), targetIds: null });
  expect(await faultOf(retry)).toMatchObject({
    code: 'INVALID_INPUT',
    message: expect.stringContaining('which is over'),
  });
  expect(await pictureOf(database.db, { machine: ruleRunMachine, runId })).toEqual(before);
  const run = (await findRuleRun(database.db, viewer(), runId))!;
  expect(allowedActions({ ...run, counts: countsOf(run) }, new Date())).toEqual(['ROLL_BACK', 'RECONCILE']);
});
