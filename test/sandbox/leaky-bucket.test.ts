import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';
import { LeakyBucket } from '../../src/sandbox/shop/leaky-bucket.js';
import { ask, gid, payloadOf, READ, write } from './support.js';

describe('the bucket', () => {
  test('never grants more than it held plus what time restored', () => {
    const step = fc.record({ ms: fc.nat(5_000), cost: fc.integer({ min: 1, max: 400 }) });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 100 }), fc.array(step), (rate, steps) => {
        let now = 0;
        let spent = 0;
        const bucket = new LeakyBucket(rate, () => now);
        for (const { ms, cost } of steps) {
          now += ms;
          if (bucket.spend(cost)) spent += cost;
          expect(spent).toBeLessThanOrEqual(20 * rate + (now / 1000) * rate + 1e-6);
          expect(bucket.status().currentlyAvailable).toBeLessThanOrEqual(20 * rate);
          expect(bucket.status().currentlyAvailable).toBeGreaterThanOrEqual(0);
        }
      }),
    );
  });

  test('holds twenty seconds of points and restores them', () => {
    let now = 0;
    const bucket = new LeakyBucket(50, () => now);
    expect(bucket.spend(1000)).toBe(true);
    expect(bucket.spend(1)).toBe(false);
    now = 100;
    expect(bucket.status().currentlyAvailable).toBe(5);
    now = 60_000;
    expect(bucket.status().currentlyAvailable).toBe(1000);
  });
});

describe('over HTTP', () => {
  let sandbox: Sandbox;

  afterEach(async () => {
    await sandbox.stop();
  });

  test('every answer says what it cost and what is left', async () => {
    sandbox = await startSandbox({ restorePerSecond: 50, now: () => 0 });
    const read = await ask(sandbox, READ, { ids: [gid('a'), gid('b'), gid('c')] });
    expect(read.body.extensions.cost).toEqual({
      requestedQueryCost: 3,
      actualQueryCost: 3,
      throttleStatus: { maximumAvailable: 1000, currentlyAvailable: 997, restoreRate: 50 },
    });
    const { body } = await write(sandbox, 'a', '1.00');
    expect(body.extensions.cost.requestedQueryCost).toBe(11);
    expect(body.extensions.cost.throttleStatus.currentlyAvailable).toBe(997 - 1 - 11);
  });

  test('an empty bucket throttles with HTTP 200, applies nothing, and recovers with time', async () => {
    let now = 0;
    sandbox = await startSandbox({ restorePerSecond: 1, now: () => now });
    expect(payloadOf(await write(sandbox, 'a', '1.00')).userErrors).toEqual([]);
    const { status, body } = await ask(sandbox, READ, { ids: Array(10).fill(gid('a')) });
    expect(status).toBe(200);
    expect(body.data).toBeUndefined();
    expect(body.errors).toMatchObject([{ extensions: { code: 'THROTTLED' } }]);
    expect(body.extensions.cost).toMatchObject({
      requestedQueryCost: 10,
      actualQueryCost: null,
      throttleStatus: { currentlyAvailable: 8 },
    });
    now = 2_000;
    expect((await ask(sandbox, READ, { ids: Array(10).fill(gid('a')) })).body.errors).toBeUndefined();
  });

  test('a full bucket serves a call that costs more than it can hold', async () => {
    sandbox = await startSandbox({ restorePerSecond: 1, now: () => 0 });
    const { body } = await ask(sandbox, READ, { ids: Array(250).fill(gid('a')) });
    expect(body.errors).toBeUndefined();
    expect(body.extensions.cost.throttleStatus.currentlyAvailable).toBe(0);
  });
});
