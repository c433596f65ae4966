import { afterEach, describe, expect, test } from 'vitest';
import { applyAll, change, changes, NEVER, ScriptedServer, type ScriptedReply } from '../support.js';
import { batchForm, connectTo, idsIn, singleForm, type Settings } from './support.js';

let server: ScriptedServer;

afterEach(async () => {
  await server.stop();
});

const RESULT = { ok: { at: '/ok', is: [true] }, error: '/error/message', retryAfter: '/wait' };

function withResult(origin: string, answer: NonNullable<Settings['write']['answer']> = RESULT): Settings {
  const settings = singleForm(origin);
  return { ...settings, write: { ...settings.write, answer } };
}

const UPSTREAM = { kind: 'retryable', code: 'UPSTREAM' };
const APPLIED = { kind: 'applied' };

describe('one answer, one outcome', () => {
  test.each<[string, ScriptedReply, object]>([
    ['401', { status: 401 }, { kind: 'permanent', code: 'AUTH' }],
    ['403', { status: 403 }, { kind: 'permanent', code: 'AUTH' }],
    ['404', { status: 404 }, { kind: 'permanent', code: 'INVALID' }],
    ['408', { status: 408 }, { kind: 'retryable', code: 'TIMEOUT' }],
    ['500', { status: 500 }, UPSTREAM],
    ['302', { status: 302, headers: { location: 'http://127.0.0.1:9/' } }, UPSTREAM],
    [
      '503 with a delay',
      { status: 503, headers: { 'retry-after': '7' } },
      { ...UPSTREAM, retryAfterMs: 7000 },
    ],
    [
      '429 with seconds',
      { status: 429, headers: { 'retry-after': '2.5' } },
      { kind: 'retryable', code: 'RATE_LIMITED', retryAfterMs: 2500 },
    ],
    [
      '429 with seconds between blanks',
      { status: 429, headers: { 'retry-after': ' 9 ' } },
      { kind: 'retryable', code: 'RATE_LIMITED', retryAfterMs: 9000 },
    ],
    [
      '429 with a date in the past',
      { status: 429, headers: { 'retry-after': 'Wed, 21 Oct 2015 07:28:00 GMT' } },
      { kind: 'retryable', code: 'RATE_LIMITED', retryAfterMs: 0 },
    ],
    [
      '429 with a delay in the body',
      { status: 429, body: { wait: 3 } },
      { kind: 'retryable', code: 'RATE_LIMITED', retryAfterMs: 3000 },
    ],
    [
      '422 with a reason',
      { status: 422, body: { error: { message: 'too low' } } },
      { kind: 'permanent', code: 'INVALID', message: 'The channel answered HTTP 422: too low' },
    ],
    ['200 and ok', { body: { ok: true } }, APPLIED],
    [
      '200 and not ok',
      { body: { ok: false, error: { message: 'no' } } },
      { kind: 'permanent', message: 'no' },
    ],
    ['200 and neither', { body: {} }, { kind: 'permanent', code: 'INVALID' }],
    [
      '200, not ok, with a delay',
      { body: { ok: false, wait: '1.5' } },
      { kind: 'retryable', code: 'RATE_LIMITED', retryAfterMs: 1500 },
    ],
    ['a body that is no JSON', { body: '{"ok":' }, UPSTREAM],
    ['HTML', { headers: { 'content-type': 'text/html' }, body: '<p>' }, UPSTREAM],
    ['nothing', { body: '' }, UPSTREAM],
  ])('%s', async (_, reply, expected) => {
    server = await ScriptedServer.start(() => reply);
    const outcomes = await applyAll(connectTo(withResult(server.origin)), [change('a')]);
    expect(outcomes.get('a')).toMatchObject(expected);
    expect(server.calls).toHaveLength(1);
  });

  test('429 with a date in the future waits until then', async () => {
    const date = new Date(Date.now() + 3_600_000).toUTCString();
    server = await ScriptedServer.start(() => ({ status: 429, headers: { 'retry-after': date } }));
    const outcome = (await applyAll(connectTo(singleForm(server.origin)), [change('a')])).get('a');
    const retryAfterMs = outcome?.kind === 'retryable' ? outcome.retryAfterMs : undefined;
    expect(retryAfterMs).toBeGreaterThan(3_000_000);
    expect(retryAfterMs).toBeLessThanOrEqual(3_600_000);
  });

  test('without a mapping, 2xx is success whatever it says', async () => {
    server = await ScriptedServer.start(() => ({ status: 202, body: 'queued' }));
    expect((await applyAll(connectTo(singleForm(server.origin)), [change('a')])).get('a')).toEqual(APPLIED);
  });

  test('with a place for errors only, success is where none stands', async () => {
    server = await ScriptedServer.start(({ path }) => ({
      body: { error: path.endsWith('b') ? 'no' : null },
    }));
    const channel = connectTo(withResult(server.origin, { error: '/error' }));
    const outcomes = await applyAll(channel, [change('a'), change('b')]);
    expect(outcomes.get('a')).toEqual(APPLIED);
    expect(outcomes.get('b')).toMatchObject({ kind: 'permanent', message: 'no' });
  });

  test('the channel’s own codes mean what the settings say', async () => {
    const codes = { E1: 'UPSTREAM', E2: 'CONFLICT', E3: 'AUTH' } as const;
    const answer = { ...RESULT, code: { at: '/code', means: codes } };
    server = await ScriptedServer.start(({ path }) => ({
      body: { ok: false, code: path.slice('/prices/'.length) },
    }));
    const outcomes = await applyAll(
      connectTo(withResult(server.origin, answer)),
      ['E1', 'E2', 'E3', 'E4'].map((id) => change(id)),
    );
    expect(Object.fromEntries(outcomes)).toMatchObject({
      E1: UPSTREAM,
      E2: { kind: 'permanent', code: 'CONFLICT' },
      E3: { kind: 'permanent', code: 'AUTH' },
      E4: { kind: 'permanent', code: 'INVALID' },
    });
  });

  test('a credential that the endpoint says back is not in the message', async () => {
    server = await ScriptedServer.start(({ headers }) => ({
      body: { ok: false, error: { message: `bad ${headers.authorization}` } },
    }));
    const outcome = (await applyAll(connectTo(withResult(server.origin)), [change('a')])).get('a');
    expect(outcome).toMatchObject({ message: 'bad Bearer ***' });
  });

  test('an answer that is too large is not read', async () => {
    server = await ScriptedServer.start(() => ({
      body: JSON.stringify({ ok: true, pad: 'x'.repeat(4096) }),
    }));
    const channel = connectTo({ ...withResult(server.origin), maxAnswerBytes: 1024 });
    expect((await applyAll(channel, [change('a')])).get('a')).toMatchObject({
      ...UPSTREAM,
      message: 'The answer is larger than 1024 bytes',
    });
  });

  test('a connection that breaks is UPSTREAM', async () => {
    server = await ScriptedServer.start((_, reply) => {
      reply.destroy();
      return {};
    });
    expect((await applyAll(connectTo(singleForm(server.origin)), [change('a')])).get('a')).toMatchObject(
      UPSTREAM,
    );
  });

  test.each(['no answer', 'an answer that stops in the middle'])('%s is TIMEOUT', async (what) => {
    server = await ScriptedServer.start((_, reply) => {
      if (what !== 'no answer') {
        reply.writeHead(200);
        reply.write('{"ok":');
      }
      return new Promise<ScriptedReply>(() => {});
    });
    const channel = connectTo({ ...withResult(server.origin), callTimeoutMs: 300 });
    expect((await applyAll(channel, [change('a')])).get('a')).toMatchObject({
      kind: 'retryable',
      code: 'TIMEOUT',
    });
  });
});

describe('answers of a batch', () => {
  test('each item has its own, whatever their order', async () => {
    server = await ScriptedServer.start((call) => ({
      body: {
        results: idsIn(call)
          .reverse()
          .map((sku) => {
            if (sku === 'SKU-1') return { sku, status: 'bad', reason: 'too low' };
            return sku === 'SKU-2' ? { sku, status: 'busy', retryAfter: 4 } : { sku, status: 'ok' };
          }),
      },
    }));
    const outcomes = await applyAll(connectTo(batchForm(server.origin)), changes(5));
    expect(outcomes.get('SKU-1')).toEqual({ kind: 'permanent', code: 'INVALID', message: 'too low' });
    expect(outcomes.get('SKU-2')).toMatchObject({
      kind: 'retryable',
      code: 'RATE_LIMITED',
      retryAfterMs: 4000,
    });
    expect([...outcomes.values()].filter(({ kind }) => kind === 'applied')).toHaveLength(3);
    expect(server.calls).toHaveLength(1);
  });

  test('an item that is not mentioned is not known to be applied', async () => {
    server = await ScriptedServer.start(() => ({ body: { results: [{ sku: 'SKU-0', status: 'ok' }] } }));
    const outcomes = await applyAll(connectTo(batchForm(server.origin)), changes(2));
    expect(outcomes.get('SKU-0')).toEqual(APPLIED);
    expect(outcomes.get('SKU-1')).toMatchObject(UPSTREAM);
  });

  test.each([{}, { results: 'none' }, []])('%j gives every item the same failure', async (body) => {
    server = await ScriptedServer.start(() => ({ body }));
    const outcomes = await applyAll(connectTo(batchForm(server.origin)), changes(3));
    expect([...outcomes.values()]).toEqual(Array(3).fill(expect.objectContaining(UPSTREAM)));
    expect(server.calls).toHaveLength(1);
  });

  test('without ids they stand in order, and a missing one spoils them all', async () => {
    server = await ScriptedServer.start((call) => {
      const ids = idsIn(call);
      const answered = ids.includes('SKU-5') ? ids.slice(1) : ids;
      return { body: { results: answered.map((sku) => ({ status: sku === 'SKU-1' ? 'bad' : 'ok' })) } };
    });
    const settings = batchForm(server.origin);
    const { id: _, ...byOrder } = settings.write.answer!;
    const write = { ...settings.write, answer: byOrder };
    const channel = connectTo({ ...settings, write });
    const outcomes = await applyAll(channel, changes(3));
    expect([...outcomes.values()].map(({ kind }) => kind)).toEqual(['applied', 'permanent', 'applied']);
    const spoilt = await applyAll(channel, changes(6));
    expect([...spoilt.values()]).toEqual(Array(6).fill(expect.objectContaining(UPSTREAM)));
  });
});

describe('fetchPrices', () => {
  test('one call per item where the address asks for one; 404 is an item that is not there', async () => {
    server = await ScriptedServer.start(({ path }) =>
      path.endsWith('/b') ? { status: 404 } : { body: { price: path.endsWith('/c') ? 7.05 : '19.99' } },
    );
    const { prices } = await connectTo(singleForm(server.origin)).fetchPrices(['a', 'b', 'c'], 'EUR', NEVER);
    expect(prices).toEqual(
      new Map([
        ['a', 1999],
        ['c', 705],
      ]),
    );
    expect(server.calls.map(({ method }) => method)).toEqual(['GET', 'GET', 'GET']);
  });

  test('in bulk, in minor units, leaving out what is not known and what was not asked for', async () => {
    server = await ScriptedServer.start((call) => ({
      body: {
        prices: [
          { sku: 'stranger', amount: 1 },
          ...idsIn(call)
            .filter((id) => id !== 'SKU-3')
            .map((sku) => ({ sku, amount: sku === 'SKU-4' ? null : 1250 })),
        ],
      },
    }));
    const ids = changes(25).map(({ externalId }) => externalId);
    const { prices } = await connectTo(batchForm(server.origin)).fetchPrices(ids, 'EUR', NEVER);
    expect([...prices.keys()].sort()).toEqual(ids.filter((id) => id !== 'SKU-3' && id !== 'SKU-4').sort());
    expect(new Set(prices.values())).toEqual(new Set([1250]));
    expect(server.calls.map((call) => idsIn(call).length)).toEqual([10, 10, 5]);
  });

  test.each<[string, ScriptedReply, object]>([
    ['429', { status: 429, headers: { 'retry-after': '3' } }, { code: 'RATE_LIMITED', retryAfterMs: 3000 }],
    ['500', { status: 500 }, { code: 'UPSTREAM', kind: 'retryable' }],
    ['401', { status: 401 }, { code: 'AUTH', kind: 'permanent' }],
    ['garbage', { body: '<p>' }, { code: 'UPSTREAM' }],
    ['a price that is none', { body: { price: 'cheap' } }, { code: 'INVALID' }],
    ['a fraction of a cent', { body: { price: '1.005' } }, { code: 'INVALID' }],
  ])('%s is a failure of its item that says why', async (_, reply, failure) => {
    server = await ScriptedServer.start(({ path }) => (path.endsWith('/b') ? { body: { price: 1 } } : reply));
    const read = await connectTo(singleForm(server.origin)).fetchPrices(['a', 'b'], 'EUR', NEVER);
    expect(read.failures.get('a')).toMatchObject(failure);
    expect([read.prices.get('b'), read.prices.size, read.failures.size]).toEqual([100, 1, 1]);
  });

  test('a bulk read that is refused is halved until the culprit stands alone', async () => {
    server = await ScriptedServer.start((call) =>
      idsIn(call).includes('SKU-7')
        ? { status: 422 }
        : { body: { prices: idsIn(call).map((sku) => ({ sku, amount: sku === 'SKU-2' ? 'cheap' : 5 })) } },
    );
    const ids = changes(10).map(({ externalId }) => externalId);
    const { prices, failures } = await connectTo(batchForm(server.origin)).fetchPrices(ids, 'EUR', NEVER);
    expect([...prices.keys()].sort()).toEqual(ids.filter((id) => id !== 'SKU-7' && id !== 'SKU-2'));
    expect([...failures.keys()].sort()).toEqual(['SKU-2', 'SKU-7']);
    for (const failure of failures.values()) expect(failure).toMatchObject({ code: 'INVALID' });
  });

  test('a bulk read that fails in passing costs only its own items, and is not tried in halves', async () => {
    server = await ScriptedServer.start((call) =>
      idsIn(call).includes('SKU-0')
        ? { status: 503, headers: { 'retry-after': '4' } }
        : { body: { prices: idsIn(call).map((sku) => ({ sku, amount: 5 })) } },
    );
    const ids = changes(25).map(({ externalId }) => externalId);
    const { prices, failures } = await connectTo(batchForm(server.origin)).fetchPrices(ids, 'EUR', NEVER);
    expect([...failures.keys()]).toEqual(ids.slice(0, 10));
    expect(new Set(failures.values()).size).toBe(1);
    expect(failures.get('SKU-0')).toMatchObject({ kind: 'retryable', retryAfterMs: 4000 });
    expect(prices.size).toBe(15);
    expect(server.calls).toHaveLength(3);
  });
});
