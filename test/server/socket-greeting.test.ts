// How a WebSocket begins: who is let in, who is told why not, and what is answered before and after.
import { isDeepStrictEqual } from 'node:util';
import { afterEach, expect, test } from 'vitest';
import { AppError } from '../../src/errors.js';
import type { GraphqlServer } from '../../src/server/http.js';
import { RawClient, startTestServer } from './support.js';

let server: GraphqlServer;

afterEach(() => server.stop());

async function start(): Promise<void> {
  ({ server } = await startTestServer());
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
