// Subscriptions over a WebSocket: what is shared between clients, what is refused, and how a socket ends.
import { once } from 'node:events';
import { afterEach, expect, test } from 'vitest';
import type { GraphqlServer } from '../../src/server/http.js';
import type { Limits } from '../../src/server/limits.js';
import { RawClient, startTestServer, type Message, type Stage } from './support.js';

let server: GraphqlServer;
let stage: Stage;

afterEach(() => server.stop());

async function start(limits: Partial<Limits> = {}): Promise<void> {
  ({ server, stage } = await startTestServer({ limits }));
}

const WATCH = 'subscription { watch { n visit } }';

/** Tells every watcher of one event, as a feed would: by the same object. */
const tick = (n: number): boolean => stage.emit('tick', { watch: { n } });

async function watchers(count: number, query = WATCH, token = 'good'): Promise<RawClient[]> {
  const clients = [];
  for (let index = 0; index < count; index += 1) {
    const client = await RawClient.connect(server, { authorization: token });
    const watching = once(stage, 'watching');
    client.subscribe(`id-${index}`, query);
    await watching;
    clients.push(client);
  }
  return clients;
}

const isNext = (message: Message): boolean => message.type === 'next';

function codeOf(message: Message | undefined): unknown {
  const payload = message?.payload as { extensions: { code: string } }[] | { errors: never[] };
  const [error] = Array.isArray(payload) ? payload : (payload.errors as { extensions: { code: string } }[]);
  return error?.extensions.code;
}

test('an event is executed once for all clients that see it alike, and once for each other view', async () => {
  await start();
  const alike = [...(await watchers(3)), ...(await watchers(1, `subscription Named { watch { n visit } }`))];
  const others = await watchers(2, 'subscription { watch { visit n actor } }');
  tick(7);
  const heard = await Promise.all([...alike, ...others].map((client) => client.hear(isNext)));
  expect(heard.map(({ id }) => id)).toEqual(['id-0', 'id-1', 'id-2', 'id-0', 'id-0', 'id-1']);
  // A document with a name of its own is another one; its result is the same.
  expect(stage.executedTicks).toBe(3);
  expect(new Set(heard.slice(0, 3).map(({ payload }) => JSON.stringify(payload))).size).toBe(1);
  expect(heard[4]!.payload).toEqual({
    data: { watch: { visit: expect.any(Number), n: 7, actor: 'key good' } },
  });
});

test('another role sees by itself', async () => {
  await start();
  const clients = [...(await watchers(2)), ...(await watchers(2, WATCH, 'viewer'))];
  tick(1);
  await Promise.all(clients.map((client) => client.hear(isNext)));
  expect(stage.executedTicks).toBe(2);
});

test('only variables that change what is shown keep clients apart', async () => {
  await start();
  const query = 'subscription ($from: Int, $n: Boolean!) { watch(from: $from) { n @include(if: $n) visit } }';
  const clients = await Promise.all(
    [
      { from: 1, n: true },
      { from: 2, n: true },
      { from: 2, n: false },
    ].map(async (variables) => {
      const client = await RawClient.connect(server, { authorization: 'good' });
      const watching = once(stage, 'watching');
      client.subscribe('a', query, variables);
      await watching;
      return client;
    }),
  );
  tick(5);
  const heard = await Promise.all(clients.map((client) => client.hear(isNext)));
  expect(stage.executedTicks).toBe(2);
  expect(heard.map(({ payload }) => (payload as { data: { watch: { n?: number } } }).data.watch.n)).toEqual([
    5,
    5,
    undefined,
  ]);
});

test('queries and mutations are refused, subscriptions go on beside them', async () => {
  await start();
  const [client] = await watchers(1);
  client!.subscribe('q', '{ hello }');
  client!.subscribe('m', 'mutation { add(numbers: [1]) }');
  for (const id of ['q', 'm']) {
    const [answer] = await client!.ending(id);
    expect(answer).toMatchObject({ type: 'error' });
    expect(codeOf(answer)).toBe('BAD_USER_INPUT');
  }
  tick(1);
  await client!.hear(isNext);
});

test('an error before the first event and one between events are shown with their code', async () => {
  await start();
  const client = await RawClient.connect(server);
  client.subscribe('never', 'subscription { neverStarts }');
  client.subscribe('breaks', 'subscription { breaks }');
  expect((await client.ending('never')).map(({ type }) => type)).toEqual(['next', 'complete']);
  expect(codeOf(client.heard.find(({ id }) => id === 'never'))).toBe('NOT_FOUND');
  const broken = await client.ending('breaks');
  expect(broken.map(({ type }) => type)).toEqual(['next', 'error']);
  expect(codeOf(broken[1])).toBe('INTERNAL');
  expect(JSON.stringify(broken)).not.toContain('hunter2');
});

test('completing ends the source at once', async () => {
  await start();
  const [client] = await watchers(1);
  const ended = once(stage, 'watch ended');
  client!.say({ id: 'id-0', type: 'complete' });
  await ended;
  expect(stage.openWatches).toBe(0);
});

test.each([
  ['at once', async () => {}],
  ['when it is under way', async () => void (await once(stage, 'watching'))],
])(
  'an id that is used again in the breath that completes it, %s, is one subscription',
  async (_when, wait) => {
    await start();
    const client = await RawClient.connect(server, { authorization: 'good' });
    const underWay = wait();
    client.subscribe('1', WATCH);
    await underWay;
    for (let round = 0; round < 3; round += 1) {
      client.say({ id: '1', type: 'complete' });
      client.subscribe('1', 'subscription { watch(from: 1) { n visit actor } }');
    }
    // By its end all that was said before it has begun.
    client.subscribe('2', 'subscription { ticks(count: 1) { n } }');
    await client.ending('2');
    while (stage.openWatches !== 1) await once(stage, 'watch ended');
    tick(1);
    tick(2);
    await client.hear(({ id, payload }) => id === '1' && JSON.stringify(payload).includes('"n":2'));
    expect(client.heard.filter(({ id }) => id === '1').map(({ type }) => type)).toEqual(['next', 'next']);
    client.say({ id: '1', type: 'complete' });
    while (stage.openWatches > 0) await once(stage, 'watch ended');
  },
);

test('no more subscriptions than a socket and a key may have; a place that was left can be taken', async () => {
  await start({ subscriptionsPerSocket: 2, subscriptionsPerKey: 3 });
  const [first, second] = [
    await RawClient.connect(server, { authorization: 'good' }),
    await RawClient.connect(server, { authorization: 'good' }),
  ];
  const open = async (client: RawClient, id: string): Promise<void> => {
    const watching = once(stage, 'watching');
    client.subscribe(id, WATCH);
    await watching;
  };
  await open(first, 'a');
  await open(first, 'b');
  first.subscribe('c', WATCH);
  expect(codeOf((await first.ending('c'))[0])).toBe('RATE_LIMITED');
  await open(second, 'a');
  second.subscribe('b', WATCH);
  expect(codeOf((await second.ending('b'))[0])).toBe('RATE_LIMITED');
  const ended = once(stage, 'watch ended');
  first.say({ id: 'a', type: 'complete' });
  await ended;
  await open(second, 'c');
  const left = once(stage, 'watch ended');
  first.socket.close();
  await left;
  await open(await RawClient.connect(server, { authorization: 'good' }), 'a');
});

test('10,000 subscribe messages on one socket: it is cut off, and nobody else notices', async () => {
  await start({ subscriptionsPerSocket: 50 });
  const [neighbour] = await watchers(1);
  const client = await RawClient.connect(server, { authorization: 'good' });
  for (let n = 0; n < 10_000; n += 1) client.subscribe(String(n), WATCH);
  expect(await client.closed).toEqual({ code: 1008, reason: 'No more than 50 subscriptions per socket' });
  while (stage.openWatches > 1) await once(stage, 'watch ended');
  tick(1);
  await neighbour!.hear(isNext);
});

test.each([
  ['garbage', 'not json', 4400],
  ['a message of no known type', '{"type":"shout"}', 4400],
  ['a subscription before connection_init', '{"type":"subscribe","id":"1","payload":{"query":"x"}}', 4401],
  ['an id that is taken', null, 4409],
  ['a second connection_init', '{"type":"connection_init"}', 4429],
])('%s closes its socket and no other', async (_name, frame, code) => {
  await start();
  const [neighbour] = await watchers(1);
  const isInit = frame?.includes('connection_init') === true;
  const client = frame === null || isInit ? (await watchers(1))[0]! : await RawClient.open(server);
  if (frame === null) client.subscribe('id-0', WATCH);
  else client.socket.send(frame);
  expect((await client.closed).code).toBe(code);
  tick(1);
  await neighbour!.hear(isNext);
});

test('a frame that is too big, a wrong subprotocol and silence are closed with their codes', async () => {
  await start({ connectionInitMs: 20, socketMessageBytes: 1_000 });
  const big = await RawClient.open(server);
  big.socket.send('x'.repeat(1_001));
  expect((await big.closed).code).toBe(1009);
  const wrong = await RawClient.open(server, {}, ['graphql-ws']);
  expect((await wrong.closed).code).toBe(4406);
  const silent = await RawClient.open(server);
  expect((await silent.closed).code).toBe(4408);
});

test('a key that is revoked loses its sockets with 4401, others keep theirs', async () => {
  await start({ reauthenticateMs: 1_000_000 });
  const [revoked] = await watchers(1);
  const [other] = await watchers(1, WATCH, 'other');
  stage.revoked = true;
  await server.keyChanged('k1');
  expect(await revoked!.closed).toEqual({ code: 4401, reason: 'An API key is needed.' });
  tick(1);
  await other!.hear(isNext);
});

test('without word of a revocation, keys are looked at now and then', async () => {
  await start({ reauthenticateMs: 20 });
  const [revoked] = await watchers(1);
  stage.revoked = true;
  expect((await revoked!.closed).code).toBe(4401);
});

test('the server stops: every client is told 1001', async () => {
  await start();
  const clients = await watchers(3);
  await server.stop();
  for (const client of clients) expect((await client.closed).code).toBe(1001);
  expect(stage.openWatches).toBe(0);
});
