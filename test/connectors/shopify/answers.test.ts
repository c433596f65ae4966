import { afterEach, describe, expect, test } from 'vitest';
import {
  applyAll,
  change,
  changes,
  connectTo,
  NEVER,
  oneProduct,
  ScriptedShop,
  updated,
  type ShopCall,
  type ShopReply,
} from './support.js';

let shop: ScriptedShop;

afterEach(async () => {
  await shop.stop();
});

/** A shop that finds every variant in one product and answers writes by the script. */
async function shopThatWrites(script: (call: ShopCall) => ShopReply): Promise<void> {
  shop = await ScriptedShop.start((call) => (call.isWrite ? script(call) : oneProduct(call)));
}

const throttled = (cost: unknown): ShopReply => ({
  body: {
    errors: [{ message: 'Throttled', extensions: { code: 'THROTTLED' } }],
    extensions: { cost },
  },
});

describe('one answer, one outcome', () => {
  test.each<[string, ShopReply, object]>([
    ['401', { status: 401 }, { kind: 'permanent', code: 'AUTH' }],
    ['403', { status: 403 }, { kind: 'permanent', code: 'AUTH' }],
    ['404', { status: 404 }, { kind: 'permanent', code: 'INVALID' }],
    ['422', { status: 422 }, { kind: 'permanent', code: 'INVALID' }],
    ['408', { status: 408 }, { kind: 'retryable', code: 'TIMEOUT' }],
    ['500', { status: 500 }, { kind: 'retryable', code: 'UPSTREAM' }],
    [
      '302',
      { status: 302, headers: { location: 'http://127.0.0.1:9/' } },
      { kind: 'retryable', code: 'UPSTREAM' },
    ],
    [
      '503 with a delay',
      { status: 503, headers: { 'retry-after': '7' } },
      { kind: 'retryable', code: 'UPSTREAM', retryAfterMs: 7000 },
    ],
    [
      '429 with seconds',
      { status: 429, headers: { 'retry-after': '2.5' } },
      { kind: 'retryable', code: 'RATE_LIMITED', retryAfterMs: 2500 },
    ],
    [
      '429 with a date in the past',
      { status: 429, headers: { 'retry-after': 'Wed, 21 Oct 2015 07:28:00 GMT' } },
      { kind: 'retryable', code: 'RATE_LIMITED', retryAfterMs: 0 },
    ],
    ['a body that is no JSON', { body: '{"data":' }, { kind: 'retryable', code: 'UPSTREAM' }],
    ['null', { body: 'null' }, { kind: 'retryable', code: 'UPSTREAM' }],
    ['an empty object', { body: {} }, { kind: 'retryable', code: 'UPSTREAM' }],
    [
      'HTML',
      { headers: { 'content-type': 'text/html' }, body: '<p>' },
      { kind: 'retryable', code: 'UPSTREAM' },
    ],
    ['data of another shape', { body: { data: { other: 1 } } }, { kind: 'retryable', code: 'UPSTREAM' }],
    ['errors of another shape', { body: { errors: 'oops' } }, { kind: 'retryable', code: 'UPSTREAM' }],
    [
      'ACCESS_DENIED',
      { body: { errors: [{ message: 'no', extensions: { code: 'ACCESS_DENIED' } }] } },
      { kind: 'permanent', code: 'AUTH', message: 'no' },
    ],
    [
      'INTERNAL_SERVER_ERROR',
      { body: { errors: [{ message: 'oh', extensions: { code: 'INTERNAL_SERVER_ERROR' } }] } },
      { kind: 'retryable', code: 'UPSTREAM' },
    ],
    [
      'any other GraphQL error',
      { body: { errors: [{ message: 'no such field' }] } },
      { kind: 'permanent', code: 'INVALID', message: 'no such field' },
    ],
    [
      'a userError without a field',
      updated({ field: null, message: 'locked' }),
      { kind: 'permanent', code: 'INVALID', message: 'locked' },
    ],
    [
      'THROTTLED with a budget',
      throttled({
        requestedQueryCost: 11,
        throttleStatus: { maximumAvailable: 1000, currentlyAvailable: 1, restoreRate: 4 },
      }),
      { kind: 'retryable', code: 'RATE_LIMITED', retryAfterMs: 2500 },
    ],
  ])('%s', async (_, reply, expected) => {
    await shopThatWrites(() => reply);
    const outcomes = await applyAll(connectTo(shop), [change('a')]);
    expect(outcomes.get('a')).toMatchObject(expected);
    expect(shop.writes).toHaveLength(1);
  });

  test.each([
    ['429 without a delay', { status: 429 }],
    ['429 with nonsense', { status: 429, headers: { 'retry-after': '-5' } }],
    ['THROTTLED without a budget', throttled(null)],
    [
      'THROTTLED with figures that no clock has',
      throttled({
        requestedQueryCost: 1e300,
        throttleStatus: { maximumAvailable: 1000, currentlyAvailable: -1e300, restoreRate: 1e-300 },
      }),
    ],
  ])('%s names no delay', async (_, reply) => {
    await shopThatWrites(() => reply);
    const outcome = (await applyAll(connectTo(shop), [change('a')])).get('a');
    expect(outcome).toMatchObject({ kind: 'retryable', code: 'RATE_LIMITED' });
    expect(outcome).not.toHaveProperty('retryAfterMs');
  });

  test('429 with a date in the future waits until then', async () => {
    const date = new Date(Date.now() + 3_600_000).toUTCString();
    await shopThatWrites(() => ({ status: 429, headers: { 'retry-after': date } }));
    const outcome = (await applyAll(connectTo(shop), [change('a')])).get('a');
    const retryAfterMs = outcome?.kind === 'retryable' ? outcome.retryAfterMs : undefined;
    expect(retryAfterMs).toBeGreaterThan(3_000_000);
    expect(retryAfterMs).toBeLessThanOrEqual(3_600_000);
  });

  test('a connection that breaks is UPSTREAM', async () => {
    shop = await ScriptedShop.start((call, reply) => {
      if (call.isWrite) reply.destroy();
      return oneProduct(call);
    });
    expect((await applyAll(connectTo(shop), [change('a')])).get('a')).toMatchObject({
      kind: 'retryable',
      code: 'UPSTREAM',
    });
  });

  test('an answer that stops in the middle is TIMEOUT', async () => {
    shop = await ScriptedShop.start((call, reply) => {
      if (!call.isWrite) return oneProduct(call);
      reply.writeHead(200, { 'content-type': 'application/json' });
      reply.write('{"data":');
      return new Promise<ShopReply>(() => {});
    });
    expect((await applyAll(connectTo(shop, 700), [change('a')])).get('a')).toMatchObject({
      kind: 'retryable',
      code: 'TIMEOUT',
    });
  });
});

describe('look-ups', () => {
  test('a variant that the shop does not know is INVALID and not written', async () => {
    shop = await ScriptedShop.start((call) => {
      if (call.isWrite) return updated();
      const product = { id: 'gid://shopify/Product/1' };
      return {
        body: { data: { nodes: call.ids.map((id) => (id === 'b' ? null : id === 'c' ? {} : { product })) } },
      };
    });
    const outcomes = await applyAll(
      connectTo(shop),
      ['a', 'b', 'c'].map((id) => change(id)),
    );
    expect(outcomes.get('a')).toEqual({ kind: 'applied' });
    expect(outcomes.get('b')).toMatchObject({ kind: 'permanent', code: 'INVALID' });
    expect(outcomes.get('c')).toMatchObject({ kind: 'permanent', code: 'INVALID' });
    expect(shop.writes.map((call) => call.ids)).toEqual([['a']]);
  });

  test('a look-up that fails gives its items that outcome', async () => {
    shop = await ScriptedShop.start(() => ({ status: 502 }));
    const outcomes = await applyAll(connectTo(shop), changes(3));
    expect([...outcomes.values()].map((outcome) => outcome.kind)).toEqual(Array(3).fill('retryable'));
    expect(shop.calls).toHaveLength(1);
  });

  test('nodes that do not match the ids are not believed', async () => {
    shop = await ScriptedShop.start(() => ({ body: { data: { nodes: [] } } }));
    expect((await applyAll(connectTo(shop), [change('a')])).get('a')).toMatchObject({ code: 'UPSTREAM' });
  });

  test('one id that the shop cannot read does not spoil the others', async () => {
    shop = await ScriptedShop.start((call) => {
      if (call.isWrite) return updated();
      const spoilt = call.ids.includes('SKU-5');
      return spoilt ? { body: { errors: [{ message: 'Invalid global id' }] } } : oneProduct(call);
    });
    const outcomes = await applyAll(connectTo(shop), changes(9));
    const failed = [...outcomes].filter(([, outcome]) => outcome.kind !== 'applied');
    expect(failed).toEqual([['SKU-5', { kind: 'permanent', code: 'INVALID', message: 'Invalid global id' }]]);
    expect(outcomes.size).toBe(9);
  });

  test('a product is looked up once, and again after a refusal', async () => {
    let refuse = false;
    await shopThatWrites(() =>
      refuse ? updated({ field: ['variants', '0', 'id'], message: 'gone' }) : updated(),
    );
    const channel = connectTo(shop);
    const lookUps = () => shop.calls.length - shop.writes.length;
    await applyAll(channel, [change('a')]);
    await applyAll(channel, [change('a')]);
    expect(lookUps()).toBe(1);
    refuse = true;
    await applyAll(channel, [change('a')]);
    await applyAll(channel, [change('a')]);
    expect(lookUps()).toBe(2);
  });

  test('fetchPrices leaves out what the shop does not know', async () => {
    shop = await ScriptedShop.start(() => ({ body: { data: { nodes: [{ price: '1.50' }, null, {}] } } }));
    const { prices, failures } = await connectTo(shop).fetchPrices(['a', 'b', 'c'], 'EUR', NEVER);
    expect(prices).toEqual(new Map([['a', 150]]));
    expect(failures).toEqual(new Map());
  });

  test('fetchPrices halves what is refused as a whole, and fails a price that is none alone', async () => {
    shop = await ScriptedShop.start(({ ids }) => {
      if (ids.includes('bad')) return { body: { errors: [{ message: 'Invalid global id' }] } };
      return { body: { data: { nodes: ids.map((id) => ({ price: id === 'odd' ? 'free' : '1.50' })) } } };
    });
    const { prices, failures } = await connectTo(shop).fetchPrices(['a', 'bad', 'odd', 'c'], 'EUR', NEVER);
    expect([...prices.keys()].sort()).toEqual(['a', 'c']);
    expect(Object.fromEntries(failures)).toMatchObject({
      bad: { code: 'INVALID', message: expect.stringContaining('Invalid global id') },
      odd: { code: 'INVALID', message: expect.stringContaining('no amount of EUR') },
    });
  });
});
