// A client of an event stream that is slow: how long it is waited for, and what it may hold.
import { Writable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { EventStream } from '../../src/server/event-stream.js';

const LIMITS = { socketStallMs: 1_000, socketBufferBytes: 1_000 };
const VIEWER = { tenantId: 'default', role: 'ADMIN', actor: 'slow', keyId: null } as const;

/** A response that its client takes a chunk of when it is told to. */
class SlowResponse extends Writable {
  private readonly waiting: (() => void)[] = [];

  constructor() {
    super({ highWaterMark: 1, decodeStrings: false });
  }

  writeHead(): void {}

  override _write(_chunk: unknown, _encoding: string, taken: () => void): void {
    this.waiting.push(taken);
  }

  async take(): Promise<void> {
    this.waiting.shift()!();
    await vi.advanceTimersByTimeAsync(0);
  }
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function open(limits = LIMITS): { stream: EventStream; response: SlowResponse } {
  const response = new SlowResponse();
  const reply = { hijack: () => ({ raw: response }), getHeaders: () => ({}) } as unknown as FastifyReply;
  const right = { credentials: { token: null, local: true }, viewer: VIEWER, asOf: 0 };
  return { stream: new EventStream(reply, right, limits), response };
}

test('one that takes a little now and then stays, one that takes nothing is cut', async () => {
  const { stream, response } = open();
  await response.take();
  for (let n = 0; n < 4; n += 1) void stream.send(String(n));
  for (let n = 0; n < 3; n += 1) {
    await vi.advanceTimersByTimeAsync(LIMITS.socketStallMs - 1);
    await response.take();
  }
  expect(response.destroyed).toBe(false);
  await vi.advanceTimersByTimeAsync(LIMITS.socketStallMs);
  expect(response.destroyed).toBe(true);
});

test('what is sent at once is no fault of the client; what it leaves waiting is, when it takes nothing', async () => {
  const { stream, response } = open();
  await response.take();
  const left = vi.fn();
  const kept = vi.fn();
  const forget = stream.onEnd(left);
  stream.onEnd(kept);
  forget();
  const sent = Array.from({ length: 50 }, () => stream.send('x'.repeat(100)));
  // The response is handed one after the other, the rest waits beside it.
  expect(response.writableLength).toBeLessThan(400);
  for (let n = 0; n < 20; n += 1) await response.take();
  await sent[19];
  expect(response.destroyed).toBe(false);
  await vi.advanceTimersByTimeAsync(LIMITS.socketStallMs);
  expect(response.destroyed).toBe(true);
  expect([left.mock.calls.length, kept.mock.calls.length]).toEqual([0, 1]);
  for (const each of sent) await each;
});

test('when much waits, one that takes nothing is waited for less long', async () => {
  const { stream, response } = open({ ...LIMITS, socketStallMs: 1_000_000 });
  await response.take();
  void stream.send('little');
  void stream.send('little');
  await vi.advanceTimersByTimeAsync(10_000);
  expect(response.destroyed).toBe(false);
  for (let n = 0; n < 20; n += 1) void stream.send('x'.repeat(100));
  await vi.advanceTimersByTimeAsync(250);
  expect(response.destroyed).toBe(true);
});

test('words that nobody waits for are bounded by themselves', () => {
  const { stream, response } = open();
  for (let n = 0; n < 30; n += 1) stream.tell('complete', '{"id":"one that ended at once"}');
  expect(response.destroyed).toBe(true);
});

test('a stream ends behind all that waits', async () => {
  const { stream, response } = open();
  await response.take();
  const sent = Array.from({ length: 5 }, (_, n) => stream.send(String(n)));
  stream.tell('complete', '');
  stream.end();
  for (let n = 0; n < 6; n += 1) {
    expect(response.writableFinished).toBe(false);
    await response.take();
  }
  for (const each of sent) await each;
  expect(response.writableFinished).toBe(true);
});
