// One HTTP call: signed, bounded in time and in the size of its answer, never redirected. Owns the wire; what
// an answer means is not known here. It rejects only when the caller's signal aborts.

import { createHmac } from 'node:crypto';
import { readBody } from '../body.js';
import { Deadline } from '../deadline.js';
import type { Failure } from '../channel.js';
import { networkMessage, retryable, timeoutFailure } from '../failures.js';
import type { HttpConfig } from './config.js';
import { tracedFetch } from '../../tracing.js';

export interface HttpCall {
  readonly method: string;
  readonly url: string;
  /** By their names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
}

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

export type Answer = { readonly reply: Reply } | { readonly failure: Failure };

export class HttpClient {
  readonly #config: HttpConfig;

  constructor(config: HttpConfig) {
    this.#config = config;
  }

  async send(call: HttpCall, signal: AbortSignal): Promise<Answer> {
    const { callTimeoutMs } = this.#config;
    const deadline = new Deadline(callTimeoutMs, signal);
    try {
      return await this.#exchange(call, deadline.signal);
    } catch (error) {
      signal.throwIfAborted();
      if (deadline.expired) return { failure: timeoutFailure(callTimeoutMs) };
      return { failure: retryable('UPSTREAM', networkMessage(error)) };
    } finally {
      deadline.clear();
    }
  }

  async #exchange({ method, url, headers, body }: HttpCall, signal: AbortSignal): Promise<Answer> {
    const { maxAnswerBytes } = this.#config;
    const response = await tracedFetch(url, {
      method,
      headers: { accept: 'application/json', ...headers, ...this.#sign(method, url, body ?? '') },
      body,
      // Credentials go to the address that was checked and to no other.
      redirect: 'manual',
      signal,
    });
    const text = await readBody(response, maxAnswerBytes);
    if (text === null) {
      return { failure: retryable('UPSTREAM', `The answer is larger than ${maxAnswerBytes} bytes`) };
    }
    return { reply: { status: response.status, headers: response.headers, text } };
  }

  /** Over the time, the method, the path and the body: none of them can be changed or used again later. */
  #sign(method: string, url: string, body: string): Record<string, string> {
    const { signature, credentials } = this.#config;
    if (!signature) return {};
    const { pathname, search } = new URL(url);
    const time = Math.floor(Date.now() / 1000);
    const hmac = createHmac('sha256', credentials[signature.credential]!);
    const digest = hmac.update(`${time}.${method}.${pathname}${search}.${body}`).digest('hex');
    return { [signature.header.toLowerCase()]: `t=${time},v1=${digest}` };
  }
}
