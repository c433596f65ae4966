// Stopping, waiting, going on and setting back while the runner is at work against the sandbox; runs that
// start and end by the clock.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { batchForm } from '../../connectors/http/support.js';
import { PriceBook } from '../../runner/price-book.js';
import { signalled } from '../../runner/support.js';
import { until } from '../../support/app.js';
import { idsOf, RuleRunWorld, type Answer } from './world.js';

let world: RuleRunWorld;

beforeAll(async () => {
  world = await RuleRunWorld.start({ RUNLEDGER_CALL_TIMEOUT_MS: '1500' });
});
afterAll(() => world.stop());

const inMs = (ms: number) => new Date(Date.now() + ms).toISOString();
const claimsOf = async (id: string) => {
  const [row] = await world.app.db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM run_event WHERE run_id = $1 AND type = 'rule_target.claim'`,
    [id],
  );
  return row!.count;
};

/** Targets of a rollback that are under way, or were. */
async function claimedToSetBack(id: string): Promise<number> {
  const [row] = await world.app.db.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM rule_target WHERE run_id = $1 AND rollback_attempts > 0',
    [id],
  );
  return row!.count;
}

const MANY = 600;

/** A run that is being applied, at a pace that leaves time to ask something of it. */
async function underWay(prefix: string): Promise<string> {
  const channelId = await world.shop(`paced ${prefix}`, { rateLimit: { perSecond: 300, burst: 50 } });
  const id = await world.queue(idsOf(prefix, MANY), { channelId });
  await world.untilRun(id, ({ counts }) => counts.applied > 0);
  return id;
}

describe('pause', () => {
  test('is effective for the very next claim; what is in flight settles; resume goes on', async () => {
    const id = await underWay('pause');
    expect(await world.do('pauseRuleRun', { runId: id })).toMatchObject({ paused: true, status: 'APPLYING' });
    const claims = await claimsOf(id);
    const { counts } = await world.untilRun(id, (run) => run.counts.applying === 0);
    expect(counts.queued).toBeGreaterThan(0);
    expect(await claimsOf(id)).toBe(claims);
    // Another run is served while this one waits.
    expect(await world.apply(['b'])).toMatchObject({ status: 'APPLIED' });
    expect(await claimsOf(id)).toBe(claims);
    expect(await world.do('resumeRuleRun', { runId: id })).toMatchObject({ paused: false });
    expect(await world.end(id)).toMatchObject({ status: 'APPLIED', counts: { applied: MANY } });
  });

  test('holds a rollback as well', async () => {
    const book = await PriceBook.start();
    const channelId = await world.saveChannel('held', 'http', batchForm(book.origin));
    // More than four workers take up while none is answered.
    const ids = idsOf('p', 200);
    const { id } = await world.apply(ids, { channelId });
    // A rollback reads first: while a read waits for its answer, its batch is under way and the rest is not.
    const [reading, released] = [signalled(), signalled()];
    book.fault = async () => {
      reading.resolve();
      await released.promise;
      return null;
    };
    await world.do('rollBackRuleRun', { runId: id });
    await reading.promise;
    expect(await world.do('pauseRuleRun', { runId: id })).toMatchObject({ paused: true });
    const claimed = await claimedToSetBack(id);
    expect(claimed).toBeGreaterThan(0);
    expect(claimed).toBeLessThan(ids.length);
    released.resolve();
    const { counts } = await world.untilRun(id, (run) => run.counts.rolledBack === claimed);
    expect(counts).toMatchObject({ applied: ids.length - claimed, rolledBack: claimed });
    // Another run is served meanwhile, and nothing more of this one.
    await world.apply(['after-p']);
    expect(await world.run(id)).toMatchObject({
      counts: { rolledBack: claimed },
      rollback: { underWay: true },
    });
    await world.do('resumeRuleRun', { runId: id });
    expect(await world.end(id)).toMatchObject({ status: 'ROLLED_BACK', counts: { rolledBack: ids.length } });
    await book.stop();
  });
});

test('cancel stops further claims; what is in flight settles with its true result', async () => {
  const id = await underWay('cancel');
  expect(await world.do('cancelRuleRun', { runId: id })).toMatchObject({ status: 'CANCELLED' });
  const claims = await claimsOf(id);
  const { counts } = await world.untilRun(id, (run) => run.counts.applying === 0);
  expect(counts.queued).toBe(0);
  expect(counts.cancelled).toBeGreaterThan(0);
  expect(counts.applied + counts.cancelled + counts.failed).toBe(MANY);
  expect(await claimsOf(id)).toBe(claims);
  // Exactly what counts as applied is in the shop.
  const prices = await world.app.db.query<{ status: string; written: boolean }>(
    `SELECT target.status, price.price IS NOT DISTINCT FROM '12.00' AS written
     FROM rule_target target LEFT JOIN sandbox_price price USING (external_id) WHERE run_id = $1`,
    [id],
  );
  expect(prices.filter(({ status, written }) => (status === 'APPLIED') !== written)).toEqual([]);
  await world.end(id);
});

describe('rollback', () => {
  test('of some targets leaves the rest and the run’s state; the rest may follow', async () => {
    const { id } = await world.apply(['r-1', 'r-2', 'r-3']);
    const chosen = await world.target(id, 'r-2');
    await world.do('rollBackRuleRun', { runId: id, targetIds: [chosen.id] });
    expect(await world.end(id)).toMatchObject({ status: 'APPLIED', counts: { applied: 2, rolledBack: 1 } });
    expect([await world.price('r-1'), await world.price('r-2')]).toEqual(['12.00', '10.00']);
    await world.do('rollBackRuleRun', { runId: id });
    expect(await world.end(id)).toMatchObject({ status: 'ROLLED_BACK', counts: { rolledBack: 3 } });
    expect(await world.price('r-1')).toBe('10.00');
  });

  test('SKIP leaves a price that somebody else has changed, and says so; OVERWRITE writes', async () => {
    const { id } = await world.apply(['s-1', 's-2']);
    await world.changePrice('s-1', '99.00');
    await world.do('rollBackRuleRun', { runId: id });
    expect(await world.end(id)).toMatchObject({
      status: 'APPLIED',
      error: '1 target was not set back: 1 CONFLICT',
      counts: { applied: 1, rolledBack: 1 },
      rollback: { all: true, onConflict: 'SKIP', underWay: false },
    });
    expect(await world.price('s-1')).toBe('99.00');
    expect(await world.target(id, 's-1')).toMatchObject({ status: 'APPLIED', errorCode: 'CONFLICT' });
    expect(await world.types(id)).toContain('rule_target.roll_back_conflict');
    await world.do('rollBackRuleRun', { runId: id, onConflict: 'OVERWRITE' });
    expect(await world.end(id)).toMatchObject({ status: 'ROLLED_BACK', error: null });
    expect(await world.price('s-1')).toBe('10.00');
  });

  test('is tried again like an apply', async () => {
    const { id } = await world.apply(['flaky1-r', 'throttle-r']);
    await world.do('rollBackRuleRun', { runId: id });
    expect(await world.end(id)).toMatchObject({ status: 'ROLLED_BACK', counts: { rolledBack: 2 } });
    const { history } = await world.target(id, 'flaky1-r');
    expect(history.map(({ type }: Answer) => type)).toContain('rule_target.roll_back_retry');
  });

  test.each<[string, (own: Answer) => string[], string]>([
    ['a target that is not applied', ({ applied, failed }) => [applied, failed], 'ILLEGAL_TRANSITION'],
    ['an id of nothing', ({ applied }) => [applied, '0'], 'NOT_FOUND'],
    ['none', () => [], 'INVALID_INPUT'],
  ])('with %s is refused as a whole', async (_, choose, code) => {
    const { id } = await world.apply(['t-1', 'fail-1']);
    const targets = await world.targets(id);
    const own = { applied: targets.get('t-1').id, failed: targets.get('fail-1').id };
    const { userErrors } = await world.ask('rollBackRuleRun', { runId: id, targetIds: choose(own) });
    expect(userErrors).toMatchObject([{ code }]);
    expect(await world.run(id)).toMatchObject({ status: 'PARTIAL', rollback: null });
  });
});

describe('by the clock', () => {
  test('startAt: nothing is sent before, and the run starts by itself', async () => {
    const startAt = inMs(1_500);
    const id = await world.queue(['u-1'], { startAt });
    expect(await world.run(id)).toMatchObject({ status: 'QUEUED', startAt, startedAt: null });
    const { status, startedAt } = await world.end(id);
    expect(status).toBe('APPLIED');
    expect(Date.parse(startedAt)).toBeGreaterThanOrEqual(Date.parse(startAt));
  });

  test('autoRevertAt: a sale ends by itself, on time', async () => {
    const autoRevertAt = inMs(2_500);
    const { id } = await world.apply(['v-1', 'v-2'], { autoRevertAt });
    expect(await world.price('v-1')).toBe('12.00');
    const { status } = await until(
      () => world.run(id),
      (run) => run.status !== 'APPLIED',
    );
    expect(status).toBe('ROLLED_BACK');
    expect(Date.now()).toBeGreaterThanOrEqual(Date.parse(autoRevertAt));
    expect(await world.price('v-1')).toBe('10.00');
    const asked = (await world.events(id)).find(({ type }) => type === 'rule_run.ask_roll_back');
    expect(asked.actor).toBe('system');
  });

  test.each([
    ['autoRevertAt in the past', () => ({ autoRevertAt: inMs(-1_000) })],
    ['autoRevertAt before startAt', () => ({ startAt: inMs(60_000), autoRevertAt: inMs(30_000) })],
  ])('%s is refused', async (_, input) => {
    const { channelId } = world;
    const { userErrors } = await world.ask('createRuleRun', { channelId, targets: [], ...input() });
    expect(userErrors).toMatchObject([{ code: 'INVALID_INPUT', field: ['input', 'autoRevertAt'] }]);
  });

  test('another time under the same key is another request', async () => {
    const { channelId } = world;
    const input = { channelId, targets: [], idempotencyKey: 'timed', startAt: inMs(60_000) };
    const first = await world.do('createRuleRun', input);
    expect((await world.do('createRuleRun', input)).id).toBe(first.id);
    const { userErrors } = await world.ask('createRuleRun', { ...input, startAt: inMs(120_000) });
    expect(userErrors).toMatchObject([{ code: 'IDEMPOTENCY_MISMATCH', details: { runId: first.id } }]);
  });
});
