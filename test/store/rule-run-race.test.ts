// Everything at once on the same runs: claims, settles, leases handed back, lost and extended, and people who
// cancel, pause, resume, retry and roll back. Whatever happens in whatever order, there is no deadlock, no
// target is lost, and every invariant holds at the end.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Settlement } from '../../src/domain/rule-target.js';
import { AppError } from '../../src/errors.js';
import { claimTargets, extendLeases, findClaimableRun, type Claim } from '../../src/store/claim.js';
import { Database } from '../../src/store/db.js';
import { recoverLeases } from '../../src/store/recover.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import {
  cancelRuleRun,
  pauseRuleRun,
  resumeRuleRun,
  retryFailedTargets,
  retryRuleRun,
} from '../../src/store/rule-run-control.js';
import { releaseTargets, settleIfClaimed } from '../../src/store/settle.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { expectInvariants } from './invariants.js';
import { countDeadlocks } from './locks.js';
import { seededRandom } from './random.js';

const RUNS = 3;
const TARGETS = 60;
const WORKERS = 6;
const REQUESTS = 40;

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

/** A crowd at work on some runs; all that it does follows from the seed and from who is faster. */
class Crowd {
  isOver = false;

  constructor(
    readonly db: Database,
    readonly runIds: readonly string[],
    readonly random: () => number,
  ) {}

  async work(workerId: string): Promise<void> {
    while (!this.isOver) {
      if (!(await this.workOnce(workerId))) await new Promise(setImmediate);
    }
  }

  async workOnce(workerId: string): Promise<boolean> {
    const found = await findClaimableRun(this.db);
    if (!found) return false;
    const { runId } = found;
    const claim = await claimTargets(this.db, { runId, workerId, limit: 7, leaseMs: 60_000 });
    if (claim) await this.treat(claim);
    return claim !== null;
  }

  async treat(claim: Claim): Promise<void> {
    const ids = claim.targets.map(({ id }) => id);
    const roll = this.random();
    // Died: nothing is heard of it until it is declared dead.
    if (roll < 0.1) return;
    if (roll < 0.2) return releaseTargets(this.db, claim, ids);
    const settled = claim.targets.map(({ id, attempts }) => ({
      targetId: id,
      settlement: this.judge(attempts),
    }));
    const half = Math.floor(settled.length / 2);
    await Promise.all([
      settleIfClaimed(this.db, claim, settled.slice(0, half)),
      extendLeases(this.db, claim, ids, 60_000),
    ]);
    await settleIfClaimed(this.db, claim, settled.slice(half).toReversed());
  }

  judge(attempts: number): Settlement {
    const roll = this.random();
    if (roll < 0.6) return { event: 'succeed' };
    if (roll < 0.85 && attempts < 3) return { event: 'retry', delayMs: 0, code: 'UPSTREAM', message: 'x' };
    return { event: 'exhaust', code: roll < 0.95 ? 'INVALID' : 'CONFLICT', message: 'x' };
  }

  /** Declares one worker dead after the other, though some of them live: their leases are lost under them. */
  async reap(): Promise<void> {
    for (let turn = 0; !this.isOver; turn += 1) await recoverLeases(this.db, [`w-${turn % WORKERS}`]);
  }

  /** A person who asks for anything, and takes no for an answer. */
  async ask(): Promise<void> {
    const request = { runId: this.runIds[Math.floor(this.random() * RUNS)]!, idempotencyKey: null };
    const { viewer } = world.home;
    const onConflict = this.random() < 0.5 ? ('SKIP' as const) : ('OVERWRITE' as const);
    const requests = [
      () => pauseRuleRun(this.db, viewer, request),
      () => resumeRuleRun(this.db, viewer, request),
      () => resumeRuleRun(this.db, viewer, request),
      () => retryFailedTargets(this.db, viewer, { ...request, targetIds: null }),
      () => retryRuleRun(this.db, viewer, request),
      () => rollBackRuleRun(this.db, viewer, { ...request, targetIds: null, onConflict }),
      () => (this.random() < 0.2 ? cancelRuleRun(this.db, viewer, request) : Promise.resolve()),
    ];
    try {
      await requests[Math.floor(this.random() * requests.length)]!();
    } catch (error) {
      if (!(error instanceof AppError && error.isRefusal)) throw error;
    }
  }

  async askAgainAndAgain(): Promise<void> {
    for (let count = 0; count < REQUESTS; count += 1) await this.ask();
  }

  /** Lets everything that is under way come to an end. */
  async finish(): Promise<void> {
    await this.db.query('UPDATE rule_run SET paused = false');
    for (;;) {
      await recoverLeases(
        this.db,
        Array.from({ length: WORKERS }, (_, index) => `w-${index}`),
      );
      // What was passed over because somebody held it is looked for again after a second.
      await this.db.query(
        'UPDATE rule_run SET next_claim_at = clock_timestamp() WHERE next_claim_at IS NOT NULL',
      );
      let worked = false;
      while (await this.workOnce('w-0')) worked = true;
      const [open] = await this.db.query(
        `SELECT 1 FROM rule_run WHERE status IN ('QUEUED', 'APPLYING') OR rolling_back OR applying_count > 0 LIMIT 1`,
      );
      if (!worked && !open) return;
    }
  }
}

test.each([1, 2, 3, 4])('seed %i', async (seed) => {
  const targets = targetsOf(TARGETS);
  const runs = [];
  for (let index = 0; index < RUNS; index += 1) {
    runs.push(await makeQueuedRun(database.db, world.home, { targets }));
  }
  const deadlocks = await countDeadlocks(database.db);
  const db = new Database({ url: database.url });
  const crowd = new Crowd(
    db,
    runs.map(({ id }) => id),
    seededRandom(seed),
  );
  const workers = Array.from({ length: WORKERS }, (_, index) => crowd.work(`w-${index}`));
  const background = Promise.all([crowd.reap(), ...workers]);
  await Promise.all([crowd.askAgainAndAgain(), crowd.askAgainAndAgain()]);
  crowd.isOver = true;
  await background;
  await crowd.finish();
  // What a session counted is known when it has ended.
  await db.close();
  expect(await countDeadlocks(database.db)).toBe(deadlocks);
  for (const { id } of runs) await expectInvariants(database.db, id);
  const [counted] = await database.db.query<{ n: number }>(
    'SELECT count(*)::int AS n FROM rule_target WHERE run_id = ANY($1)',
    [runs.map(({ id }) => id)],
  );
  expect(counted!.n).toBe(RUNS * TARGETS);
});
