// Subscriptions over Server-Sent Events: by hand, byte for byte, and by the protocol's own client.
import { EventEmitter, once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { createClient } from 'graphql-sse';
import { afterEach, expect, test } from 'vitest';
import { AppError } from '../../src/errors.js';
import type { GraphqlServer } from '../../src/server/http.js';
import type { Limits } from '../../src/server/limits.js';
import { post, send, startTestServer, type Stage } from './support.js';

let server: GraphqlServer;
let stage: Stage;

afterEach(() => server.stop());

async function start(limits: Partial<Limits> = {}): Promise<void> {
  ({ server, stage } = await startTestServer({ limits }));
}

const WATCH = 'subscription { watch { n visit } }';
const STREAM = { accept: 'text/event-stream', authorization: 'Bearer good' };
const tick = (n: number): boolean => stage.emit('tick', { watch: { n } });

/** A response that is still coming. */
class Stream {
  text = '';

  private constructor(readonly response: IncomingMessage) {
    response.setEncoding('utf8').on('data', (chunk: string) => (this.text += chunk));
    response.on('error', () => undefined);
  }

  static async open(
    query: string,
    {
      headers = STREAM,
      path = '/graphql',
      ...rest
    }: { headers?: object; path?: string; variables?: object } = {},
  ): Promise<Stream> {
    const request = http.request({
      host: '127.0.0.1',
      port: server.port,
      path,
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      agent: false,
    });
    request.on('error', () => undefined);
    request.end(JSON.stringify({ query, ...rest }));
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    return new Stream(response);
  }

  async hears(text: string): Promise<void> {
    while (!this.text.includes(text)) await once(this.response, 'data');
  }

  async ended(): Promise<string> {
    // Not `once`: a stream that was cut ends with an error first.
    if (!this.response.closed) await new Promise((resolve) => this.response.once('close', resolve));
    return this.text;
  }
}

async function watching(open: () => Promise<Stream>): Promise<Stream> {
  const begun = once(stage, 'watching');
  const stream = await open();
  await begun;
  return stream;
}

test.each(['/graphql', '/graphql/stream'])(
  'a subscription at %s: its events, then that it is over',
  async (path) => {
    await start();
    const stream = await Stream.open('subscription { ticks(count: 2) { n } }', { path });
    expect(stream.response.statusCode).toBe(200);
    expect(stream.response.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      'x-content-type-options': 'nosniff',
    });
    expect(await stream.ended()).toBe(
      ':\n\n' +
        'event: next\ndata: {"data":{"ticks":{"n":1}}}\n\n' +
        'event: next\ndata: {"data":{"ticks":{"n":2}}}\n\n' +
        'event: complete\ndata: \n\n',
    );
  },
);

test('GET works like POST, with the parameters in the query string', async () => {
  await start();
  const parameters = new URLSearchParams({
    query: 'subscription ($count: Int!) { ticks(count: $count) { n } }',
    variables: '{"count":1}',
  });
  const answer = await send(server, { path: `/graphql?${parameters}`, headers: STREAM });
  expect(answer.text).toContain('data: {"data":{"ticks":{"n":1}}}');
  const broken = await send(server, { path: '/graphql?query=x&variables=[', headers: STREAM });
  expect(broken.status).toBe(400);
  expect(broken.json.errors![0]).toMatchObject({ message: 'variables: is not JSON.' });
});

test('runEvents tells the id of each event, and goes on after the last one', async () => {
  await start();
  const query = 'subscription ($after: Int) { runEvents(after: $after) { seq } }';
  const first = await Stream.open(query, { variables: { after: 5 } });
  await first.hears('"seq":8');
  expect(first.text).toContain('id: 6\nevent: next\ndata: {"data":{"runEvents":{"seq":6}}}');
  const resumed = await Stream.open(query, {
    variables: { after: 5 },
    headers: { ...STREAM, 'last-event-id': '8' },
  });
  await resumed.hears('"seq":11');
  expect(resumed.text).toContain(':\n\nid: 9\n');
  const wrong = await Stream.open(query, { headers: { ...STREAM, 'last-event-id': 'x' } });
  expect(await wrong.ended()).toContain('BAD_USER_INPUT');
});

test('errors stand in the stream: of the document, of its start, and between events', async () => {
  await start();
  for (const [query, code] of [
    ['subscription { nothing }', 'BAD_USER_INPUT'],
    ['subscription {', 'BAD_USER_INPUT'],
    ['{ hello }', 'BAD_USER_INPUT'],
    ['subscription { neverStarts }', 'NOT_FOUND'],
    ['subscription { breaks }', 'INTERNAL'],
  ] as const) {
    const stream = await Stream.open(query);
    const text = await stream.ended();
    expect(text).toContain(`"code":"${code}"`);
    expect(text.endsWith('event: complete\ndata: \n\n')).toBe(true);
    expect(text).not.toContain('hunter2');
  }
});

test('without a key there is no stream, and without a query none either', async () => {
  await start();
  const stranger = await Stream.open(WATCH, { headers: { ...STREAM, authorization: 'Bearer wrong' } });
  expect(stranger.response.statusCode).toBe(401);
  const empty = await Stream.open('');
  expect(empty.response.statusCode).toBe(400);
});

test('clients that accept anything are streamed subscriptions and sent answers to queries', async () => {
  await start();
  const accept = 'application/graphql-response+json, application/json, text/event-stream, multipart/mixed';
  const answer = await post(server, '{ hello }', {}, { accept });
  expect(answer.json.data).toEqual({ hello: 'world' });
  const stream = await Stream.open('subscription { ticks(count: 1) { n } }', {
    headers: { ...STREAM, accept },
  });
  expect(await stream.ended()).toContain('"n":1');
});

test('an event is executed once for clients of streams and sockets together', async () => {
  await start();
  const streams = [await watching(() => Stream.open(WATCH)), await watching(() => Stream.open(WATCH))];
  tick(3);
  for (const stream of streams) await stream.hears('"n":3');
  expect(stage.executedTicks).toBe(1);
});

test('a client that goes away ends its source', async () => {
  await start();
  const stream = await watching(() => Stream.open(WATCH));
  const ended = once(stage, 'watch ended');
  stream.response.destroy();
  await ended;
  expect(stage.openWatches).toBe(0);
});

test('a client that has gone before it is known who it is leaves nothing behind', async () => {
  let letIn = (): void => {};
  const gate = new Promise<void>((resolve) => (letIn = resolve));
  const asked = new EventEmitter();
  ({ server, stage } = await startTestServer({
    authenticate: async () => {
      asked.emit('asked');
      await gate;
      return { tenantId: 'default', role: 'ADMIN', actor: 'late', keyId: 'k1' };
    },
  }));
  const { http: fastify } = server as unknown as { http: { server: http.Server } };
  const query = new URLSearchParams({ query: WATCH }).toString();
  const sockets: Socket[] = [];
  fastify.server.on('connection', (socket: Socket) => sockets.push(socket));
  const coming = once(asked, 'asked');
  const request = http.get({
    host: '127.0.0.1',
    port: server.port,
    path: `/graphql?${query}`,
    headers: STREAM,
    agent: false,
  });
  request.on('error', () => undefined);
  await coming;
  const gone = once(sockets[0]!, 'close');
  request.destroy();
  await gone;
  const begun = once(stage, 'watching');
  letIn();
  await begun;
  while (stage.openWatches > 0) await once(stage, 'watch ended');
  const { streams } = server as unknown as { streams: { count: number } };
  expect(streams.count).toBe(0);
});

test('a client that does not read is cut, and its source ends', async () => {
  await start({ socketStallMs: 200 });
  const stream = await Stream.open('subscription { flood(bytes: 100000) }');
  stream.response.pause();
  await once(stage, 'flood ended');
  stream.response.resume();
  await stream.ended();
  expect(stream.response.complete).toBe(false);
});

test('streams are kept alive by comments', async () => {
  await start({ pingMs: 20 });
  const stream = await watching(() => Stream.open(WATCH));
  await stream.hears(':\n\n:\n\n:\n\n');
});

test('a key that is revoked ends its streams, with the reason', async () => {
  await start();
  const stream = await watching(() => Stream.open(WATCH));
  stage.revoked = true;
  await server.keyChanged('k1');
  expect(await stream.ended()).toContain('UNAUTHENTICATED');
  expect(stage.openWatches).toBe(0);
});

test('a key that is revoked between its check and its stream ends the stream', async () => {
  let asked = 0;
  ({ server, stage } = await startTestServer({
    authenticate: async () => {
      asked += 1;
      if (asked > 1) throw new AppError('UNAUTHENTICATED', 'revoked');
      const viewer = { tenantId: 'default', role: 'ADMIN', actor: 'late', keyId: 'k1' } as const;
      await server.keyChanged('k1');
      return viewer;
    },
  }));
  expect(await (await Stream.open(WATCH)).ended()).toContain('UNAUTHENTICATED');
});

test('streams count for their key', async () => {
  await start({ subscriptionsPerKey: 1 });
  await watching(() => Stream.open(WATCH));
  expect(await (await Stream.open(WATCH)).ended()).toContain('RATE_LIMITED');
});

test('the server stops: streams end without a word, so that clients resume elsewhere', async () => {
  await start();
  const stream = await watching(() => Stream.open(WATCH));
  await server.stop();
  expect(await stream.ended()).toBe(':\n\n');
});

test.each([
  [false, ''],
  [false, '/stream'],
  [true, ''],
  [true, '/stream'],
])('graphql-sse’s own client, single connection: %s, at /graphql%s', async (singleConnection, path) => {
  await start();
  const client = createClient({
    singleConnection,
    url: `${server.url}${path}`,
    headers: { authorization: 'Bearer good' },
  });
  const results: unknown[] = [];
  for await (const result of client.iterate({ query: 'subscription { ticks(count: 3) { n } }' }))
    results.push(result);
  expect(results).toEqual([1, 2, 3].map((n) => ({ data: { ticks: { n } } })));
  const begun = once(stage, 'watching');
  const watch = client.iterate({ query: WATCH });
  const next = watch.next();
  await begun;
  tick(9);
  expect((await next).value).toMatchObject({ data: { watch: { n: 9 } } });
  const ended = once(stage, 'watch ended');
  await watch.return!();
  await ended;
  client.dispose();
});
