// Claims one by one: what may be claimed and in which order, what a lease is, who may settle it, and what
// becomes of one that is handed back or lost.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { Settlement } from '../../src/domain/rule-target.js';
import {
  claimTargets,
  extendLeases,
  findClaimableRun,
  nextClaimDelayMs,
  type Claim,
} from '../../src/store/claim.js';
import { releaseTargets, settleIfClaimed } from '../../src/store/settle.js';
import { MAX_LOST_LEASES, recoverLeases, type RecoveredRun } from '../../src/store/recover.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, makeRuleRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { expectInvariants } from './invariants.js';
import { linesOf, type Row } from './rows.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterEach(() => database.db.query('UPDATE rule_run SET paused = true'));
afterAll(() => database.drop());

const makeRun = (count: number) => makeQueuedRun(database.db, world.home, { targets: targetsOf(count) });

function claim(runId: string, limit: number, workerId = 'w', leaseMs = 60_000): Promise<Claim | null> {
  return claimTargets(database.db, { runId, workerId, limit, leaseMs });
}

async function mustClaim(...request: Parameters<typeof claim>): Promise<Claim> {
  const claimed = await claim(...request);
  if (!claimed) throw new Error('nothing was claimed');
  return claimed;
}

async function settle(claimed: Claim, settlement: Settlement, targets = claimed.targets): Promise<number> {
  const settled = targets.map(({ id }) => ({ targetId: id, settlement }));
  return settled.length - (await settleIfClaimed(database.db, claimed, settled)).late.length;
}

const idsOf = ({ targets }: Claim) => targets.map(({ id }) => id);
const numbersOf = ({ targets }: Claim) => targets.map(({ externalId }) => Number(externalId.split('-')[1]));
const retry = (delayMs: number): Settlement => ({
  event: 'retry',
  delayMs,
  code: 'UPSTREAM',
  message: '503',
});

async function rowsOf(runId: string): Promise<Row[]> {
  return database.db.query<Row>('SELECT * FROM rule_target WHERE run_id = $1 ORDER BY id', [runId]);
}

async function runRow(runId: string): Promise<Row> {
  return (await database.db.query<Row>('SELECT * FROM rule_run WHERE id = $1', [runId]))[0]!;
}

function expireLeases(runId: string): Promise<unknown> {
  return database.db.query(
    `WITH floor AS (UPDATE rule_run SET lease_floor = clock_timestamp() WHERE id = $1)
     UPDATE rule_target SET lease_until = clock_timestamp() WHERE run_id = $1 AND lease_owner IS NOT NULL`,
    [runId],
  );
}

test('a claim takes the lowest ids first, up to its limit, and starts the run', async () => {
  const { id } = await makeRun(10);
  const first = await mustClaim(id, 4, 'w-1');
  expect(numbersOf(first).toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4]);
  expect(first).toMatchObject({ workerId: 'w-1', runId: id, tenantId: 'default' });
  const second = await mustClaim(id, 4, 'w-2');
  expect(numbersOf(second).toSorted((a, b) => a - b)).toEqual([5, 6, 7, 8]);
  expect(second.epoch).not.toBe(first.epoch);
  expect(await runRow(id)).toMatchObject({ status: 'APPLYING', applying_count: 8, queued_count: 2 });
  const [row] = await rowsOf(id);
  expect(row).toMatchObject({
    status: 'APPLYING',
    attempts: 1,
    lease_owner: 'w-1',
    lease_epoch: first.epoch,
  });
  expect(numbersOf(await mustClaim(id, 4)).length).toBe(2);
  expect(await claim(id, 4)).toBeNull();
  await expectInvariants(database.db, id);
});

test.each(['PREVIEW', 'paused', 'APPLIED'])('a run that is %s gives nothing', async (what) => {
  const run = what === 'PREVIEW' ? await makeRuleRun(database.db, world.home) : await makeRun(3);
  if (what === 'paused') await database.db.query('UPDATE rule_run SET paused = true WHERE id = $1', [run.id]);
  if (what === 'APPLIED') await settle(await mustClaim(run.id, 10), { event: 'succeed' });
  expect(await claim(run.id, 10)).toBeNull();
  expect((await findClaimableRun(database.db))?.runId).not.toBe(run.id);
});

test('runs are served by priority, then the one that was served least recently', async () => {
  const [a, b, c] = [await makeRun(5), await makeRun(5), await makeRun(5)];
  await database.db.query('UPDATE rule_run SET priority = 1 WHERE id = $1', [c!.id]);
  const served: string[] = [];
  for (;;) {
    const found = await findClaimableRun(database.db);
    if (!found) break;
    served.push(found.runId);
    await claim(found.runId, 2);
  }
  expect(served).toEqual([c, c, c, a, b, a, b, a, b].map((run) => run!.id));
});

test('what a retry returns is claimed again when it is due, before what was never tried', async () => {
  const { id } = await makeRun(6);
  const first = await mustClaim(id, 2);
  await settle(first, retry(0), first.targets.slice(0, 1));
  await settle(first, retry(3_600_000), first.targets.slice(1));
  const second = await mustClaim(id, 2);
  expect(second.targets).toContainEqual(expect.objectContaining({ id: first.targets[0]!.id, attempts: 2 }));
  const third = await mustClaim(id, 10);
  expect(idsOf(third)).toHaveLength(3);
  expect(await claim(id, 10)).toBeNull();
  // The one that waits decides when anybody looks again.
  const ms = await nextClaimDelayMs(database.db);
  expect(ms).toBeGreaterThan(3_000_000);
  await database.db.query(
    `UPDATE rule_target SET next_attempt_at = clock_timestamp() WHERE run_id = $1 AND next_attempt_at IS NOT NULL`,
    [id],
  );
  await database.db.query('UPDATE rule_run SET next_claim_at = clock_timestamp() WHERE id = $1', [id]);
  expect(idsOf(await mustClaim(id, 10))).toEqual([first.targets[1]!.id]);
  await expectInvariants(database.db, id);
});

test('a target that somebody had locked when it was passed over is found again', async () => {
  const { id } = await makeRun(4);
  const [, locked] = await rowsOf(id);
  await database.db.transaction('test', async (connection) => {
    await connection.query('SELECT 1 FROM rule_target WHERE id = $1 FOR UPDATE', [locked!['id']]);
    expect(idsOf(await mustClaim(id, 4))).toHaveLength(3);
  });
  const row = await runRow(id);
  expect(row['next_claim_at']).not.toBeNull();
  await database.db.query('UPDATE rule_run SET next_claim_at = clock_timestamp() WHERE id = $1', [id]);
  expect(idsOf(await mustClaim(id, 4))).toEqual([String(locked!['id'])]);
});

test('only the claim that holds a lease settles it; a late result is a line, not a state', async () => {
  const { id } = await makeRun(2);
  const lost = await mustClaim(id, 2, 'slow');
  await expireLeases(id);
  expect(await recoverLeases(database.db, [])).toBe(2);
  const held = await mustClaim(id, 2, 'quick');
  const before = await rowsOf(id);
  expect(await settle(lost, { event: 'succeed' })).toBe(0);
  expect(await rowsOf(id)).toEqual(before);
  const late = (await linesOf(database.db, id)).filter(({ type }) => type === 'rule_target.late_result');
  expect(late).toMatchObject([
    { actor: 'slow', level: 'WARN', payload: { epoch: lost.epoch, result: { event: 'succeed' } } },
    { actor: 'slow', level: 'WARN', payload: { epoch: lost.epoch, result: { event: 'succeed' } } },
  ]);
  // The same worker under another claim is another worker.
  expect(await settle({ ...held, epoch: held.epoch - 1 }, { event: 'succeed' })).toBe(0);
  expect(await settle(held, { event: 'succeed' })).toBe(2);
  expect(await runRow(id)).toMatchObject({ status: 'APPLIED' });
  await expectInvariants(database.db, id);
});

test('a lease that is handed back costs no attempt; one that is not ours stays', async () => {
  const { id } = await makeRun(3);
  const claimed = await mustClaim(id, 3);
  await releaseTargets(database.db, { ...claimed, epoch: 99 }, idsOf(claimed));
  expect(await runRow(id)).toMatchObject({ applying_count: 3 });
  await releaseTargets(database.db, claimed, idsOf(claimed).slice(1));
  const [first, ...others] = await rowsOf(id);
  expect(first).toMatchObject({ status: 'APPLYING', attempts: 1 });
  for (const row of others) expect(row).toMatchObject({ status: 'QUEUED', attempts: 0, lease_owner: null });
  expect((await mustClaim(id, 3)).targets.map(({ attempts }) => attempts)).toEqual([1, 1]);
  await expectInvariants(database.db, id);
});

test('an extended lease outlives its first term', async () => {
  const { id } = await makeRun(2);
  const claimed = await mustClaim(id, 2, 'w', 1);
  await extendLeases(database.db, claimed, idsOf(claimed).slice(0, 1), 3_600_000);
  await expireLeasesThatAreOver(id);
  const [kept, lost] = await rowsOf(id);
  expect([kept!['status'], lost!['status']]).toEqual(['APPLYING', 'QUEUED']);
  await expectInvariants(database.db, id);
});

async function expireLeasesThatAreOver(id: string): Promise<void> {
  while ((await recoverLeases(database.db, [])) === 0) {
    expect((await runRow(id))['status']).toBe('APPLYING');
  }
}

test('a lost lease costs no attempt, but a target that loses it again and again is given up', async () => {
  const { id } = await makeRun(1);
  for (let lost = 1; lost <= MAX_LOST_LEASES; lost += 1) {
    await mustClaim(id, 1);
    await expireLeases(id);
    const told: RecoveredRun[] = [];
    expect(await recoverLeases(database.db, [], (run) => told.push(run))).toBe(1);
    const [row] = await rowsOf(id);
    expect(row).toMatchObject({ lost_leases: lost, error_code: 'LEASE_EXPIRED' });
    const isLast = lost === MAX_LOST_LEASES;
    const runMs = isLast ? (expect.any(Number) as number) : null;
    expect(told).toEqual([{ runId: id, givenUp: isLast ? 1 : 0, runMs }]);
    expect(row).toMatchObject(
      lost < MAX_LOST_LEASES ? { status: 'QUEUED', attempts: 0 } : { status: 'FAILED', attempts: 1 },
    );
  }
  expect(await runRow(id)).toMatchObject({ status: 'FAILED' });
  await expectInvariants(database.db, id);
});

test("a dead worker's leases are taken back at once, everybody else's are not", async () => {
  const { id } = await makeRun(6);
  await mustClaim(id, 2, 'dead');
  await mustClaim(id, 2, 'living');
  expect(await recoverLeases(database.db, [])).toBe(0);
  expect(await recoverLeases(database.db, ['dead'])).toBe(2);
  expect(await runRow(id)).toMatchObject({ applying_count: 2, queued_count: 4 });
  await expectInvariants(database.db, id);
});
