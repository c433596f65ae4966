import { createHash, createHmac } from 'node:crypto';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import {
  applyAll,
  change,
  changes,
  NEVER,
  ScriptedServer,
  type Call,
  type ScriptedReply,
} from '../support.js';
import { batchForm, connectTo, idsIn, singleForm, type Settings } from './support.js';

let server: ScriptedServer;

afterEach(async () => {
  await server.stop();
});

const allOk = (call: Call): ScriptedReply => ({
  body: { results: idsIn(call).map((sku) => ({ sku, status: 'ok' })) },
});

describe('what a call carries', () => {
  test('one item: address, headers and body from the templates, a number where one is meant', async () => {
    server = await ScriptedServer.start(() => ({}));
    await applyAll(connectTo(singleForm(server.origin)), [change('a/b ?', 1999, 'EUR')]);
    const [call] = server.calls;
    expect(call).toMatchObject({ method: 'PUT', path: '/prices/a%2Fb%20%3F' });
    expect(JSON.parse(call!.body)).toEqual({ price: '19.99', minor: 1999, currency: 'EUR' });
    expect(call!.headers).toMatchObject({
      authorization: 'Bearer s3cret-token',
      'idempotency-key': 'key:a/b ?',
      'content-type': 'application/json',
    });
  });

  test('several items: the list, and a key of all of them whatever their order', async () => {
    server = await ScriptedServer.start(allOk);
    const channel = connectTo(batchForm(server.origin));
    await applyAll(channel, [change('a', 100), change('b', 200)]);
    await applyAll(channel, [change('b', 200), change('a', 100)]);
    const [first, second] = server.calls.map(
      (call) => JSON.parse(call.body) as { updates: unknown; key: string },
    );
    expect(first!.updates).toEqual([
      { sku: 'a', amount: 100 },
      { sku: 'b', amount: 200 },
    ]);
    expect(first!.key).toBe(createHash('sha256').update('key:a\nkey:b').digest('hex'));
    expect(second!.key).toBe(first!.key);
    expect(server.calls[0]!.headers['idempotency-key']).toBe(first!.key);
  });

  test('text around a placeholder, keys, lists, and a decimal as a number', async () => {
    server = await ScriptedServer.start(() => ({}));
    const { write, ...rest } = singleForm(server.origin);
    const body = { '{{externalId}}': ['{{ decimal }} {{currency}}', '{{decimalNumber}}', null, 7, true] };
    await applyAll(connectTo({ ...rest, write: { ...write, body } }), [change('a', 5, 'KWD')]);
    expect(JSON.parse(server.calls[0]!.body)).toEqual({ a: ['0.005 KWD', 0.005, null, 7, true] });
  });

  test('a credential in the address and the body, encoded, and in no message that the endpoint says back', async () => {
    server = await ScriptedServer.start(({ path, body }) => ({
      status: 422,
      body: { error: { message: `no: ${path} ${body}` } },
    }));
    const { write, read, ...rest } = singleForm(server.origin);
    const token = 'p&ss "wörd"/1';
    const settings: Settings = {
      ...rest,
      write: {
        ...write,
        url: `${write.url}?api_key={{credentials.token}}`,
        body: { token: '{{credentials.token}}' },
        answer: { error: '/error/message' },
      },
      read: { ...read, url: `${read.url}?api_key={{credentials.token}}` },
      credentials: { token },
    };
    const channel = connectTo({ ...settings, write: { ...settings.write, headers: {} } });
    const outcome = (await applyAll(channel, [change('a')])).get('a');
    const { path, body } = server.calls[0]!;
    expect(new URL(path, server.origin).searchParams.get('api_key')).toBe(token);
    expect(JSON.parse(body)).toEqual({ token });
    expect(outcome).toMatchObject({
      message: 'The channel answered HTTP 422: no: /prices/a?api_key=*** {"token":"***"}',
    });
    await server.stop();
    const { failures } = await channel.fetchPrices(['a'], 'EUR', NEVER);
    expect(JSON.stringify([...failures])).not.toContain('rd');
  });

  test('a signature over time, method, path and body', async () => {
    server = await ScriptedServer.start(() => ({ body: { price: '1.00' } }));
    const settings: Settings = {
      ...singleForm(server.origin),
      credentials: { token: 't', signing: 'hmac-key' },
      signature: { header: 'X-Signature', credential: 'signing' },
    };
    const before = Math.floor(Date.now() / 1000);
    await applyAll(connectTo(settings), [change('a')]);
    await connectTo(settings).fetchPrices(['a'], 'EUR', NEVER);
    for (const { method, path, headers, body } of server.calls) {
      const [, time, digest] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers['x-signature']))!;
      expect(Number(time)).toBeGreaterThanOrEqual(before);
      const expected = createHmac('sha256', 'hmac-key').update(`${time}.${method}.${path}.${body}`);
      expect(digest).toBe(expected.digest('hex'));
    }
    expect(server.calls).toHaveLength(2);
  });

  test('the header for the key has the name that the settings give it, over one of theirs', async () => {
    server = await ScriptedServer.start(() => ({}));
    const { write, ...rest } = singleForm(server.origin);
    const headers = { 'x-request-id': 'mine', 'Content-Type': 'application/vnd.x+json' };
    const settings = { ...rest, write: { ...write, headers }, idempotencyHeader: 'X-Request-Id' };
    await applyAll(connectTo(settings), [change('a')]);
    expect(server.calls[0]!.headers).toMatchObject({
      'x-request-id': 'key:a',
      'content-type': 'application/vnd.x+json',
    });
  });

  test('nothing to another address, even when the endpoint points there', async () => {
    const other = await ScriptedServer.start(() => ({}));
    server = await ScriptedServer.start(() => ({ status: 307, headers: { location: other.origin } }));
    const outcomes = await applyAll(connectTo(singleForm(server.origin)), [change('a')]);
    expect(outcomes.get('a')).toMatchObject({ kind: 'retryable', code: 'UPSTREAM' });
    expect(other.calls).toEqual([]);
    await other.stop();
  });

  test.each(['.', '..', '\ud800'])('an id that no address can hold (%j) is the item’s fault', async (id) => {
    server = await ScriptedServer.start(() => ({}));
    const outcomes = await applyAll(connectTo(singleForm(server.origin)), [change(id), change('a')]);
    expect(outcomes.get(id)).toMatchObject({ kind: 'permanent', code: 'INVALID' });
    expect(outcomes.get('a')).toEqual({ kind: 'applied' });
    expect(server.calls.map(({ path }) => path)).toEqual(['/prices/a']);
  });

  test('so is one that no header can hold, alone among others', async () => {
    server = await ScriptedServer.start(() => ({}));
    const batch = changes(9).map((item) =>
      item.externalId === 'SKU-4' ? { ...item, idempotencyKey: 'k\n' } : item,
    );
    const { write, ...rest } = singleForm(server.origin);
    const outcomes = await applyAll(
      connectTo({ ...rest, write: { ...write, headers: { 'x-k': '{{idempotencyKey}}' } } }),
      batch,
    );
    expect([...outcomes].filter(([, { kind }]) => kind === 'permanent').map(([id]) => id)).toEqual(['SKU-4']);
    expect(outcomes.size).toBe(9);
  });

  test('no amount that is none', async () => {
    server = await ScriptedServer.start(() => ({}));
    const batch = [change('a', 1.5), change('b', -1), change('c', 1, 'XYZ'), change('d')];
    const outcomes = await applyAll(connectTo(singleForm(server.origin)), batch);
    expect([...outcomes.values()].filter(({ kind }) => kind === 'permanent')).toHaveLength(3);
    expect(server.calls).toHaveLength(1);
  });
});

describe('calls with several items', () => {
  const refusals: readonly (readonly [string, ScriptedReply])[] = [
    ['HTTP 400', { status: 400 }],
    ['HTTP 422', { status: 422, body: { reason: 'no' } }],
  ];

  test.each(refusals)('%s for the whole is halved down to the culprits', async (_, refusal) => {
    const ids = changes(20).map((item) => item.externalId);
    const property = fc.asyncProperty(fc.subarray(ids, { maxLength: 4 }), async (culprits) => {
      server = await ScriptedServer.start((call) =>
        idsIn(call).some((id) => culprits.includes(id)) ? refusal : allOk(call),
      );
      const outcomes = await applyAll(connectTo(batchForm(server.origin)), changes(20));
      await server.stop();
      expect(ids.filter((id) => outcomes.get(id)?.kind === 'permanent')).toEqual(culprits);
      expect(ids.filter((id) => outcomes.get(id)?.kind === 'applied')).toHaveLength(20 - culprits.length);
    });
    await fc.assert(property, { numRuns: 8 });
    server = await ScriptedServer.start(allOk);
  });

  test('a refusal that the body tells is halved too', async () => {
    server = await ScriptedServer.start((call) => ({ body: { ok: !idsIn(call).includes('SKU-3') } }));
    const settings = batchForm(server.origin);
    const write = { ...settings.write, answer: { ok: { at: '/ok', is: [true] } } };
    const outcomes = await applyAll(connectTo({ ...settings, write }), changes(8));
    expect([...outcomes].filter(([, { kind }]) => kind !== 'applied').map(([id]) => id)).toEqual(['SKU-3']);
  });

  test.each([401, 429, 503])('HTTP %d is not halved', async (status) => {
    server = await ScriptedServer.start(() => ({ status }));
    expect((await applyAll(connectTo(batchForm(server.origin)), changes(10))).size).toBe(10);
    expect(server.calls).toHaveLength(1);
  });

  test('in any mix of answers every item gets exactly one outcome', async () => {
    const statuses = fc.array(fc.constantFrom(200, 200, 400, 401, 429, 500, 302), {
      minLength: 40,
      maxLength: 40,
    });
    const property = fc.asyncProperty(statuses, async (plan) => {
      let turn = 0;
      server = await ScriptedServer.start((call) => {
        const status = plan[turn++ % plan.length]!;
        return status === 200 ? allOk(call) : { status };
      });
      const outcomes = await applyAll(connectTo(batchForm(server.origin)), changes(45));
      await server.stop();
      expect(outcomes.size).toBe(45);
    });
    await fc.assert(property, { numRuns: 8 });
    server = await ScriptedServer.start(allOk);
  });

  test('at most 8 calls are in flight', async () => {
    let open = 0;
    let most = 0;
    server = await ScriptedServer.start(async () => {
      open += 1;
      most = Math.max(most, open);
      await new Promise((resolve) => setImmediate(resolve));
      open -= 1;
      return {};
    });
    expect((await applyAll(connectTo(singleForm(server.origin)), changes(60))).size).toBe(60);
    expect(most).toBeLessThanOrEqual(8);
    expect(most).toBeGreaterThan(1);
  });
});

describe('an abort', () => {
  test('cuts the calls under way and ends the iteration; what was known is known', async () => {
    let closed = 0;
    server = await ScriptedServer.start((call, reply) => {
      if (call.path.endsWith('/fast')) return {};
      reply.on('close', () => (closed += 1));
      return new Promise<ScriptedReply>(() => {});
    });
    const controller = new AbortController();
    const seen: string[] = [];
    const channel = connectTo(singleForm(server.origin));
    for await (const outcomes of channel.applyPrices([change('slow'), change('fast')], controller.signal)) {
      seen.push(...outcomes.map(({ externalId }) => externalId));
      controller.abort();
    }
    expect(seen).toEqual(['fast']);
    await expect.poll(() => closed).toBe(1);
  });

  test('before the start means no call', async () => {
    server = await ScriptedServer.start(() => ({}));
    const channel = connectTo(singleForm(server.origin));
    expect((await applyAll(channel, [change('a')], AbortSignal.abort())).size).toBe(0);
    await expect(channel.fetchPrices(['a'], 'EUR', AbortSignal.abort())).rejects.toMatchObject({
      code: 'UNAVAILABLE',
    });
    expect(server.calls).toEqual([]);
  });
});
