// One POST of JSON to an address that a tenant has named: signed, bounded in time and in what is read of the
// answer, never redirected. Owns the signature that receivers check. Called by alert sinks and webhooks.

import { createHmac } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import { AppError } from '../errors.js';
import { readBody } from './body.js';
import { Deadline } from './deadline.js';
import { networkMessage, parseRetryAfter } from './failures.js';
import { tracedFetch } from '../tracing.js';

export interface SignedPost {
  readonly url: string;
  /** Each signs; none sends it unsigned. */
  readonly secrets: readonly string[];
  /** The same for every try at one delivery, so that a receiver can recognise a repeat. */
  readonly deliveryId: string;
  readonly body: unknown;
  readonly timeoutMs: number;
}

/** In the details of the error, when the receiver has answered and did not take it. */
export interface RefusedPost {
  readonly status: number;
  readonly retryAfterMs: number | null;
}

const MAX_ANSWER_BYTES = 64 * 1024;

/**
 * Resolves when the receiver has answered 2xx; rejects with the reason, in words, when not. The status alone says
 * so: what else it answers is not waited for, and not told, since it may be the answer of any host.
 */
export async function postSigned(post: SignedPost, signal: AbortSignal): Promise<void> {
  const deadline = new Deadline(post.timeoutMs, signal);
  try {
    const response = await tracedFetch(post.url, {
      method: 'POST',
      ...encode(post),
      // A receiver that moves elsewhere is to be saved with its new address.
      redirect: 'manual',
      signal: deadline.signal,
    });
    // Read to its end, the connection can be used again.
    void readBody(response, MAX_ANSWER_BYTES)
      .catch(() => {})
      .finally(() => deadline.clear());
    if (!response.ok) throw refused(response);
  } catch (error) {
    if (error instanceof AppError) throw error;
    deadline.clear();
    const reason = deadline.expired ? `no answer within ${post.timeoutMs} ms` : networkMessage(error);
    throw new AppError('UNAVAILABLE', reason, { cause: error });
  }
}

function refused({ status, headers }: Response): AppError {
  const retryAfterMs = parseRetryAfter(headers.get('retry-after'), Date.now());
  const details = { status, retryAfterMs } satisfies RefusedPost;
  return new AppError('UNAVAILABLE', `HTTP ${status} ${STATUS_CODES[status] ?? ''}`.trimEnd(), { details });
}

function encode({ secrets, deliveryId, body }: SignedPost): {
  headers: Record<string, string>;
  body: string;
} {
  const text = JSON.stringify(body);
  const time = Math.floor(Date.now() / 1000);
  const headers = {
    'content-type': 'application/json',
    'user-agent': 'runledger',
    'x-runledger-delivery': deliveryId,
  };
  if (secrets.length === 0) return { headers, body: text };
  return { headers: { ...headers, 'x-runledger-signature': sign(secrets, time, text) }, body: text };
}

/** Over the time and the body: neither can be changed, and a receiver can refuse what is old. */
function sign(secrets: readonly string[], time: number, body: string): string {
  const digests = secrets.map((secret) =>
    createHmac('sha256', secret).update(`${time}.${body}`).digest('hex'),
  );
  return [`t=${time}`, ...digests.map((digest) => `v1=${digest}`)].join(',');
}
