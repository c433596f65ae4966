// How the client takes what a connection ends with: come back from where it was, or give up and say why.
import type { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { RunledgerError, type RunledgerClient } from '../../src/client/index.js';
import { makeClient, ScriptedServer } from './support.js';

let server: ScriptedServer;
let client: RunledgerClient;

beforeEach(async () => {
  server = await ScriptedServer.start();
  client = makeClient(server.url);
});
afterEach(async () => {
  client.close();
  await server.stop();
});

async function readSeqs(count: number): Promise<number[]> {
  const seqs: number[] = [];
  for await (const { seq } of client.runEvents('run')) {
    seqs.push(seq);
    if (seqs.length === count) break;
  }
  return seqs;
}

test.each([
  ['the server goes away', 1001],
  ['no code', 1005],
  ['the network fails', 1006],
  ['too many subscriptions', 1008],
  ['the server restarts', 1012],
  ['not now', 1013],
  ['it did not read fast enough', 4413],
  ['a fault of the server', 4500],
])('%s (%i): it goes on after the last seq', async (_why, code) => {
  server.onSubscribe = (socket, asked) => {
    ScriptedServer.sendLines(socket, asked, 3);
    if (code === 1006) socket.terminate();
    else if (code === 1005) socket.close();
    else socket.close(code);
  };
  const seqs = await readSeqs(9);
  expect(seqs).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(server.asked.slice(0, 3)).toEqual([0, 3, 6]);
});

test('closed as if all were well (1000): an interruption like any other', async () => {
  const retries: number[] = [];
  const told = makeClient(server.url, { onRetry: (_error, { attempt }) => retries.push(attempt) });
  server.onSubscribe = (socket, asked) => {
    ScriptedServer.sendLines(socket, asked, 3);
    socket.close(1000);
  };
  const seqs: number[] = [];
  for await (const { seq } of told.runEvents('run')) {
    seqs.push(seq);
    if (seq === 7) break;
  }
  expect(seqs).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(server.asked).toEqual([0, 3, 6]);
  expect(retries).toEqual([1, 1]);
  told.close();
});

test.each([1000, 1001])('a gap (%i) is told when the server has heard of the board again', async (code) => {
  let rounds = 0;
  server.onSubscribe = (socket) => {
    rounds += 1;
    // Once it is cut before it could answer.
    if (rounds < 3) socket.close(code);
  };
  server.onPing = (socket, payload) => {
    if (payload) socket.send(JSON.stringify({ type: 'pong', payload }));
  };
  const heardBefore = await new Promise<string[]>((resolve) => {
    const board = client.runChanged({ onGap: () => resolve([...server.heard]) });
    void board.next();
  });
  const once = ['connection_init', 'subscribe'];
  expect(heardBefore.filter((type) => type !== 'ping')).toEqual([...once, ...once, ...once]);
  expect(heardBefore.at(-1)).toBe('ping');
});

test('a state that is shown again after an interruption, just as it was, is no news', async () => {
  const shown = [
    { id: 'a', lastSeq: 1, ruleStatus: 'QUEUED' },
    { id: 'a', lastSeq: 1, ruleStatus: 'QUEUED' },
    { id: 'a', lastSeq: 1, ruleStatus: 'APPLYING' },
    { id: 'a', lastSeq: 2, ruleStatus: 'APPLYING' },
  ];
  server.onSubscribe = (socket, { id }) => {
    socket.send(JSON.stringify({ id, type: 'next', payload: { data: { runChanged: shown.shift() } } }));
    if (shown.length > 0) socket.close(1001);
  };
  const states: unknown[] = [];
  for await (const { lastSeq, status } of client.runChanged()) {
    states.push([lastSeq, status]);
    if (lastSeq === 2) break;
  }
  expect(states).toEqual([
    [1, 'QUEUED'],
    [1, 'APPLYING'],
    [2, 'APPLYING'],
  ]);
});

test('a server that says where to go on, or that all is over, is asked again', async () => {
  server.onSubscribe = (socket, asked) => {
    ScriptedServer.sendLines(socket, asked, 2);
    const { id, after } = asked;
    const error = {
      message: `subscribe again with after: ${after + 2}`,
      extensions: { code: 'UNAVAILABLE', details: { after: after + 2 } },
    };
    socket.send(
      JSON.stringify(after < 4 ? { id, type: 'error', payload: [error] } : { id, type: 'complete' }),
    );
  };
  expect(await readSeqs(8)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
});

test.each([
  [1009, 'PROTOCOL'],
  [4400, 'PROTOCOL'],
  [4401, 'UNAUTHENTICATED'],
  [4403, 'FORBIDDEN'],
  [4406, 'PROTOCOL'],
  [4429, 'PROTOCOL'],
])('closed with %i it gives up as %s, after what had arrived', async (closeCode, code) => {
  server.onSubscribe = (socket, asked) => {
    ScriptedServer.sendLines(socket, asked, 2);
    socket.close(closeCode, 'because');
  };
  const lines = client.runEvents('run');
  expect((await lines.next()).value).toMatchObject({ seq: 1 });
  expect((await lines.next()).value).toMatchObject({ seq: 2 });
  const fault = await lines.next().catch((error: unknown) => error);
  expect(fault).toBeInstanceOf(RunledgerError);
  expect(fault).toMatchObject({ code, closeCode, message: 'because' });
  expect(await lines.next()).toEqual({ done: true, value: undefined });
  expect(server.asked).toEqual([0]);
});

test('a subscription that no server would take is never sent, and the others on the socket go on', async () => {
  server.onSubscribe = (socket, asked) => ScriptedServer.sendLines(socket, asked, 1);
  const lines = client.runEvents('run');
  expect((await lines.next()).value).toMatchObject({ seq: 1 });
  const tooLarge = client.runEvents('run', { select: 'é'.repeat(2 ** 19) });
  await expect(tooLarge.next()).rejects.toMatchObject({ code: 'PROTOCOL', closeCode: 1009 });
  expect(server.asked).toEqual([0]);
  expect(server.openSockets).toBe(1);
});

test('a subscription that ends in the breath that says why leaves the socket to the others', async () => {
  const codes: string[] = [];
  const told = makeClient(server.url, { onRetry: ({ code }) => codes.push(code) });
  const failed = { errors: [{ message: 'not now', extensions: { code: 'UNAVAILABLE' } }] };
  server.onSubscribe = (socket, asked) => {
    const { id } = asked;
    if (server.asked.length === 1 || server.asked.length > 4) {
      return ScriptedServer.sendLines(socket, asked, 1);
    }
    const { _socket: stream } = socket as unknown as { _socket: Socket };
    stream.cork();
    socket.send(JSON.stringify({ id, type: 'next', payload: failed }));
    socket.send(JSON.stringify({ id, type: 'complete' }));
    stream.uncork();
  };
  const steady = told.runEvents('steady');
  await steady.next();
  expect((await told.runEvents('shaky').next()).value).toMatchObject({ seq: 1 });
  expect(codes).toEqual(['UNAVAILABLE', 'UNAVAILABLE', 'UNAVAILABLE']);
  expect(server.openSockets).toBe(1);
  told.close();
});

test('a server that keeps answering with a fault is not asked for ever', async () => {
  const error = { message: 'broken', extensions: { code: 'INTERNAL' } };
  server.onSubscribe = (socket, { id }) =>
    socket.send(JSON.stringify({ id, type: 'error', payload: [error] }));
  await expect(client.runEvents('run').next()).rejects.toMatchObject({ code: 'INTERNAL' });
  expect(server.asked).toHaveLength(11);
});

test('a server that answers once with a fault, after a long absence, is believed', async () => {
  const { url } = server;
  await server.stop();
  let misses = 0;
  const patient = makeClient(url, {
    onRetry: () => {
      misses += 1;
      if (misses === 12) void comeBack();
    },
  });
  const comeBack = async (): Promise<void> => {
    server = await ScriptedServer.start(Number(new URL(url).port));
    server.onSubscribe = (socket, asked) => {
      if (server.asked.length === 1) socket.close(4500);
      else ScriptedServer.sendLines(socket, asked, 1);
    };
  };
  expect((await patient.runEvents('run').next()).value).toMatchObject({ seq: 1 });
  expect(server.asked).toHaveLength(2);
  patient.close();
});

test('maxRetries bounds the attempts in a row; what is heard between starts the count anew', async () => {
  const retries: number[] = [];
  const impatient = makeClient(server.url, {
    maxRetries: 2,
    onRetry: (_error, { attempt }) => retries.push(attempt),
  });
  server.onSubscribe = (socket, asked) => {
    if (asked.after < 2) ScriptedServer.sendLines(socket, asked, 1);
    socket.close(1013, 'later');
  };
  const seqs: number[] = [];
  const reading = (async () => {
    for await (const { seq } of impatient.runEvents('run')) seqs.push(seq);
  })();
  await expect(reading).rejects.toMatchObject({ code: 'UNAVAILABLE', message: 'later' });
  expect(seqs).toEqual([1, 2]);
  expect(retries).toEqual([1, 1, 2]);
  impatient.close();
});

test('an abort throws its reason: at once, while it waits to try again, and before it began', async () => {
  const reason = new Error('enough');
  const reading = new AbortController();
  const pending = client.runEvents('run', { signal: reading.signal }).next();
  reading.abort(reason);
  await expect(pending).rejects.toBe(reason);
  await expect(client.runEvents('run', { signal: AbortSignal.abort(reason) }).next()).rejects.toBe(reason);

  const waiting = new AbortController();
  const patient = makeClient(server.url, {
    firstWaitMs: 1_000_000,
    longestWaitMs: 1_000_000,
    onRetry: () => waiting.abort(reason),
  });
  server.onSubscribe = (socket) => socket.close(1013);
  await expect(patient.runEvents('run', { signal: waiting.signal }).next()).rejects.toBe(reason);
});

test('closing the client ends what is under way, and closes its socket', async () => {
  const gone = new Promise((resolve) => {
    server.onSubscribe = (socket, asked) => {
      socket.once('close', resolve);
      ScriptedServer.sendLines(socket, asked, 1);
    };
  });
  const lines = client.runEvents('run');
  await lines.next();
  const pending = lines.next();
  client.close();
  expect(await pending).toEqual({ done: true, value: undefined });
  await gone;
});

test('one who does not read holds a bounded number of lines, and misses none', async () => {
  const total = 12_000;
  const left = new Promise((resolve) => {
    server.onSubscribe = (socket, asked) => {
      socket.once('close', resolve);
      ScriptedServer.sendLines(socket, asked, total - asked.after);
    };
  });
  const lines = client.runEvents('run');
  expect((await lines.next()).value).toMatchObject({ seq: 1 });
  await left;
  for (let seq = 2; seq <= total; seq += 1) expect((await lines.next()).value).toMatchObject({ seq });
  // What was on its way when it had enough is sent again.
  expect(server.asked).toHaveLength(2);
  expect(server.asked[1]).toBeGreaterThanOrEqual(10_000);
  expect(server.asked[1]).toBeLessThan(10_010);
});

test('one who does not read holds a bounded number of bytes, and misses none', async () => {
  const [total, megabyte] = [24, 'x'.repeat(2 ** 20)];
  const left = new Promise((resolve) => {
    server.onSubscribe = (socket, asked) => {
      socket.once('close', resolve);
      ScriptedServer.sendLines(socket, asked, total - asked.after, megabyte);
    };
  });
  const lines = client.runEvents('run');
  expect((await lines.next()).value).toMatchObject({ seq: 1 });
  await left;
  for (let seq = 2; seq <= total; seq += 1) expect((await lines.next()).value).toMatchObject({ seq });
  expect(server.asked).toHaveLength(2);
  expect(server.asked[1]).toBeGreaterThanOrEqual(15);
  expect(server.asked[1]).toBeLessThanOrEqual(17);
});

test('browsers and newer Nodes bring their own WebSocket; without one it says what to do', async () => {
  expect(() => makeClient(server.url, { webSocketImpl: undefined })).toThrow(/WebSocket implementation/);
  const { WebSocket } = await import('ws');
  const own = globalThis as { WebSocket?: unknown };
  const before = own.WebSocket;
  own.WebSocket = WebSocket;
  try {
    server.onSubscribe = (socket, asked) => ScriptedServer.sendLines(socket, asked, 1);
    const browser = makeClient(server.url, { webSocketImpl: undefined });
    expect((await browser.runEvents('run').next()).value).toMatchObject({ seq: 1 });
    browser.close();
  } finally {
    own.WebSocket = before;
  }
});
