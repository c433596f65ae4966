import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { GraphqlServer } from '../../src/server/http.js';
import { post, send, startTestServer, type Stage } from './support.js';

let server: GraphqlServer;
let stage: Stage;

beforeAll(async () => {
  ({ server, stage } = await startTestServer());
});

afterAll(() => server.stop());

async function expectStillServing(): Promise<void> {
  expect((await post(server, '{ hello }')).json.data).toEqual({ hello: 'world' });
}

describe('operations', () => {
  test('a query and a mutation over POST', async () => {
    expect((await post(server, '{ hello }')).json.data).toEqual({ hello: 'world' });
    const added = await post(server, 'mutation ($n: [Int!]!) { add(numbers: $n) }', { n: [1, 2, 3] });
    expect(added.json.data).toEqual({ add: 6 });
  });

  test('a query over GET needs the header that no foreign page can send', async () => {
    const path = '/graphql?query=%7Bhello%7D';
    const blocked = await send(server, { path });
    expect(blocked.status).toBe(400);
    expect(blocked.json.errors?.[0]?.extensions['code']).toBe('BAD_USER_INPUT');
    expect(blocked.json.errors?.[0]?.message).toContain('Cross-Site Request Forgery');
    const allowed = await send(server, { path, headers: { 'apollo-require-preflight': '1' } });
    expect(allowed.json.data).toEqual({ hello: 'world' });
  });

  test('a mutation over GET is refused', async () => {
    const path = '/graphql?query=mutation%7Badd(numbers:[1])%7D';
    const answer = await send(server, { path, headers: { 'apollo-require-preflight': '1' } });
    expect(answer.status).toBe(405);
    expect(answer.json.errors?.[0]?.extensions['code']).toBe('BAD_USER_INPUT');
  });

  test('a subscription over HTTP is told where to go', async () => {
    const answer = await post(server, 'subscription { ticks { n } }');
    expect(answer.status).toBe(400);
    expect(answer.json.errors?.[0]).toMatchObject({ extensions: { code: 'BAD_USER_INPUT' } });
    expect(answer.json.errors?.[0]?.message).toContain('WebSocket');
  });

  test('each operation has a context of its own', async () => {
    const first = await post(server, '{ visit }');
    const second = await post(server, '{ visit }');
    expect(second.json.data?.['visit']).not.toBe(first.json.data?.['visit']);
  });

  test('an anonymous operation asked for by name is refused, not a crash', async () => {
    const body = JSON.stringify({ query: '{ hello }', operationName: 'Nope' });
    const answer = await send(server, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    expect(answer.status).toBe(400);
    expect(answer.json.errors?.[0]?.extensions['code']).toBe('BAD_USER_INPUT');
  });
});

describe('authentication', () => {
  test('a key makes its viewer', async () => {
    const answer = await post(server, '{ actor }', {}, { authorization: 'Bearer good' });
    expect(answer.json.data).toEqual({ actor: 'key good' });
  });

  test.each(['Bearer wrong', 'Bearer', 'Basic dXNlcg==', 'garbage \t ~', ''])(
    'refuses Authorization: %j with 401',
    async (authorization) => {
      const answer = await post(server, '{ hello }', {}, { authorization });
      expect(answer.status).toBe(401);
      expect(answer.headers['www-authenticate']).toBe('Bearer');
      expect(answer.json.errors?.[0]?.extensions).toEqual({ code: 'UNAUTHENTICATED' });
      expect(answer.json.data).toBeUndefined();
    },
  );

  test('a local caller needs no key; one that a foreign page sent does', async () => {
    expect((await post(server, '{ actor }')).json.data).toEqual({ actor: 'local' });
    for (const headers of [
      { host: 'evil.example' },
      { origin: 'https://evil.example' },
      { origin: 'null' },
    ]) {
      expect((await post(server, '{ hello }', {}, headers)).status).toBe(401);
    }
  });

  test('a refusal by the application keeps its code and gets its status', async () => {
    const forbidden = await post(server, '{ hello }', {}, { authorization: 'Bearer nobody' });
    expect([forbidden.status, forbidden.json.errors?.[0]?.extensions['code']]).toEqual([403, 'FORBIDDEN']);
    const away = await post(server, '{ hello }', {}, { authorization: 'Bearer db-away' });
    expect([away.status, away.json.errors?.[0]?.extensions['code']]).toEqual([503, 'UNAVAILABLE']);
    const fault = await post(server, '{ hello }', {}, { authorization: 'Bearer explode' });
    expect([fault.status, fault.json.errors?.[0]?.extensions['code']]).toEqual([500, 'INTERNAL']);
    expect(fault.text).not.toContain('hunter2');
  });

  test('comes before the body is read', async () => {
    const answer = await send(server, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: 'Bearer wrong' },
      body: '{ not json',
    });
    expect(answer.status).toBe(401);
  });

  test('keeps keys out of the log', () => {
    expect(stage.logged.some((line) => line['msg'] === 'request')).toBe(true);
    expect(JSON.stringify(stage.logged)).not.toMatch(/Bearer (good|wrong)/);
  });
});

describe('errors', () => {
  test('an unforeseen one is logged whole and shown as INTERNAL with the id of its log line', async () => {
    const answer = await post(server, '{ boom hello }');
    const error = answer.json.errors?.[0];
    expect(answer.status).toBe(200);
    expect(answer.json.data).toEqual({ boom: null, hello: 'world' });
    expect(error).toMatchObject({ message: 'Something went wrong on our side', path: ['boom'] });
    expect(Object.keys(error?.extensions ?? {}).sort()).toEqual(['code', 'correlationId']);
    expect(error?.extensions['code']).toBe('INTERNAL');
    expect(answer.text).not.toContain('hunter2');
    const line = stage.logged.find((entry) => entry['correlationId'] === error?.extensions['correlationId']);
    expect(line).toMatchObject({ err: { message: 'password=hunter2' }, path: 'boom' });
    expect(JSON.stringify(line)).toContain('stack');
  });

  test('a value of ours that does not fit its type is our fault', async () => {
    const answer = await post(server, '{ wrongType }');
    expect(answer.json.errors?.[0]?.extensions['code']).toBe('INTERNAL');
    expect(answer.text).not.toContain('not a number');
  });

  test.each([
    ['FORBIDDEN', 'FORBIDDEN'],
    ['UNAVAILABLE', 'UNAVAILABLE'],
    ['RATE_LIMITED', 'RATE_LIMITED'],
    ['NOT_FOUND', 'NOT_FOUND'],
    ['INVALID_INPUT', 'BAD_USER_INPUT'],
    ['LIMIT_EXCEEDED', 'BAD_USER_INPUT'],
  ])('AppError %s is shown as %s, with its field and details', async (code, shown) => {
    const answer = await post(server, 'query ($code: String!) { refused(code: $code) }', { code });
    expect(answer.json.errors?.[0]).toMatchObject({
      message: `refused as ${code}`,
      extensions: { code: shown, field: ['code'], details: { why: 'test' } },
    });
  });

  test.each([
    ['a document that does not parse', '{ hello', undefined],
    ['a field that does not exist', '{ helo }', undefined],
    ['a variable that is missing', 'query ($n: [Int!]!) { count(numbers: $n) }', {}],
    ['a variable of the wrong type', 'query ($n: [Int!]!) { count(numbers: $n) }', { n: ['x'] }],
    ['a literal of the wrong type', '{ count(numbers: ["x"]) }', undefined],
    ['an empty document', '', undefined],
    ['a comment only', '# nothing', undefined],
  ])('%s is BAD_USER_INPUT', async (_name, query, variables) => {
    const answer = await post(server, query, variables);
    expect(answer.status).toBe(400);
    expect(answer.json.errors?.length).toBeGreaterThan(0);
    for (const error of answer.json.errors ?? [])
      expect(error.extensions).toEqual({ code: 'BAD_USER_INPUT' });
    await expectStillServing();
  });

  test('every bad variable is named', async () => {
    const answer = await post(server, 'query ($n: [Int!]!) { count(numbers: $n) }', { n: ['x', 1, 'y'] });
    expect(answer.json.errors).toHaveLength(2);
  });
});

describe('bad bodies', () => {
  const json = { 'content-type': 'application/json' };

  test.each([
    ['malformed JSON', '{ "query": '],
    ['no body', ''],
    ['null', 'null'],
    ['a number', '7'],
    ['a batch', '[{"query":"{ hello }"},{"query":"{ hello }"}]'],
    ['a query that is no string', '{"query": {"a": 1}}'],
    ['variables that are no object', '{"query": "{ hello }", "variables": [1]}'],
    ['a prototype', '{"query": "{ hello }", "__proto__": {"x": 1}}'],
  ])('%s: 400', async (_name, body) => {
    const answer = await send(server, { method: 'POST', headers: json, body });
    expect(answer.status).toBe(400);
    expect(answer.json.errors?.[0]?.extensions).toEqual({ code: 'BAD_USER_INPUT' });
    await expectStillServing();
  });

  test.each([
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'nonsense',
    undefined,
  ])('Content-Type %s: refused before anything runs', async (type) => {
    const answer = await send(server, {
      method: 'POST',
      headers: type === undefined ? {} : { 'content-type': type },
      body: JSON.stringify({ query: 'mutation { add(numbers: [1]) }' }),
    });
    expect(answer.status).toBe(415);
    expect(answer.json.errors?.[0]?.extensions).toEqual({ code: 'BAD_USER_INPUT' });
  });

  test('a body of 10 MiB is read; one byte more is refused', async () => {
    const limit = 10 * 1024 * 1024;
    const empty = JSON.stringify({ query: '{ hello }', variables: { pad: '' } });
    const padded = (size: number): string => empty.replace('""', `"${'x'.repeat(size - empty.length)}"`);
    const fits = await send(server, { method: 'POST', headers: json, body: padded(limit) });
    expect(fits.json.data).toEqual({ hello: 'world' });
    const tooLarge = await send(server, { method: 'POST', headers: json, body: padded(limit + 1) });
    expect(tooLarge.status).toBe(413);
    expect(tooLarge.json.errors?.[0]).toEqual({
      message: `The request body is larger than ${limit} bytes.`,
      extensions: { code: 'BAD_USER_INPUT' },
    });
    await expectStillServing();
  });

  test('the refusal reaches a client that sends far too much, with or without its length', async () => {
    const body = Buffer.alloc(40 * 1024 * 1024, 0x20);
    for (const headers of [json, { ...json, 'transfer-encoding': 'chunked' }]) {
      expect((await send(server, { method: 'POST', headers, body })).status).toBe(413);
    }
    await expectStillServing();
  });
});

describe('the browser', () => {
  test('CORS is closed: a preflight is answered without any permission', async () => {
    const preflight = await send(server, {
      method: 'OPTIONS',
      headers: { origin: 'https://evil.example', 'access-control-request-method': 'POST' },
    });
    expect(preflight.status).toBe(204);
    const answer = await post(
      server,
      '{ hello }',
      {},
      { origin: 'http://localhost:1', authorization: 'Bearer good' },
    );
    for (const { headers } of [preflight, answer]) {
      expect(Object.keys(headers).filter((name) => name.startsWith('access-control-'))).toEqual([]);
    }
  });

  test.each(['/graphql', '/healthz', '/nowhere'])('%s carries the security headers', async (path) => {
    const { headers } = await send(server, { path });
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(headers['referrer-policy']).toBe('no-referrer');
    expect(headers['content-security-policy']).toContain("frame-ancestors 'none'");
    expect(headers['x-powered-by']).toBeUndefined();
  });

  test('/ leads to /graphql, and other paths are not found', async () => {
    const root = await send(server, { path: '/' });
    expect([root.status, root.headers.location]).toEqual([302, '/graphql']);
    const nowhere = await send(server, { path: '/nowhere?key=secret' });
    expect(nowhere.status).toBe(404);
    expect(nowhere.json.errors?.[0]?.extensions['code']).toBe('NOT_FOUND');
    expect(nowhere.text).not.toContain('secret');
  });
});

describe('health', () => {
  test('live, and ready with its checks', async () => {
    expect((await send(server, { path: '/healthz' })).status).toBe(200);
    const ready = await send(server, { path: '/readyz' });
    expect(ready.status).toBe(200);
    expect(ready.json).toEqual({ ready: true, checks: { database: 'ok', listener: 'ok' } });
  });

  test('not ready while a part is down or cannot be asked, and still live', async () => {
    const answers = [
      async () => ({ ready: false, checks: { database: 'connection refused', listener: 'ok' } }),
      () => Promise.reject(new Error('password=hunter2')),
    ];
    const down = await startTestServer({ isReady: () => (answers.shift() as () => never)() });
    const refused = await send(down.server, { path: '/readyz' });
    expect(refused.status).toBe(503);
    expect(refused.json).toEqual({
      ready: false,
      checks: { database: 'connection refused', listener: 'ok' },
    });
    const failed = await send(down.server, { path: '/readyz' });
    expect(failed.status).toBe(503);
    expect(failed.text).not.toContain('hunter2');
    expect((await send(down.server, { path: '/healthz' })).status).toBe(200);
    await down.server.stop();
  });
});
