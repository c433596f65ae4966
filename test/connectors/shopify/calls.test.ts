import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import {
  applyAll,
  change,
  changes,
  connectTo,
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

test('an item is known by its number or by its global id', async () => {
  await shopThatWrites(() => updated());
  const gid = 'gid://shopify/ProductVariant/2';
  const outcomes = await applyAll(connectTo(shop), [change('1'), change(gid)]);
  expect(outcomes.get('1')).toEqual({ kind: 'applied' });
  expect(outcomes.get(gid)).toEqual({ kind: 'applied' });
  expect(shop.calls.map(({ ids }) => ids)).toEqual([
    ['1', '2'],
    ['1', '2'],
  ]);
});

describe('calls with several items', () => {
  test('userErrors that name an item are that item’s alone', async () => {
    await shopThatWrites(({ ids }) =>
      updated(
        { field: ['variants', String(ids.indexOf('SKU-3')), 'price'], message: 'too low' },
        { field: ['variants', String(ids.indexOf('SKU-4')), 'id'], message: 'gone' },
      ),
    );
    const outcomes = await applyAll(connectTo(shop), changes(6));
    expect(outcomes.get('SKU-3')).toEqual({ kind: 'permanent', code: 'INVALID', message: 'too low' });
    expect(outcomes.get('SKU-4')).toEqual({ kind: 'permanent', code: 'INVALID', message: 'gone' });
    expect([...outcomes.values()].filter((outcome) => outcome.kind === 'applied')).toHaveLength(4);
    expect(shop.writes).toHaveLength(1);
  });

  const refusals: readonly (readonly [string, ShopReply])[] = [
    ['userErrors without a field', updated({ field: null, message: 'no' })],
    ['userErrors of the product', updated({ field: ['productId'], message: 'no' })],
    ['userErrors with an index out of range', updated({ field: ['variants', '999'], message: 'no' })],
    ['HTTP 400', { status: 400 }],
    ['GraphQL errors', { body: { errors: [{ message: 'no' }] } }],
  ];

  test.each(refusals)('%s for the whole are halved down to the culprits', async (_, refusal) => {
    const ids = changes(40).map((item) => item.externalId);
    const property = fc.asyncProperty(fc.subarray(ids, { maxLength: 5 }), async (culprits) => {
      await shopThatWrites((call) => (call.ids.some((id) => culprits.includes(id)) ? refusal : updated()));
      const outcomes = await applyAll(connectTo(shop), changes(40));
      await shop.stop();
      const refused = ids.filter((id) => outcomes.get(id)?.kind === 'permanent');
      expect(refused).toEqual(culprits);
      expect(ids.filter((id) => outcomes.get(id)?.kind === 'applied')).toHaveLength(40 - culprits.length);
    });
    await fc.assert(property, { numRuns: 8 });
    await shopThatWrites(() => updated());
  });

  test('a named error beside an unnamed one is final, the rest is tried in halves', async () => {
    await shopThatWrites(({ ids }) =>
      ids.length > 1 && ids.includes('SKU-0')
        ? updated(
            { field: ['variants', String(ids.indexOf('SKU-0')), 'price'], message: 'named' },
            { field: null, message: 'unnamed' },
          )
        : updated(),
    );
    const outcomes = await applyAll(connectTo(shop), changes(5));
    expect(outcomes.get('SKU-0')).toMatchObject({ message: 'named' });
    expect([...outcomes.values()].filter((outcome) => outcome.kind === 'applied')).toHaveLength(4);
  });

  test.each([401, 429, 503])('HTTP %d is not halved', async (status) => {
    await shopThatWrites(() => ({ status }));
    expect((await applyAll(connectTo(shop), changes(10))).size).toBe(10);
    expect(shop.writes).toHaveLength(1);
  });

  test('at most 8 calls are in flight, and one per product', async () => {
    let open = 0;
    let most = 0;
    shop = await ScriptedShop.start(async (call) => {
      if (!call.isWrite) {
        const nodes = call.ids.map((id) => ({ product: { id: `gid://shopify/Product/${id}` } }));
        return { body: { data: { nodes }, extensions: generous } };
      }
      open += 1;
      most = Math.max(most, open);
      await new Promise((resolve) => setImmediate(resolve));
      open -= 1;
      return { body: { ...(updated().body as object), extensions: generous } };
    });
    const outcomes = await applyAll(connectTo(shop), changes(60));
    expect(outcomes.size).toBe(60);
    expect(shop.writes).toHaveLength(60);
    expect(most).toBeLessThanOrEqual(8);
    expect(most).toBeGreaterThan(1);
  });
});

const generous = {
  cost: {
    requestedQueryCost: 1,
    throttleStatus: { maximumAvailable: 1e6, currentlyAvailable: 1e6, restoreRate: 1e5 },
  },
};

describe('what a call carries', () => {
  test('the item’s own idempotency key when it is alone, and the access token', async () => {
    await shopThatWrites(() => updated());
    await applyAll(connectTo(shop), [change('a')]);
    expect(shop.writes[0]!.headers).toMatchObject({
      'idempotency-key': 'key:a',
      'x-shopify-access-token': 'token',
    });
    expect(shop.calls[0]!.headers).not.toHaveProperty('idempotency-key');
  });

  test('a key of all items, whatever their order', async () => {
    await shopThatWrites(() => updated());
    const channel = connectTo(shop);
    await applyAll(channel, [change('a'), change('b')]);
    await applyAll(channel, [change('b'), change('a')]);
    await applyAll(channel, [change('b'), change('c')]);
    const [first, second, third] = shop.writes.map((call) => call.headers['idempotency-key']);
    expect(first).toBe(createHash('sha256').update('key:a\nkey:b').digest('hex'));
    expect(second).toBe(first);
    expect(third).not.toBe(first);
  });

  test('the wish that one bad variant does not stop the others', async () => {
    await shopThatWrites(() => updated());
    await applyAll(connectTo(shop), changes(2));
    expect(shop.writes[0]!.query).toMatch(/allowPartialUpdates: true/);
  });

  test('nothing to another address, even when the shop points there', async () => {
    const other = await ScriptedShop.start(oneProduct);
    shop = await ScriptedShop.start(() => ({ status: 307, headers: { location: other.adminUrl } }));
    expect((await applyAll(connectTo(shop), [change('a')])).get('a')).toMatchObject({ code: 'UPSTREAM' });
    expect(other.calls).toEqual([]);
    await other.stop();
  });

  test('no list is longer than 250', async () => {
    await shopThatWrites(() => updated());
    expect((await applyAll(connectTo(shop), changes(600))).size).toBe(600);
    expect(Math.max(...shop.calls.map((call) => call.ids.length))).toBe(250);
  });
});
