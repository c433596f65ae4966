// Clients of a WebSocket that read slowly, in bursts, or not at all: who stays, who is dropped, and with what code.
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, test, vi } from 'vitest';
import type { GraphqlServer } from '../../src/server/http.js';
import type { Limits } from '../../src/server/limits.js';
import { until } from '../support/app.js';
import { RawClient, startTestServer, type Message, type Stage } from './support.js';

let server: GraphqlServer;
let stage: Stage;

afterEach(() => {
  vi.useRealTimers();
  return server.stop();
});

async function start(limits: Partial<Limits> = {}): Promise<void> {
  ({ server, stage } = await startTestServer({ limits }));
}

const connect = (): Promise<RawClient> => RawClient.connect(server, { authorization: 'good' });
const streamOf = ({ socket }: RawClient): Socket => (socket as unknown as { _socket: Socket })._socket;
const isNext = (message: Message): boolean => message.type === 'next';
const isDropped = (): boolean => stage.logged.some(({ msg }) => String(msg).includes('does not read'));

async function watch(client: RawClient, subscriptions: number): Promise<void> {
  for (let n = 0; n < subscriptions; n += 1) {
    const watching = once(stage, 'watching');
    client.subscribe(String(n), 'subscription { watch { n text } }');
    await watching;
  }
}

const tick = (n: number, bytes = 0): boolean => stage.emit('tick', { watch: { n, text: 'x'.repeat(bytes) } });

test.each([
  [40, 30_000],
  [100, 12_000],
  [3, 1_100_000],
])('%i subscriptions are sent %i bytes each at once: one that reads is sent all', async (count, bytes) => {
  await start();
  const client = await connect();
  await watch(client, count);
  tick(1, bytes);
  tick(2, bytes);
  for (let id = 0; id < count; id += 1) {
    for (const n of [1, 2]) {
      const isIt = ({ payload }: Message): boolean =>
        JSON.stringify(payload).startsWith(`{"data":{"watch":{"n":${n},`);
      await client.hear((message) => message.id === String(id) && isNext(message) && isIt(message));
    }
  }
  expect(client.socket.readyState).toBe(client.socket.OPEN);
  expect(client.heard.filter(isNext)).toHaveLength(2 * count);
});

test('many sources that always have more leave one that reads its socket', async () => {
  await start();
  const client = await connect();
  for (let n = 0; n < 20; n += 1) client.subscribe(String(n), 'subscription { flood(bytes: 131072) }');
  for (let id = 0; id < 20; id += 1) {
    await client.hear((message) => message.id === String(id) && isNext(message));
  }
  client.heard.length = 0;
  for (let id = 0; id < 20; id += 1) {
    await client.hear((message) => message.id === String(id) && isNext(message));
  }
  expect(client.socket.readyState).toBe(client.socket.OPEN);
});

test('a client that reads one long message, slowly but steadily, is waited for and needs no pong before', async () => {
  await start({ socketStallMs: 1_000, pingMs: 1_000 });
  const client = await connect();
  const stream = streamOf(client);
  await watch(client, 1);
  const bytes = 32 * 2 ** 20;
  tick(1, bytes);
  // So that something waits behind it.
  tick(2);
  for (let wanted = 2 ** 20; wanted < bytes; wanted += 2 ** 20) {
    while (stream.bytesRead < wanted) await once(stream, 'data');
    stream.pause();
    await delay(100);
    stream.resume();
  }
  await client.hear(({ payload }) => JSON.stringify(payload)?.includes('"n":2') ?? false);
  expect(client.socket.readyState).toBe(client.socket.OPEN);
});

test('a client that does not read is cut with 4413, its sources end, and others are served', async () => {
  await start({ socketStallMs: 200 });
  const neighbour = await connect();
  await watch(neighbour, 1);
  const client = await connect();
  client.socket.pause();
  const ended = once(stage, 'flood ended');
  client.subscribe('f', 'subscription { flood(bytes: 100000) }');
  await ended;
  tick(1);
  await neighbour.hear(isNext);
  client.socket.resume();
  expect((await client.closed).code).toBe(4413);
});

test('many subscriptions that are not read are cut at the limit of bytes', async () => {
  await start({ socketStallMs: 1_000_000, socketBufferBytes: 1_000_000 });
  const client = await connect();
  client.socket.pause();
  const ended = once(stage, 'flood ended');
  for (let n = 0; n < 50; n += 1) client.subscribe(String(n), 'subscription { flood(bytes: 1000000) }');
  await ended;
  client.socket.resume();
  expect((await client.closed).code).toBe(4413);
});

test('a slow client that does read is waited for', async () => {
  await start({ socketStallMs: 1_000 });
  const client = await connect();
  client.subscribe('f', 'subscription { flood(bytes: 500000) }');
  for (let round = 0; round < 10; round += 1) {
    client.socket.pause();
    await delay(20);
    client.socket.resume();
    await once(client.socket, 'message');
  }
  expect(client.socket.readyState).toBe(client.socket.OPEN);
});

test('a client that leaves a ping unanswered is dropped; one that answers stays', async () => {
  await start({ pingMs: 300 });
  const deaf = await RawClient.connect(server, {}, { autoPong: false });
  const good = await RawClient.connect(server);
  expect(await deaf.closed).toEqual({ code: 4413, reason: 'Dropped: a ping was not answered' });
  expect(good.socket.readyState).toBe(good.socket.OPEN);
});

test('a client that does not read the little that it is sent learns of its end as soon as it reads', async () => {
  await start({ pingMs: 300 });
  const client = await connect();
  await watch(client, 1);
  client.socket.pause();
  const ended = once(stage, 'watch ended');
  tick(1);
  await ended;
  expect(isDropped()).toBe(true);
  client.socket.resume();
  expect((await client.closed).code).toBe(4413);
  expect(client.heard.filter(isNext)).toHaveLength(1);
});

test('a client that is answered and answered, and takes none of it, is dropped without a wait', async () => {
  await start({ socketStallMs: 1_000_000, socketBufferBytes: 1_000_000 });
  const client = await connect();
  // Nobody looks whether it takes anything.
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  streamOf(client).pause();
  const ping = { type: 'ping', payload: { x: 'x'.repeat(100_000) } };
  await until(
    async () => {
      for (let n = 0; n < 10; n += 1) client.say(ping);
      return isDropped();
    },
    (dropped) => dropped,
  );
  streamOf(client).resume();
  expect((await client.closed).code).toBe(4413);
});
