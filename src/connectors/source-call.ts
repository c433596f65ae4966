// One HTTP call to a supplier, bounded in time. Owns how an answer that is no success becomes a failure that
// the runner understands. A failure is thrown as a SourceFault inside a connector and turned into an outcome
// at its edge; only an aborted signal is thrown to the outside.

import { setTimeout as delay } from 'node:timers/promises';
import { nextDelayMs, type RetryPolicy } from '../domain/retry-policy.js';
import { readBody } from './body.js';
import { Deadline } from './deadline.js';
import { networkMessage, parseRetryAfter } from './failures.js';
import type { SourceFailure } from './source.js';
import { tracedFetch } from '../tracing.js';

export class SourceFault extends Error {
  readonly failure: SourceFailure;

  constructor(failure: SourceFailure) {
    super(failure.message);
    this.name = 'SourceFault';
    this.failure = failure;
  }
}

/** The source does not accept who asks: a fresh token may be accepted. */
export class AccessRefused extends SourceFault {
  constructor(message: string) {
    super({ kind: 'permanent', message });
  }
}

export function transient(message: string, retryAfterMs: number | null = null): SourceFault {
  return new SourceFault({
    kind: 'transient',
    message,
    throttled: false,
    ...(retryAfterMs === null ? {} : { retryAfterMs }),
  });
}

export function permanent(message: string): SourceFault {
  return new SourceFault({ kind: 'permanent', message });
}

/** The edge of a connector: a fault becomes an outcome. */
export async function outcomeOf<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T | SourceFailure> {
  try {
    return await work();
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof SourceFault) return error.failure;
    // Two calls may wait for one login, and the one that made it may have been called off.
    if (error instanceof DOMException) return transient('a call that was waited for was cut').failure;
    throw error;
  }
}

export interface Call {
  readonly url: string;
  readonly method?: 'GET' | 'POST';
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface TimedCall extends Call {
  readonly timeoutMs: number;
}

export interface JsonAnswer {
  readonly json: unknown;
  /** The source's clock when it answered, to the second; null when it did not say. */
  readonly dateMs: number | null;
}

/** More than any page has; a source that sends without end must not fill our memory. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

/** Waits for what cannot be cut itself, until time is up or the caller gives up. */
export async function waitFor<T>(work: Promise<T>, timeoutMs: number, signal: AbortSignal): Promise<T> {
  const deadline = new Deadline(timeoutMs, signal);
  const cut = new Promise<never>((_, reject) => {
    deadline.signal.addEventListener('abort', () => reject(deadline.signal.reason), { once: true });
  });
  try {
    return await Promise.race([work, cut]);
  } catch (error) {
    throw toFault(error, timeoutMs, deadline, signal);
  } finally {
    deadline.clear();
  }
}

export async function callForJson(call: TimedCall, signal: AbortSignal): Promise<JsonAnswer> {
  const deadline = new Deadline(call.timeoutMs, signal);
  try {
    const response = await send(call, deadline.signal);
    if (!response.ok) throw failureOfStatus(response);
    const text = await readBody(response, MAX_BODY_BYTES);
    if (text === null) throw permanent(`the source's answer has more than ${MAX_BODY_BYTES} bytes`);
    return { json: parseJson(text), dateMs: dateOf(response) };
  } catch (error) {
    throw toFault(error, call.timeoutMs, deadline, signal);
  } finally {
    deadline.clear();
  }
}

/** Tries within one piece of work; after that the work as a whole is tried again. */
const TRIES = 4;
/** A longer wait is not one to be spent inside of a piece of work. */
const MAX_WAIT_MS = 30_000;

/** One of many calls that belong together: what may pass is tried again, so that the others need not be. */
export async function tryAgain<T>(
  policy: RetryPolicy,
  signal: AbortSignal,
  call: () => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof SourceFault) || error.failure.kind === 'permanent' || attempt === TRIES)
        throw error;
      const { retryAfterMs, throttled } = error.failure;
      const waitMs = retryAfterMs ?? nextDelayMs(policy, attempt, throttled, Math.random);
      if (waitMs > MAX_WAIT_MS) throw error;
      await delay(waitMs, undefined, { signal });
    }
  }
}

export function send({ url, method = 'GET', headers, body }: Call, signal: AbortSignal): Promise<Response> {
  return tracedFetch(url, {
    method,
    signal,
    // A redirect would carry credentials to another host.
    redirect: 'error',
    ...(headers ? { headers } : {}),
    ...(body === undefined ? {} : { body }),
  });
}

/** What went wrong with a call; rethrows when the caller gave up. */
function toFault(error: unknown, timeoutMs: number, deadline: Deadline, signal: AbortSignal): SourceFault {
  signal.throwIfAborted();
  if (error instanceof SourceFault) return error;
  if (deadline.expired) return transient(`the source gave no answer within ${timeoutMs} ms`);
  return transient(`the source cannot be reached: ${networkMessage(error)}`);
}

export function failureOfStatus(response: Response): SourceFault {
  // An unread body keeps its connection from being used again.
  response.body?.cancel().catch(() => {});
  const { status } = response;
  const message = `the source answered HTTP ${status}`;
  const retryAfterMs = parseRetryAfter(response.headers.get('retry-after'), Date.now());
  if (status === 429) {
    const delay = retryAfterMs === null ? {} : { retryAfterMs };
    return new SourceFault({ kind: 'transient', message, throttled: true, ...delay });
  }
  if (status === 401) return new AccessRefused(message);
  if (status === 408 || status >= 500) return transient(message, retryAfterMs);
  return permanent(message);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw transient(`the source's answer is no JSON: ${JSON.stringify(text.slice(0, 80))}`);
  }
}

function dateOf(response: Response): number | null {
  const ms = Date.parse(response.headers.get('date') ?? '');
  return Number.isNaN(ms) ? null : ms;
}

/**
 * When a plan began that sent its first call at `sentMs`: on the source's clock when that may be behind ours, because
 * its times of change are that clock's. Its clock shows whole seconds; one that shows nothing may be as much behind.
 */
export function planBeganAt(sentMs: number, sourceDateMs: number | null): Date {
  return new Date(Math.min(sentMs, sourceDateMs ?? Math.floor(sentMs / 1_000) * 1_000));
}
