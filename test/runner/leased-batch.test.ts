// Settling a batch when the database does not say how that went, or when some of its leases are lost: what is told
// of it is what happened.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Settlement } from '../../src/domain/rule-target.js';
import { LeasedBatch } from '../../src/runner/leased-batch.js';
import type { SettledBatch } from '../../src/runner/observer.js';
import { claimTargets, type Claim } from '../../src/store/claim.js';
import { Database } from '../../src/store/db.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { DatabaseProxy } from '../events/database-proxy.js';
import { expectInvariants } from '../store/invariants.js';
import { linesOf } from '../store/rows.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { HOUR, NEVER, targetsIn } from './shop-world.js';
import { KeptLog } from './support.js';

const SUCCEED: Settlement = { event: 'succeed' };
const RETRY: Settlement = { event: 'retry', delayMs: HOUR, code: 'UPSTREAM', message: 'away' };
const EXHAUST: Settlement = { event: 'exhaust', code: 'INVALID', message: 'no' };

let database: TestDatabase;
let world: World;
let log: KeptLog;
let told: SettledBatch['events'][];

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(() => {
  log = new KeptLog();
  told = [];
});
afterAll(() => database.drop());

async function claimAll(runId: string): Promise<Claim> {
  return (await claimTargets(database.db, { runId, workerId: 'w', limit: 10, leaseMs: HOUR }))!;
}

async function claimNew(): Promise<Claim> {
  return claimAll((await makeQueuedRun(database.db, world.home, { targets: targetsOf(3) })).id);
}

async function settle(db: Database, claim: Claim, settlements: readonly Settlement[]): Promise<void> {
  const observer = { onSettle: ({ events }: SettledBatch) => void told.push(events) };
  const batch = new LeasedBatch({ db, claim, leaseMs: HOUR, log, observer }, NEVER, async () => {});
  batch.settle(
    claim.targets.map(({ id: targetId }, index) => ({ targetId, settlement: settlements[index]! })),
  );
  await batch.end();
}

/** The same when the answer to the first commit is lost. */
async function settleUnanswered(claim: Claim, settlements: readonly Settlement[]): Promise<void> {
  const proxy = await DatabaseProxy.start(database.url);
  const db = new Database({ url: proxy.url });
  let isLost = false;
  proxy.onSent = (connection, bytes) => {
    // With its end, to tell it from READ COMMITTED.
    if (isLost || !bytes.includes('COMMIT\0')) return;
    isLost = true;
    proxy.loseAnswer(connection);
  };
  await settle(db, claim, settlements);
  expect(isLost).toBe(true);
  await db.close();
  await proxy.stop();
}

const linesAfter = async ({ runId }: Claim, seq: number) =>
  (await linesOf(database.db, runId)).filter((line) => line.seq > seq).map(({ type }) => type);
const seqOf = async ({ runId }: Claim) => (await linesOf(database.db, runId)).at(-1)!.seq;

test('results whose commit was not answered are told once, and none as late', async () => {
  const claim = await claimNew();
  const seq = await seqOf(claim);
  await settleUnanswered(claim, [SUCCEED, RETRY, EXHAUST]);
  expect((await linesAfter(claim, seq)).sort()).toEqual([
    'rule_target.exhaust',
    'rule_target.retry',
    'rule_target.succeed',
  ]);
  expect(told).toEqual([{ succeed: 1, retry: 1, exhaust: 1 }]);
  expect(log.entries).toEqual([]);
  await expectInvariants(database.db, claim.runId);
});

test('nor are those of a rollback', async () => {
  const applied = await claimNew();
  await settle(database.db, applied, [SUCCEED, SUCCEED, SUCCEED]);
  told = [];
  const request = {
    runId: applied.runId,
    targetIds: null,
    onConflict: 'SKIP',
    idempotencyKey: null,
  } as const;
  await rollBackRuleRun(database.db, world.home.viewer, request);
  const claim = await claimAll(applied.runId);
  const seq = await seqOf(claim);
  await settleUnanswered(claim, [SUCCEED, RETRY, EXHAUST]);
  expect((await linesAfter(claim, seq)).sort()).toEqual([
    'rule_target.roll_back',
    'rule_target.roll_back_fail',
    'rule_target.roll_back_retry',
  ]);
  expect(told).toEqual([{ succeed: 1, retry: 1, exhaust: 1 }]);
  expect(log.entries).toEqual([]);
  await expectInvariants(database.db, claim.runId);
});

test('a result that came when the lease was lost is told as late, and not counted as settled', async () => {
  const claim = await claimNew();
  const [{ id: lost } = { id: '' }] = claim.targets;
  await database.db.query(
    `UPDATE rule_target SET status = 'QUEUED', attempts = attempts - 1, lost_leases = 1 WHERE id = $1`,
    [lost],
  );
  const seq = await seqOf(claim);
  await settle(database.db, claim, [SUCCEED, SUCCEED, RETRY]);
  expect((await linesAfter(claim, seq)).sort()).toEqual([
    'rule_target.late_result',
    'rule_target.retry',
    'rule_target.succeed',
  ]);
  expect(told).toEqual([{ succeed: 1, retry: 1 }]);
  expect(log.entries).toMatchObject([{ level: 'warn', details: { lost: 1 } }]);
  expect((await targetsIn(database.db, claim.runId)).get('sku-1')).toMatchObject({ status: 'QUEUED' });
});
