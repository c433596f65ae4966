import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';
import { MemorySandboxState } from '../../src/sandbox/state.js';
import { ask, gid, payloadOf, READ, readVariants, WRITE, write } from './support.js';

let sandbox: Sandbox;

beforeEach(async () => {
  sandbox = await startSandbox();
});

afterEach(async () => {
  await sandbox.stop();
});

describe('reads', () => {
  test('any id is a variant with a price that stays the same', async () => {
    const [first] = await readVariants(sandbox, ['SKU-1', 'SKU-2']);
    const [again] = await readVariants(sandbox, ['SKU-1']);
    expect(again).toEqual(first);
    expect(first).toMatchObject({ id: gid('SKU-1'), price: expect.stringMatching(/^\d+\.00$/) });
  });

  test('plain ids share a product, an id with a fault has its own', async () => {
    const ids = ['SKU-1', 'SKU-2', 'flaky-1', 'fail-1', 'fail-2', 'flaky2-1', 'hang-1'];
    const products = (await readVariants(sandbox, ids)).map((variant) => variant.product.id);
    expect(new Set(products.slice(0, 3)).size).toBe(1);
    expect(new Set(products).size).toBe(5);
  });

  test('what is no variant is null, and a product is a product', async () => {
    const { body } = await ask(sandbox, READ, { ids: [gid(''), 'nonsense', 'gid://shopify/Product/1'] });
    expect(body.data).toEqual({ nodes: [null, null, { id: 'gid://shopify/Product/1' }] });
  });

  test('the shop names its currency', async () => {
    const { body } = await ask(sandbox, '{ shop { name currencyCode } }');
    expect(body.data).toMatchObject({ shop: { currencyCode: 'EUR' } });
  });
});

describe('writes', () => {
  test('a price that was written is read back, and counted', async () => {
    const answer = await write(sandbox, 'SKU-1', '19.99');
    expect(payloadOf(answer)).toEqual({
      productVariants: [{ id: gid('SKU-1'), price: '19.99' }],
      userErrors: [],
    });
    expect((await readVariants(sandbox, ['SKU-1']))[0]!.price).toBe('19.99');
    expect(sandbox.writes('SKU-1')).toBe(1);
    expect(sandbox.writes('SKU-2')).toBe(0);
  });

  test.each(['', '1,5', '-1', '1e3', ' 1', 'NaN', '1.', 7])('%j is no price', async (price) => {
    const { productVariants, userErrors } = payloadOf(await write(sandbox, 'SKU-1', price));
    expect(productVariants).toBeNull();
    expect(userErrors).toEqual([
      { field: ['variants', '0', 'price'], message: expect.any(String), code: 'INVALID_INPUT' },
    ]);
    expect(sandbox.writes('SKU-1')).toBe(0);
  });

  test('a variant of another product is refused', async () => {
    const variants = [{ id: gid('SKU-1'), price: '1.00' }];
    const answer = await ask(sandbox, WRITE, { productId: 'gid://shopify/Product/fail-1', variants });
    expect(payloadOf(answer).userErrors).toMatchObject([
      { field: ['variants', '0', 'id'], code: 'PRODUCT_VARIANT_DOES_NOT_EXIST' },
    ]);
  });

  test('one bad variant stops the others unless partial updates are allowed', async () => {
    const { product } = (await readVariants(sandbox, ['SKU-1']))[0]!;
    const variants = [
      { id: gid('SKU-1'), price: 'x' },
      { id: gid('SKU-2'), price: '2.00' },
      { price: '3.00' },
    ];
    const whole = payloadOf(await ask(sandbox, WRITE, { productId: product.id, variants }));
    expect(whole.productVariants).toBeNull();
    expect(sandbox.writes('SKU-2')).toBe(0);
    const partial = payloadOf(await ask(sandbox, WRITE, { productId: product.id, variants, partial: true }));
    expect(partial.productVariants).toEqual([{ id: gid('SKU-2'), price: '2.00' }]);
    expect(partial.userErrors.map((error) => error.field[1])).toEqual(['0', '2']);
    expect(sandbox.writes('SKU-2')).toBe(1);
  });

  test('250 variants are taken, 251 are refused as a whole', async () => {
    const { product } = (await readVariants(sandbox, ['SKU-0']))[0]!;
    const variants = Array.from({ length: 251 }, (_, i) => ({ id: gid(`SKU-${i}`), price: '5.00' }));
    const refused = await ask(sandbox, WRITE, { productId: product.id, variants });
    expect(refused.status).toBe(200);
    expect(refused.body.data).toBeUndefined();
    expect(refused.body.errors).toMatchObject([{ extensions: { code: 'MAX_INPUT_SIZE_EXCEEDED' } }]);
    const taken = await ask(sandbox, WRITE, { productId: product.id, variants: variants.slice(1) });
    expect(payloadOf(taken).productVariants).toHaveLength(250);
  });

  test('state outlives the server that wrote it', async () => {
    const state = new MemorySandboxState();
    const first = await startSandbox({ state });
    await write(first, 'SKU-1', '42.00');
    await first.stop();
    const second = await startSandbox({ state });
    expect((await readVariants(second, ['SKU-1']))[0]!.price).toBe('42.00');
    await second.stop();
  });
});

describe('requests that are not fit to run', () => {
  test('a wrong or missing access token is 401', async () => {
    const answer = await ask(sandbox, '{ shop { name } }', {}, { 'x-shopify-access-token': 'wrong' });
    expect(answer.status).toBe(401);
  });

  test.each([
    ['a syntax error', '{ shop {'],
    ['an unknown field', '{ shop { owner } }'],
    ['a variable of the wrong type', 'query ($ids: [ID!]!) { nodes(ids: $ids) { id } }'],
    ['two operations', 'query A { shop { name } } query B { shop { name } }'],
  ])('%s gets GraphQL errors with the cost', async (_, query) => {
    const { status, body } = await ask(sandbox, query);
    expect(status).toBe(200);
    expect(body.errors?.length).toBeGreaterThan(0);
    expect(body.extensions.cost.throttleStatus.restoreRate).toBeGreaterThan(0);
  });

  test.each(['{', '[]', '{"query":7}', 'null'])('the body %s is 400', async (body) => {
    const headers = { 'content-type': 'application/json', 'x-shopify-access-token': sandbox.accessToken };
    const response = await fetch(sandbox.adminUrl, { method: 'POST', headers, body });
    expect(response.status).toBe(400);
  });

  test('a state that cannot be reached is 500, not an answer about the request', async () => {
    class BrokenState extends MemorySandboxState {
      override async writePrices(): Promise<void> {
        throw new Error('gone');
      }
    }
    const broken = await startSandbox({ state: new BrokenState() });
    expect((await write(broken, 'SKU-1', '1.00')).status).toBe(500);
    await broken.stop();
  });
});
