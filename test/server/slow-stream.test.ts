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

function open(): { stream: EventStream; response: SlowResponse } {
  const response = new SlowResponse();
  const reply = { hijack: () => ({ raw: response }), getHeaders: () => ({}) } as unknown as FastifyReply;
  const right = { credentials: { token: null, local: true }, viewer: VIEWER, asOf: 0 };
  return { stream: new EventStream(reply, right, LIMITS), response };
}

test('one that takes a little now and then stays, one that takes nothing is cut', async () => {
  const { stream, response } = open();
  await response.take();
  for (let n = 0; n < 4; n += 1) void stream.send('next', String(n));
  for (let n = 0; n < 3; n += 1) {
    await vi.advanceTimersByTimeAsync(LIMITS.socketStallMs - 1);
    await response.take();
  }
  expect(response.destroyed).toBe(false);
  await vi.advanceTimersByTimeAsync(LIMITS.socketStallMs);
  expect(response.destroyed).toBe(true);
});

test('what waits for it is bounded, and its sources are told', () => {
  const { stream, response } = open();
  const left = vi.fn();
  const kept = vi.fn();
  const forget = stream.onEnd(left);
  stream.onEnd(kept);
  forget();
  let most = 0;
  for (let n = 0; !response.destroyed; n += 1) {
    void stream.send('next', 'x'.repeat(100));
    most = Math.max(most, response.writableLength);
  }
  expect(most).toBeLessThanOrEqual(LIMITS.socketBufferBytes + 200);
  expect([left.mock.calls.length, kept.mock.calls.length]).toEqual([0, 1]);
});
