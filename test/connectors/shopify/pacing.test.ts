import { describe, expect, test } from 'vitest';
import { CostBudget, type Clock } from '../../../src/connectors/shopify/cost-budget.js';
import { startSandbox } from '../../../src/sandbox/server.js';
import { applyAll, changes, connectTo, NEVER } from './support.js';

/** Time that passes only when somebody sleeps. */
class SteppedClock implements Clock {
  ms = 0;
  now = (): number => this.ms;

  async sleep(ms: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    this.ms += ms;
  }
}

/** A clock whose sleepers wait until they are cut. */
class StoppedClock implements Clock {
  sleepers = 0;
  now = (): number => 0;

  sleep(_: number, signal: AbortSignal): Promise<void> {
    this.sleepers += 1;
    return new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => reject(new Error('cut')), { once: true });
    });
  }
}

const status = (currentlyAvailable: number, restoreRate = 10, maximumAvailable = 200) => ({
  maximumAvailable,
  currentlyAvailable,
  restoreRate,
});

describe('the budget', () => {
  test('lets the first call go alone, and the others once it is answered', async () => {
    const budget = new CostBudget(new SteppedClock());
    await budget.reserve(5, NEVER);
    let started = false;
    const second = budget.reserve(5, NEVER).then(() => (started = true));
    await new Promise((resolve) => setImmediate(resolve));
    expect(started).toBe(false);
    budget.settle(5, status(100));
    await second;
    expect(started).toBe(true);
  });

  test('lets the next call try when the first was answered without a budget', async () => {
    const budget = new CostBudget(new SteppedClock());
    await budget.reserve(5, NEVER);
    budget.settle(5, null);
    await expect(budget.reserve(5, NEVER)).resolves.toBeUndefined();
  });

  test('waits for exactly the points that are missing', async () => {
    const clock = new SteppedClock();
    const budget = new CostBudget(clock);
    await budget.reserve(1, NEVER);
    budget.settle(1, status(15));
    await budget.reserve(10, NEVER);
    expect(clock.ms).toBe(0);
    await budget.reserve(10, NEVER);
    expect(clock.ms).toBe(500);
  });

  test('does not wait for more than the bucket can hold', async () => {
    const clock = new SteppedClock();
    const budget = new CostBudget(clock);
    await budget.reserve(1, NEVER);
    budget.settle(1, status(0, 10, 20));
    await budget.reserve(500, NEVER);
    expect(clock.ms).toBe(2_000);
  });

  test('does not wait for a shop that restores nothing', async () => {
    const budget = new CostBudget(new StoppedClock());
    await budget.reserve(1, NEVER);
    budget.settle(1, status(0, 0));
    await expect(budget.reserve(10, NEVER)).resolves.toBeUndefined();
  });

  test('counts calls under way against what an answer reports', async () => {
    const clock = new SteppedClock();
    const budget = new CostBudget(clock);
    await budget.reserve(1, NEVER);
    budget.settle(1, status(100));
    await budget.reserve(60, NEVER);
    await budget.reserve(10, NEVER);
    budget.settle(10, status(90));
    await budget.reserve(40, NEVER);
    expect(clock.ms).toBe(1_000);
  });
});

describe('against the sandbox', () => {
  test('a small bucket is never overdrawn by call after call', async () => {
    const clock = new SteppedClock();
    const sandbox = await startSandbox({ restorePerSecond: 2, now: clock.now });
    const channel = connectTo(sandbox, 15_000, clock);
    for (let i = 0; i < 5; i += 1) {
      const outcomes = await applyAll(channel, changes(120, `batch${i}`));
      expect([...outcomes.values()]).toEqual(Array(120).fill({ kind: 'applied' }));
    }
    expect(clock.ms).toBeGreaterThan(60_000);
    await sandbox.stop();
  });

  test('nor by many calls at once', async () => {
    const sandbox = await startSandbox({ restorePerSecond: 200 });
    const batch = [...changes(3_800), ...changes(20, 'drift')];
    const outcomes = await applyAll(connectTo(sandbox), batch);
    expect([...outcomes.values()].filter((outcome) => outcome.kind !== 'applied')).toEqual([]);
    expect(outcomes.size).toBe(3_820);
    await sandbox.stop();
  });

  test('somebody else emptied the bucket: RATE_LIMITED with the delay that the shop’s figures give', async () => {
    const sandbox = await startSandbox({ restorePerSecond: 1, now: () => 0 });
    await connectTo(sandbox).fetchPrices(
      changes(16).map((item) => item.externalId),
      'EUR',
      NEVER,
    );
    const outcomes = await applyAll(connectTo(sandbox), changes(14));
    expect([...outcomes.values()]).toEqual(
      Array(14).fill({
        kind: 'retryable',
        code: 'RATE_LIMITED',
        message: 'Throttled',
        retryAfterMs: 10_000,
      }),
    );
    await sandbox.stop();
  });

  test('an abort ends the wait for points', async () => {
    const clock = new StoppedClock();
    const sandbox = await startSandbox({ restorePerSecond: 1, now: clock.now });
    const controller = new AbortController();
    const run = applyAll(connectTo(sandbox, 15_000, clock), changes(20), controller.signal);
    await expect.poll(() => clock.sleepers).toBe(1);
    controller.abort();
    expect((await run).size).toBe(0);
    await sandbox.stop();
  });
});
