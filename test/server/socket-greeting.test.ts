// How a WebSocket begins: who is let in, who is told why not, and what is answered before and after.
import { isDeepStrictEqual } from 'node:util';
import type { Socket } from 'node:net';
import { afterEach, expect, test, vi } from 'vitest';
import { AppError } from '../../src/errors.js';
import type { GraphqlServer } from '../../src/server/http.js';
import { until } from '../support/app.js';
import { RawClient, startTestServer, type Stage } from './support.js';

let server: GraphqlServer;
let stage: Stage;

afterEach(() => server.stop());

async function start(): Promise<void> {
  ({ server, stage } = await startTestServer());
}

test.each([
  ['FORBIDDEN', 'nobody', 4403],
  ['UNAVAILABLE', 'db-away', 1013],
  ['INTERNAL', 'explode', 4500],
])('connection_init that is answered %s closes the socket with its code', async (_code, token, code) => {
  await start();
  const client = await RawClient.open(server);
  client.say({ type: 'connection_init', payload: { authorization: token } });
  const closed = await client.closed;
  expect(closed.code).toBe(code);
  expect(closed.reason).not.toContain('hunter2');
});

test('a ping of the protocol is answered by a pong with its payload, before and after connection_init', async () => {
  await start();
  const client = await RawClient.open(server);
  for (const payload of [{ n: 1 }, { n: 2 }]) {
    client.say({ type: 'ping', payload });
    await client.hear((message) => message.type === 'pong' && isDeepStrictEqual(message.payload, payload));
    client.say({ type: 'pong' });
    if (payload.n === 1) client.say({ type: 'connection_init' });
  }
  client.say({ type: 'ping' });
  expect(await client.hear(({ type, payload }) => type === 'pong' && payload === undefined)).toBeTruthy();
  expect(client.socket.readyState).toBe(client.socket.OPEN);
});

test('whoever has not been let in says little at once: a large message closes the socket, and is not answered', async () => {
  await start();
  const stranger = await RawClient.open(server);
  const ping = { type: 'ping', payload: { x: 'x'.repeat(10_000) } };
  for (let n = 0; n < 3; n += 1) stranger.say(ping);
  expect((await stranger.closed).code).toBe(1009);
  expect(stranger.heard).toEqual([]);
  const client = await RawClient.connect(server);
  client.say(ping);
  await client.hear(({ type }) => type === 'pong');
});

test('whoever has not been let in and does not read is dropped, and kept for no longer than a moment', async () => {
  ({ server, stage } = await startTestServer({ limits: { socketBufferBytes: 100_000, pingMs: 1_000_000 } }));
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const stranger = await RawClient.open(server);
  const { sockets } = server as unknown as { sockets: { use: { sockets: number } } };
  // The connection itself takes nothing: the pongs stay with the server.
  (stranger.socket as unknown as { _socket: Socket })._socket.pause();
  const isDropped = (): boolean => stage.logged.some(({ msg }) => String(msg).includes('does not read'));
  while (!isDropped()) {
    for (let n = 0; n < 100; n += 1) stranger.say({ type: 'ping', payload: { x: 'x'.repeat(8_000) } });
    await new Promise(setImmediate);
  }
  expect(sockets.use.sockets).toBe(1);
  vi.advanceTimersByTime(2_000);
  vi.useRealTimers();
  await until(
    async () => sockets.use.sockets,
    (count) => count === 0,
  );
});

test('a key that is revoked while its connection is let in is noticed', async () => {
  let asked = 0;
  ({ server } = await startTestServer({
    authenticate: async () => {
      asked += 1;
      if (asked > 1) throw new AppError('UNAUTHENTICATED', 'revoked');
      const viewer = { tenantId: 'default', role: 'ADMIN', actor: 'late', keyId: 'k1' } as const;
      await server.keyChanged('k1');
      return viewer;
    },
  }));
  const client = await RawClient.open(server);
  client.say({ type: 'connection_init', payload: { authorization: 'any' } });
  expect(await client.closed).toEqual({ code: 4401, reason: 'revoked' });
});
