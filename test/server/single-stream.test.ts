// Several subscriptions on one event stream, by hand: reserved, opened, added to, and ended.
import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import { afterEach, expect, test } from 'vitest';
import type { GraphqlServer } from '../../src/server/http.js';
import type { Limits } from '../../src/server/limits.js';
import { until } from '../support/app.js';
import { send, startTestServer, type Stage } from './support.js';

let server: GraphqlServer;
let stage: Stage;

afterEach(() => server.stop());

async function start(limits: Partial<Limits> = {}): Promise<void> {
  ({ server, stage } = await startTestServer({ limits }));
}

const WATCH = 'subscription { watch { n visit } }';

/** A stream that is reserved and open, and how to add subscriptions to it. */
async function openSingle(): Promise<{
  response: IncomingMessage;
  add: (operationId: string, body: object, headers?: object) => Promise<number>;
}> {
  const path = '/graphql/stream';
  const authorization = 'Bearer good';
  const { text: token } = await send(server, { method: 'PUT', path, headers: { authorization } });
  const headers = { authorization, 'x-graphql-event-stream-token': token };
  const request = http.get({ host: '127.0.0.1', port: server.port, path, headers, agent: false });
  request.on('error', () => undefined);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.on('error', () => undefined);
  const add = async (operationId: string, body: object, extra: object = {}): Promise<number> => {
    const sending = {
      method: 'POST',
      path,
      headers: { 'content-type': 'application/json', ...headers, ...extra },
      body: JSON.stringify({ ...body, extensions: { operationId } }),
    };
    return (await send(server, sending)).status;
  };
  return { response, add };
}

test('a single connection: each subscription of runEvents goes on after its own Last-Event-ID', async () => {
  await start();
  const { response, add } = await openSingle();
  const query = 'subscription ($after: Int) { runEvents(after: $after) { seq } }';
  expect(await add('one', { query, variables: { after: 5 } }, { 'last-event-id': '8' })).toBe(202);
  expect(await add('two', { query, variables: { after: 5 } }, { 'last-event-id': '70' })).toBe(202);
  expect(await add('three', { query }, { 'last-event-id': 'x' })).toBe(400);
  let text = '';
  const first = (id: string): string | undefined =>
    new RegExp(`\\{"id":"${id}","payload":.*?"seq":(\\d+)`).exec(text)?.[1];
  response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  while (first('one') === undefined || first('two') === undefined) await once(response, 'data');
  expect([first('one'), first('two')]).toEqual(['9', '71']);
  response.destroy();
});

test('a single connection that is not read is cut at the limit of bytes, and its sources end', async () => {
  await start({ socketStallMs: 1_000_000, socketBufferBytes: 1_000_000 });
  const { response, add } = await openSingle();
  response.pause();
  for (let n = 0; n < 50; n += 1) {
    const status = await add(String(n), { query: 'subscription { flood(bytes: 1000000) }' });
    // Once it is cut there is nothing left to add to.
    if (status === 404) break;
  }
  while (stage.openFloods > 0) await once(stage, 'flood ended');
  response.resume();
  await new Promise((resolve) => response.once('close', resolve));
  expect(response.complete).toBe(false);
});

test('a single connection that is read is sent all that its sources have at once', async () => {
  await start();
  const { response, add } = await openSingle();
  const heard = new Map<string, number>();
  let line = '';
  response.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (line + chunk).split('\n');
    line = lines.pop()!;
    for (const [, id] of lines.map((each) => /^data: \{"id":"(\d+)"/.exec(each) ?? [])) {
      if (id !== undefined) heard.set(id, (heard.get(id) ?? 0) + 1);
    }
  });
  for (let n = 0; n < 10; n += 1) {
    expect(await add(String(n), { query: 'subscription { flood(bytes: 131072) }' })).toBe(202);
  }
  const isEnough = (): boolean => heard.size === 10 && Math.min(...heard.values()) >= 20;
  while (!isEnough()) await once(response, 'data');
  expect(stage.openFloods).toBe(10);
  response.destroy();
});

test('a single connection whose key is revoked: each subscription is told why, in its own words', async () => {
  await start();
  const { response, add } = await openSingle();
  let text = '';
  response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  for (const id of ['one', 'two']) {
    const begun = once(stage, 'watching');
    expect(await add(id, { query: WATCH })).toBe(202);
    await begun;
  }
  stage.revoked = true;
  const ended = once(response, 'end');
  await server.keyChanged('k1');
  await ended;
  const told = [...text.matchAll(/^data: (.+)$/gm)].map(([, data]) => JSON.parse(data!) as unknown);
  const refusal = { errors: [{ extensions: { code: 'UNAUTHENTICATED' } }] };
  expect(told).toMatchObject([
    { id: 'one', payload: refusal },
    { id: 'one' },
    { id: 'two', payload: refusal },
    { id: 'two' },
  ]);
  expect(stage.openWatches).toBe(0);
});

test('a single connection by hand: every step out of order is refused', async () => {
  await start();
  const path = '/graphql/stream';
  const authorization = 'Bearer good';
  const { text: token, status } = await send(server, { method: 'PUT', path, headers: { authorization } });
  expect(status).toBe(201);
  const headers = { authorization, 'x-graphql-event-stream-token': token };
  const add = (operationId?: string, query = WATCH, extra: object = {}) =>
    send(server, {
      method: 'POST',
      path,
      headers: { 'content-type': 'application/json', ...headers, ...extra },
      body: JSON.stringify({ query, extensions: { operationId } }),
    });
  expect((await add('1')).status).toBe(409);
  const request = http.get({ host: '127.0.0.1', port: server.port, path, headers, agent: false });
  request.on('error', () => undefined);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  expect(response.statusCode).toBe(200);
  response.on('error', () => undefined).resume();
  const statuses = [
    (await send(server, { path, headers })).status,
    (await add()).status,
    (await add('1', 'subscription { nothing }')).status,
    (await add('1')).status,
    (await add('1')).status,
    (await add('2', WATCH, { 'x-graphql-event-stream-token': 'no' })).status,
    (await add('2', WATCH, { authorization: 'Bearer other' })).status,
    (await send(server, { method: 'DELETE', path: `${path}?operationId=1`, headers: { authorization } }))
      .status,
    (await send(server, { method: 'DELETE', path: `${path}?operationId=1`, headers })).status,
  ];
  expect(statuses).toEqual([409, 400, 400, 202, 409, 404, 404, 404, 200]);
  request.destroy();
});

test('a single connection is reserved, and its subscriptions ended, whatever type its no body is said to be of', async () => {
  await start();
  for (const path of ['/graphql', '/graphql/stream']) {
    const headers = { authorization: 'Bearer good', 'content-type': 'application/json' };
    const reserved = await send(server, { method: 'PUT', path, headers });
    expect(reserved.status).toBe(201);
    const ending = {
      method: 'DELETE',
      path: `${path}?operationId=1`,
      headers: { ...headers, 'x-graphql-event-stream-token': reserved.text },
    };
    expect((await send(server, ending)).status).toBe(200);
    const nonsense = { method: 'PUT', path, headers, body: '{' };
    expect((await send(server, nonsense)).status).toBe(400);
  }
});

test('streams may be reserved up to a number by each key, for itself; one that ends makes room', async () => {
  await start({ reservedStreamsPerKey: 2 });
  const reserve = (authorization: string) =>
    send(server, { method: 'PUT', path: '/graphql/stream', headers: { authorization } });
  const { response } = await openSingle();
  expect((await reserve('Bearer good')).status).toBe(201);
  expect((await reserve('Bearer good')).status).toBe(429);
  expect((await reserve('Bearer other')).status).toBe(201);
  response.destroy();
  const { streams } = server as unknown as { streams: { count: number } };
  await until(
    async () => streams.count,
    (count) => count === 0,
  );
  expect((await reserve('Bearer good')).status).toBe(201);
});
