// Claims under load: many workers at once, some of them slow or dead, never share a target, never lose one,
// never meet a deadlock, and leave a run whose every invariant holds.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Settlement } from '../../src/domain/rule-target.js';
import { claimTargets, extendLeases, type Claim } from '../../src/store/claim.js';
import { Database } from '../../src/store/db.js';
import { releaseTargets, settleIfClaimed } from '../../src/store/settle.js';
import { recoverLeases } from '../../src/store/recover.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { expectInvariants } from './invariants.js';
import { countDeadlocks } from './locks.js';
import { seededRandom } from './random.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

test('concurrent claimers never share a target', async () => {
  const { id: runId } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(600) });
  const claims: Claim[] = [];
  const claimer = async (workerId: string): Promise<void> => {
    for (;;) {
      const claim = await claimTargets(database.db, { runId, workerId, limit: 7, leaseMs: 60_000 });
      if (!claim) return;
      claims.push(claim);
    }
  };
  await Promise.all(Array.from({ length: 12 }, (_, index) => claimer(`w-${index}`)));
  const ids = claims.flatMap(({ targets }) => targets.map(({ id }) => id));
  expect(ids).toHaveLength(600);
  expect(new Set(ids).size).toBe(600);
  expect(new Set(claims.map(({ epoch }) => epoch)).size).toBe(claims.length);
  await expectInvariants(database.db, runId);
});

test.each([1, 2, 3])('claim × settle × extend × release × recover, seed %i', async (seed) => {
  const random = seededRandom(seed);
  const { id: runId } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(300) });
  const before = await countDeadlocks(database.db);
  const db = new Database({ url: database.url });
  let isOver = false;

  const settlementOf = (attempts: number): Settlement => {
    const roll = random();
    if (roll < 0.7) return { event: 'succeed' };
    if (roll < 0.9 && attempts < 3) return { event: 'retry', delayMs: 0, code: 'UPSTREAM', message: 'x' };
    return { event: 'exhaust', code: 'INVALID', message: 'x' };
  };

  const work = async (claim: Claim): Promise<void> => {
    const ids = claim.targets.map(({ id }) => id);
    const settled = claim.targets.map(({ id, attempts }) => ({
      targetId: id,
      settlement: settlementOf(attempts),
    }));
    const half = Math.floor(settled.length / 2);
    const roll = random();
    // Died: nothing is heard of it again.
    if (roll < 0.1) return;
    if (roll < 0.2) return releaseTargets(db, claim, ids);
    await Promise.all([
      settleIfClaimed(db, claim, settled.slice(0, half)),
      extendLeases(db, claim, ids, 60_000),
    ]);
    await settleIfClaimed(db, claim, settled.slice(half).toReversed());
  };

  const worker = async (workerId: string): Promise<void> => {
    while (!isOver) {
      const claim = await claimTargets(db, { runId, workerId, limit: 11, leaseMs: 60_000 });
      if (claim) await work(claim);
      else await new Promise(setImmediate);
    }
  };

  // Declares one worker dead after the other, though some of them live: their leases are lost under them.
  const reaper = async (): Promise<void> => {
    for (let turn = 0; !isOver; turn += 1) {
      await recoverLeases(db, [`w-${turn % 8}`]);
      await db.query(
        'UPDATE rule_run SET next_claim_at = least(next_claim_at, clock_timestamp()) WHERE id = $1',
        [runId],
      );
      const [run] = await db.query<{ open: boolean }>(
        `SELECT status IN ('QUEUED', 'APPLYING') AS open FROM rule_run WHERE id = $1`,
        [runId],
      );
      isOver = !run!.open;
    }
  };

  await Promise.all([reaper(), ...Array.from({ length: 8 }, (_, index) => worker(`w-${index}`))]);
  // What a session counted is known when it has ended.
  await db.close();
  expect(await countDeadlocks(database.db)).toBe(before);
  await expectInvariants(database.db, runId);
});
