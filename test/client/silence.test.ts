// Connections that say nothing: the client gives them up, whenever it is that they fall silent.
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { makeClient, ScriptedServer } from './support.js';

let server: ScriptedServer;

beforeEach(async () => {
  server = await ScriptedServer.start();
});
afterEach(() => server.stop());

test('a connection that has fallen silent is given up', async () => {
  const wary = makeClient(server.url, { heartbeatMs: 20 });
  // This server answers no ping.
  server.onSubscribe = (socket, asked) => ScriptedServer.sendLines(socket, asked, 1);
  const seqs: number[] = [];
  for await (const { seq } of wary.runEvents('run')) {
    seqs.push(seq);
    if (seq === 4) break;
  }
  expect(seqs).toEqual([1, 2, 3, 4]);
  expect(server.asked).toEqual([0, 1, 2, 3]);
  wary.close();
});

test('a connection is given up that goes silent behind a message', async () => {
  const wary = makeClient(server.url, { heartbeatMs: 20 });
  server.onSubscribe = (socket, asked) => {
    if (asked.after > 0) return ScriptedServer.sendLines(socket, asked, 1);
    // Instead of a pong, what had been on its way before the connection died.
    server.onPing = () => {
      server.onPing = () => {};
      ScriptedServer.sendLines(socket, asked, 1);
    };
  };
  const lines = wary.runEvents('run');
  expect((await lines.next()).value).toMatchObject({ seq: 1 });
  expect((await lines.next()).value).toMatchObject({ seq: 2 });
  wary.close();
});

test('a server that accepts a connection and never says a word is given up', async () => {
  const mute = createServer().listen(0, '127.0.0.1');
  await once(mute, 'listening');
  const sockets: Socket[] = [];
  mute.on('connection', (socket) => sockets.push(socket));
  const { port } = mute.address() as AddressInfo;
  const wary = makeClient(`http://127.0.0.1:${port}/graphql`, { greetingMs: 20, maxRetries: 1 });
  await expect(wary.runEvents('run').next()).rejects.toMatchObject({ code: 'UNREACHABLE' });
  expect(sockets.length).toBeLessThanOrEqual(2);
  const patient = makeClient(`http://127.0.0.1:${port}/graphql`);
  const coming = once(mute, 'connection') as Promise<[Socket]>;
  const pending = patient.runEvents('run').next();
  const [socket] = await coming;
  const gone = once(socket, 'close');
  patient.close();
  socket.resume();
  expect(await pending).toEqual({ done: true, value: undefined });
  await gone;
  for (const each of sockets) each.destroy();
  mute.close();
});
