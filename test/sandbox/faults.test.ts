import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';
import { gid, payloadOf, readVariants, write, ask, WRITE } from './support.js';

let sandbox: Sandbox;

beforeEach(async () => {
  sandbox = await startSandbox();
});

afterEach(async () => {
  await sandbox.stop();
});

async function statuses(externalId: string, count: number, key?: string): Promise<number[]> {
  const headers: Record<string, string> = key === undefined ? {} : { 'idempotency-key': key };
  const seen: number[] = [];
  for (let i = 0; i < count; i += 1) seen.push((await write(sandbox, externalId, '1.00', headers)).status);
  return seen;
}

describe('faults by external id', () => {
  test('fail- is refused with a userError', async () => {
    const answer = await write(sandbox, 'fail-1', '1.00');
    expect(answer.status).toBe(200);
    expect(payloadOf(answer).userErrors).toMatchObject([{ field: ['variants', '0', 'price'] }]);
    expect(sandbox.writes('fail-1')).toBe(0);
  });

  test('flakyN- is 503 N times, then succeeds', async () => {
    expect(await statuses('flaky2-a', 4)).toEqual([503, 503, 200, 200]);
    expect(await statuses('flaky10-a', 11)).toEqual([...Array<number>(10).fill(503), 200]);
    expect(await statuses('flaky0-a', 1)).toEqual([200]);
  });

  test('a new idempotency key meets the fault afresh', async () => {
    expect(await statuses('flaky1-a', 2, 'run-1')).toEqual([503, 200]);
    expect(await statuses('flaky1-a', 2, 'run-2')).toEqual([503, 200]);
    expect(await statuses('flaky1-a', 1, 'run-1')).toEqual([200]);
  });

  test('one idempotency key does not spend the faults of another id', async () => {
    expect(await statuses('flaky1-a', 1, 'same')).toEqual([503]);
    expect(await statuses('flaky1-b', 1, 'same')).toEqual([503]);
  });

  test('down- is always 503', async () => {
    expect(await statuses('down-1', 5)).toEqual([503, 503, 503, 503, 503]);
  });

  test('throttle- is 429 once, with Retry-After', async () => {
    const first = await write(sandbox, 'throttle-1', '1.00');
    expect(first.status).toBe(429);
    expect(first.headers.get('retry-after')).toBe('1');
    expect((await write(sandbox, 'throttle-1', '1.00')).status).toBe(200);
  });

  test('auth- is 401', async () => {
    expect(await statuses('auth-1', 2)).toEqual([401, 401]);
  });

  test.each(['12.34', '0.50', '7', '0'])('drift- accepts %s and reads back another price', async (price) => {
    const [before] = await readVariants(sandbox, ['drift-1']);
    expect((await readVariants(sandbox, ['drift-1']))[0]).toEqual(before);
    expect(payloadOf(await write(sandbox, 'drift-1', price)).userErrors).toEqual([]);
    const after = (await readVariants(sandbox, ['drift-1']))[0]!.price;
    expect(after).not.toBe(price);
    expect(after).toMatch(/^\d+(\.\d+)?$/);
  });

  test('a fault strikes an inline argument too', async () => {
    const query = `mutation { productVariantsBulkUpdate(
      productId: "gid://shopify/Product/auth-1", variants: [{ id: "${gid('auth-1')}", price: "1.00" }]
    ) { userErrors { message } } }`;
    expect((await ask(sandbox, query)).status).toBe(401);
  });

  test('reads of every fault id work', async () => {
    const ids = ['fail-1', 'flaky9-1', 'down-1', 'throttle-1', 'auth-1', 'hang-1', 'drift-1'];
    expect((await readVariants(sandbox, ids)).map((variant) => variant.id)).toEqual(ids.map(gid));
  });
});

describe('hang-', () => {
  function hang(signal: AbortSignal): Promise<Response> {
    const variables = {
      productId: 'gid://shopify/Product/hang-1',
      variants: [{ id: gid('hang-1'), price: '1.00' }],
    };
    return fetch(sandbox.adminUrl, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-shopify-access-token': sandbox.accessToken },
      body: JSON.stringify({ query: WRITE, variables }),
      signal,
    });
  }

  test('holds the call until the client goes away', async () => {
    const controller = new AbortController();
    const call = hang(controller.signal).catch(() => 'cut');
    await expect.poll(() => sandbox.held()).toBe(1);
    controller.abort();
    expect(await call).toBe('cut');
    await expect.poll(() => sandbox.held()).toBe(0);
  });

  test('does not keep the sandbox from stopping', async () => {
    const call = hang(new AbortController().signal).catch(() => 'cut');
    await expect.poll(() => sandbox.held()).toBe(1);
    await sandbox.stop();
    expect(await call).toBe('cut');
  });
});
