import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Outcome } from '../../../src/connectors/channel.js';
import { startSandbox, type Sandbox } from '../../../src/sandbox/server.js';
import { applyAll, change, changes, connectTo, NEVER } from './support.js';

let sandbox: Sandbox;

beforeEach(async () => {
  sandbox = await startSandbox();
});

afterEach(async () => {
  await sandbox.stop();
});

const APPLIED = { kind: 'applied' };

describe('each sandbox id', () => {
  test.each([
    ['SKU-1', APPLIED],
    ['drift-1', APPLIED],
    ['flaky0-1', APPLIED],
    ['fail-1', { kind: 'permanent', code: 'INVALID' }],
    ['auth-1', { kind: 'permanent', code: 'AUTH' }],
    ['flaky1-1', { kind: 'retryable', code: 'UPSTREAM' }],
    ['down-1', { kind: 'retryable', code: 'UPSTREAM' }],
    ['throttle-1', { kind: 'retryable', code: 'RATE_LIMITED', retryAfterMs: 1000 }],
  ])('%s', async (externalId, expected) => {
    const outcomes = await applyAll(connectTo(sandbox), [change(externalId)]);
    expect([...outcomes.keys()]).toEqual([externalId]);
    expect(outcomes.get(externalId)).toMatchObject(expected);
    expect(sandbox.writes(externalId)).toBe(expected === APPLIED ? 1 : 0);
  });

  test('flaky2- and throttle- get through when they are tried again', async () => {
    const channel = connectTo(sandbox);
    const batch = [change('flaky2-1'), change('throttle-1')];
    const kinds: (string | undefined)[][] = [];
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const outcomes = await applyAll(channel, batch);
      kinds.push(batch.map(({ externalId }) => outcomes.get(externalId)?.kind));
    }
    expect(kinds).toEqual([
      ['retryable', 'retryable'],
      ['retryable', 'applied'],
      ['applied', 'applied'],
    ]);
  });

  test('hang- times out, and what else was asked is known before', async () => {
    const order: string[] = [];
    const batch = [change('hang-1'), ...changes(20)];
    for await (const outcomes of connectTo(sandbox, 700).applyPrices(batch, NEVER)) {
      for (const { externalId, outcome } of outcomes) {
        order.push(externalId);
        if (externalId === 'hang-1') expect(outcome).toMatchObject({ kind: 'retryable', code: 'TIMEOUT' });
        else expect(outcome).toEqual(APPLIED);
      }
    }
    expect(order).toHaveLength(21);
    expect(order.at(-1)).toBe('hang-1');
  });

  test('more hanging calls than may be in flight do not hold back the rest', async () => {
    const batch = [...changes(10, 'hang'), ...changes(600)];
    const outcomes = await applyAll(connectTo(sandbox, 1_000), batch);
    expect([...outcomes.values()].filter((outcome) => outcome.kind === 'applied')).toHaveLength(600);
    expect([...outcomes.keys()].slice(0, 600).some((id) => id.startsWith('hang'))).toBe(false);
  });
});

describe('batches', () => {
  test('more than fits one call is applied, once each, and reads back', async () => {
    const channel = connectTo(sandbox);
    const batch = changes(777);
    const outcomes = await applyAll(channel, batch);
    expect(outcomes.size).toBe(777);
    expect(new Set([...outcomes.values()].map((outcome) => outcome.kind))).toEqual(new Set(['applied']));
    expect(batch.every(({ externalId }) => sandbox.writes(externalId) === 1)).toBe(true);
    const { prices } = await channel.fetchPrices(
      batch.map((item) => item.externalId),
      'EUR',
      NEVER,
    );
    expect(prices).toEqual(new Map(batch.map((item) => [item.externalId, item.unitAmount])));
  });

  test('an empty batch ends at once', async () => {
    expect((await applyAll(connectTo(sandbox), [])).size).toBe(0);
  });

  test('an amount that is none is refused and never sent', async () => {
    const batch = [change('a', -1), change('b', 1.5), change('c', 100, 'ZZZ'), change('d')];
    const outcomes = await applyAll(connectTo(sandbox), batch);
    for (const id of ['a', 'b', 'c']) expect(outcomes.get(id)).toMatchObject({ code: 'INVALID' });
    expect(outcomes.get('d')).toEqual(APPLIED);
  });

  test.each(['JPY', 'KWD', 'USD'])('an amount of %s keeps its value', async (currency) => {
    const channel = connectTo(sandbox);
    await applyAll(channel, [change('SKU-1', 12_345, currency)]);
    const { prices } = await channel.fetchPrices(['SKU-1'], currency, NEVER);
    expect(prices).toEqual(new Map([['SKU-1', 12_345]]));
  });

  const expectedKind = new Map<string, Outcome['kind']>([
    ['SKU', 'applied'],
    ['drift', 'applied'],
    ['fail', 'permanent'],
    ['auth', 'permanent'],
    ['flaky1', 'retryable'],
    ['down', 'retryable'],
    ['throttle', 'retryable'],
  ]);

  test('in any mix and order every item gets exactly one outcome, its own', async () => {
    const batches = fc.uniqueArray(
      fc.tuple(fc.constantFrom(...expectedKind.keys()), fc.string({ minLength: 1, maxLength: 4 })),
      { selector: ([prefix, rest]) => `${prefix}-${rest}`, maxLength: 60, size: 'max' },
    );
    let round = 0;
    const property = fc.asyncProperty(batches, async (entries) => {
      round += 1;
      // A key of its own for each round, so that the faults that pass are met afresh.
      const batch = entries.map(([prefix, rest]) => ({
        ...change(`${prefix}-${rest}`),
        idempotencyKey: `${round}:${entries.findIndex(([p, r]) => p === prefix && r === rest)}`,
      }));
      const outcomes = await applyAll(connectTo(sandbox), batch);
      const kinds = entries.map(([prefix, rest]) => outcomes.get(`${prefix}-${rest}`)?.kind);
      expect(kinds).toEqual(entries.map(([prefix]) => expectedKind.get(prefix)));
      expect(outcomes.size).toBe(batch.length);
    });
    await fc.assert(property, { numRuns: 30 });
  });
});

describe('fetchPrices', () => {
  test('sees the drift', async () => {
    const channel = connectTo(sandbox);
    await applyAll(channel, [change('drift-1', 1999), change('SKU-1', 1999)]);
    const { prices } = await channel.fetchPrices(['drift-1', 'SKU-1'], 'EUR', NEVER);
    expect(prices.get('SKU-1')).toBe(1999);
    expect(prices.get('drift-1')).not.toBe(1999);
  });

  test('says of each item that the shop is gone', async () => {
    const channel = connectTo(sandbox);
    await sandbox.stop();
    const { failures } = await channel.fetchPrices(['SKU-1', 'SKU-2'], 'EUR', NEVER);
    for (const id of ['SKU-1', 'SKU-2'])
      expect(failures.get(id)).toMatchObject({ kind: 'retryable', code: 'UPSTREAM' });
    const outcomes = await applyAll(channel, [change('SKU-1')]);
    expect(outcomes.get('SKU-1')).toMatchObject({ kind: 'retryable', code: 'UPSTREAM' });
    expect(outcomes.get('SKU-1')).toHaveProperty('message', expect.stringContaining('ECONNREFUSED'));
  });

  test('is AUTH when the token is wrong, as a write is', async () => {
    const channel = connectTo({ adminUrl: sandbox.adminUrl, accessToken: 'wrong' });
    const { failures } = await channel.fetchPrices(['SKU-1'], 'EUR', NEVER);
    expect(failures.get('SKU-1')).toMatchObject({ kind: 'permanent', code: 'AUTH' });
    expect((await applyAll(channel, [change('SKU-1')])).get('SKU-1')).toMatchObject({
      kind: 'permanent',
      code: 'AUTH',
    });
  });

  test('a price that is no amount of the currency is a failure of its item', async () => {
    const channel = connectTo(sandbox);
    await applyAll(channel, [change('SKU-1', 1999)]);
    const { failures } = await channel.fetchPrices(['SKU-1'], 'JPY', NEVER);
    expect(failures.get('SKU-1')).toMatchObject({ code: 'INVALID' });
  });
});

describe('the end of interest', () => {
  test('an abort cuts the call and ends the iteration without an outcome', async () => {
    const controller = new AbortController();
    const run = applyAll(connectTo(sandbox), [change('hang-1'), change('SKU-1')], controller.signal);
    await expect.poll(() => sandbox.held()).toBe(1);
    await expect.poll(() => sandbox.writes('SKU-1')).toBe(1);
    controller.abort();
    expect((await run).has('hang-1')).toBe(false);
    await expect.poll(() => sandbox.held()).toBe(0);
  });

  test('a signal that is already aborted sends nothing', async () => {
    expect((await applyAll(connectTo(sandbox), [change('SKU-1')], AbortSignal.abort())).size).toBe(0);
    expect(sandbox.writes('SKU-1')).toBe(0);
  });

  test('leaving the iteration cuts what is under way', async () => {
    for await (const outcomes of connectTo(sandbox).applyPrices([change('hang-1'), change('SKU-1')], NEVER)) {
      expect(outcomes).toEqual([{ externalId: 'SKU-1', outcome: APPLIED }]);
      await expect.poll(() => sandbox.held()).toBe(1);
      break;
    }
    await expect.poll(() => sandbox.held()).toBe(0);
  });

  test('an abort ends fetchPrices', async () => {
    const call = connectTo(sandbox).fetchPrices(['SKU-1'], 'EUR', AbortSignal.abort());
    await expect(call).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  });
});
