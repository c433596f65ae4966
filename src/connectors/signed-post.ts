// One POST of JSON to an address that a tenant has named: signed, bounded in time and in what is read of the
// answer, never redirected. Owns the signature that receivers check. Called by alert sinks and webhooks.

import { createHmac } from 'node:crypto';
import { readBody } from './body.js';
import { Deadline } from './deadline.js';
import { networkMessage } from './failures.js';

export interface SignedPost {
  readonly url: string;
  /** Null sends it unsigned. */
  readonly secret: string | null;
  /** The same for every try at one delivery, so that a receiver can recognise a repeat. */
  readonly deliveryId: string;
  readonly body: unknown;
  readonly timeoutMs: number;
}

const MAX_ANSWER_BYTES = 64 * 1024;
const MAX_REASON_LENGTH = 200;

/** Resolves when the receiver has answered 2xx; rejects with the reason, in words, when not. */
export async function postSigned(post: SignedPost, signal: AbortSignal): Promise<void> {
  const deadline = new Deadline(post.timeoutMs, signal);
  try {
    const response = await fetch(post.url, {
      method: 'POST',
      ...encode(post),
      // A receiver that moves elsewhere is to be saved with its new address.
      redirect: 'manual',
      signal: deadline.signal,
    });
    const text = await readBody(response, MAX_ANSWER_BYTES);
    if (!response.ok) throw new Error(`HTTP ${response.status}: ${(text ?? '').slice(0, MAX_REASON_LENGTH)}`);
  } catch (error) {
    if (deadline.expired) throw new Error(`no answer within ${post.timeoutMs} ms`, { cause: error });
    throw new Error(networkMessage(error), { cause: error });
  } finally {
    deadline.clear();
  }
}

function encode({ secret, deliveryId, body }: SignedPost): { headers: Record<string, string>; body: string } {
  const text = JSON.stringify(body);
  const time = Math.floor(Date.now() / 1000);
  const headers = {
    'content-type': 'application/json',
    'user-agent': 'runledger',
    'x-runledger-delivery': deliveryId,
  };
  if (secret === null) return { headers, body: text };
  return { headers: { ...headers, 'x-runledger-signature': sign(secret, time, text) }, body: text };
}

/** Over the time and the body: neither can be changed, and a receiver can refuse what is old. */
export function sign(secret: string, time: number, body: string): string {
  return `t=${time},v1=${createHmac('sha256', secret).update(`${time}.${body}`).digest('hex')}`;
}
