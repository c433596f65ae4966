// A small run behind a large one, through the whole server: it is served next, whatever the large one still has to do.
// The same for a hundred thousand, without the server, is in test/runner/fairness.test.ts.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { idsOf, RuleRunWorld, targetsFor } from './world.js';

const PER_CALL = 10_000;
const CALLS = 2;

let world: RuleRunWorld;

beforeAll(async () => {
  world = await RuleRunWorld.start();
}, 120_000);
afterAll(() => world.stop());

/** Batches of a run that were claimed between two moments: lines of one claim have one time. */
async function batchesBetween(runId: string, from: string, to: string): Promise<number> {
  const [row] = await world.app.db.query<{ count: number }>(
    `SELECT count(DISTINCT (actor, created_at))::int AS count FROM run_event
     WHERE run_id = $1 AND type = 'rule_target.claim' AND created_at BETWEEN $2 AND $3`,
    [runId, from, to],
  );
  return row!.count;
}

test('ten targets queued behind twenty thousand are served next', async () => {
  const large = await world.create([]);
  for (let call = 0; call < CALLS; call += 1) {
    await world.do('addRuleTargets', { runId: large, targets: targetsFor(idsOf(`large${call}`, PER_CALL)) });
  }
  await world.do('queueRuleRun', { runId: large });
  await world.untilRun(large, ({ counts }) => counts.applied > 0);
  const small = await world.queue(idsOf('small', 10));
  const { status, queuedAt, startedAt } = await world.end(small);
  expect(status).toBe('APPLIED');
  const rest = await world.run(large);
  expect(rest.status).toBe('APPLYING');
  expect(rest.counts.queued).toBeGreaterThan(0);
  // Each of the four workers may end the look for work that it was at, and take one more batch.
  expect(await batchesBetween(large, queuedAt, startedAt)).toBeLessThanOrEqual(8);
}, 120_000);
