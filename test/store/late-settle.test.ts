// A worker that reports targets which it is just losing. Its statement waits for whoever takes them back, and has
// locked them by the time it sees that they are not its own any more; then it waits for the run. Whoever holds the
// run and waits for those targets would wait for ever, but for PostgreSQL, which ends one of the two.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type pg from 'pg';
import { claimTargets, type Claim } from '../../src/store/claim.js';
import { Database } from '../../src/store/db.js';
import { cancelRuleRun } from '../../src/store/rule-run-control.js';
import { releaseTargets, settleIfClaimed } from '../../src/store/settle.js';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { expectInvariants } from './invariants.js';
import { countDeadlocks, untilBlocked } from './locks.js';

let database: TestDatabase;
let world: World;
/** Of the sessions that meet; ended before deadlocks are counted. */
let db: Database;
let claim: Claim;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

beforeEach(async () => {
  db = new Database({ url: database.url });
  const { id: runId } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(4) });
  claim = (await claimTargets(db, { runId, workerId: 'w-1', limit: 4, leaseMs: 60_000 }))!;
});

const idsOf = ({ targets }: Claim): string[] => targets.map(({ id }) => id);

const settle = (): Promise<unknown> =>
  settleIfClaimed(
    db,
    claim,
    idsOf(claim).map((targetId) => ({ targetId, settlement: { event: 'succeed' } as const })),
  );
const release = (): Promise<unknown> => releaseTargets(db, claim, idsOf(claim));
const cancel = (): Promise<unknown> =>
  cancelRuleRun(db, world.home.viewer, { runId: claim.runId, idempotencyKey: null });

/** Lets both begin, in this order, while all targets of the claim but the first are being taken back. */
async function meet(first: () => Promise<unknown>, second: () => Promise<unknown>): Promise<void> {
  const deadlocks = await countDeadlocks(database.db);
  const holder = await connect(database.url);
  await holder.query('BEGIN');
  await holder.query('SELECT 1 FROM rule_run WHERE id = $1 FOR NO KEY UPDATE', [claim.runId]);
  await holder.query(
    `UPDATE rule_target SET status = 'QUEUED', attempts = attempts - 1, lost_leases = lost_leases + 1
     WHERE id = ANY($1::bigint[])`,
    [idsOf(claim).slice(1)],
  );
  const begun = [first()];
  await untilBlocked(database.db, 1);
  begun.push(second());
  await untilBlocked(database.db, 2);
  await holder.query('COMMIT');
  await holder.end();
  await Promise.all(begun);
  await db.close();
  expect(await countDeadlocks(database.db)).toBe(deadlocks);
  await expectInvariants(database.db, claim.runId);
}

async function statuses(): Promise<string[]> {
  const rows = await database.db.query<{ status: string }>(
    'SELECT status FROM rule_target WHERE run_id = $1 ORDER BY id',
    [claim.runId],
  );
  return rows.map(({ status }) => status);
}

describe('while its targets are taken back, and the run is cancelled', () => {
  test('a report after the request keeps what is true of the target that is left', async () => {
    await meet(cancel, settle);
    expect(await statuses()).toEqual(['APPLIED', 'CANCELLED', 'CANCELLED', 'CANCELLED']);
  });

  test('a report before the request', async () => {
    await meet(settle, cancel);
    expect(await statuses()).toEqual(['APPLIED', 'CANCELLED', 'CANCELLED', 'CANCELLED']);
  });

  test('what is handed back after the request', async () => {
    await meet(cancel, release);
    expect(await statuses()).toEqual(['CANCELLED', 'CANCELLED', 'CANCELLED', 'CANCELLED']);
  });

  test('what is handed back before the request', async () => {
    await meet(release, cancel);
    expect(await statuses()).toEqual(['CANCELLED', 'CANCELLED', 'CANCELLED', 'CANCELLED']);
  });
});

test('a report of targets that somebody else has applied since, and now sets back', async () => {
  const [, second, third, last] = idsOf(claim);
  const others = { ...claim, purpose: 'roll_back', workerId: 'w-2', epoch: 1_000_000 } as const;
  const deadlocks = await countDeadlocks(database.db);
  const holder = await connect(database.url);
  const blocker = await connect(database.url);
  await blocker.query('BEGIN');
  await blocker.query('SELECT 1 FROM rule_target WHERE id = $1 FOR UPDATE', [last]);
  await holder.query('BEGIN');
  await leaseForRollBack(holder, [second!, third!], others);
  const late = settle();
  await untilBlocked(database.db, 1);
  await holder.query('COMMIT');
  // It has looked at these two, and locked them, when it comes to wait for the last.
  await untilBlocked(database.db, 1, blocker);
  const settled = settleIfClaimed(db, others, [
    { targetId: second!, settlement: { event: 'succeed' } },
    { targetId: third!, settlement: { event: 'succeed' } },
  ]);
  await untilBlocked(database.db, 2);
  await blocker.query('ROLLBACK');
  await Promise.all([late, settled]);
  await Promise.all([holder.end(), blocker.end(), db.close()]);
  expect(await countDeadlocks(database.db)).toBe(deadlocks);
  expect(await statuses()).toEqual(['APPLIED', 'ROLLED_BACK', 'ROLLED_BACK', 'APPLIED']);
  await expectInvariants(database.db, claim.runId);
});

test('a report of targets that somebody else reports too, the other way round', async () => {
  // So many that the database may take them as they are named, and not as it keeps them.
  const { id: runId } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(400) });
  claim = (await claimTargets(db, { runId, workerId: 'w-1', limit: 400, leaseMs: 60_000 }))!;
  const [first, ...lost] = idsOf(claim).toSorted((a, b) => Number(a) - Number(b));
  const deadlocks = await countDeadlocks(database.db);
  const blocker = await connect(database.url);
  const holder = await connect(database.url);
  await blocker.query('BEGIN');
  await blocker.query('SELECT 1 FROM rule_target WHERE id = $1 FOR UPDATE', [first]);
  const late = settle();
  await untilBlocked(database.db, 1, blocker);
  // While it waits for the first of them, the others are lost, and claimed by somebody else.
  await holder.query(
    `UPDATE rule_target SET status = 'QUEUED', attempts = attempts - 1, lost_leases = lost_leases + 1
     WHERE id = ANY($1::bigint[])`,
    [lost],
  );
  const others = (await claimTargets(db, { runId, workerId: 'w-2', limit: 400, leaseMs: 60_000 }))!;
  expect(others.targets).toHaveLength(lost.length);
  await holder.query('BEGIN');
  await holder.query('SELECT 1 FROM rule_target WHERE id = $1 FOR UPDATE', [lost[200]]);
  const settled = settleIfClaimed(
    db,
    others,
    lost
      .toReversed()
      .map((targetId) => ({ targetId, settlement: { event: 'exhaust', code: 'INVALID', message: 'x' } })),
  );
  await untilBlocked(database.db, 1, holder);
  await blocker.query('ROLLBACK');
  // Whichever of the two comes first now, the late one waits for a target that the other has or awaits.
  await untilBlocked(database.db, 2);
  await holder.query('ROLLBACK');
  await Promise.all([late, settled]);
  await Promise.all([holder.end(), blocker.end(), db.close()]);
  expect(await countDeadlocks(database.db)).toBe(deadlocks);
  expect(await statuses()).toEqual(['APPLIED', ...lost.map(() => 'FAILED')]);
  await expectInvariants(database.db, runId);
});

/** All that happens to targets until somebody has them in hand to set them back, at once. */
async function leaseForRollBack(holder: pg.Client, ids: readonly string[], by: Claim): Promise<void> {
  await holder.query(`UPDATE rule_target SET status = 'APPLIED' WHERE id = ANY($1::bigint[])`, [ids]);
  await holder.query(`UPDATE rule_run SET status = 'CANCELLED' WHERE id = $1`, [by.runId]);
  await holder.query(
    `UPDATE rule_run SET rolling_back = true, rollback_asked_at = clock_timestamp(), rollback_on_conflict = 'SKIP',
       next_claim_at = clock_timestamp()
     WHERE id = $1`,
    [by.runId],
  );
  await holder.query(
    `UPDATE rule_target SET lease_owner = $2, lease_epoch = $3, lease_until = clock_timestamp() + interval '1 minute',
       next_attempt_at = clock_timestamp() + interval '1 minute'
     WHERE id = ANY($1::bigint[])`,
    [ids, by.workerId, by.epoch],
  );
}
