// Calls of the supplier's GraphQL under one token. Owns the token: it is fetched when first needed and once
// more when the supplier does not accept it any longer. An answer is the checked data; all else is a fault.

import { z } from 'zod';
import {
  AccessRefused,
  callForJson,
  permanent,
  transient,
  type JsonAnswer,
  type SourceFault,
} from '../source-call.js';
import type { NivodaSettings } from './config.js';
import { AUTHENTICATE, AUTHENTICATED } from './operations.js';

const ERRORS = z
  .array(z.object({ message: z.string(), extensions: z.object({ code: z.string().nullish() }).nullish() }))
  .min(1);

const BODY = z.object({ data: z.unknown(), errors: z.unknown() }).partial();

export interface NivodaAnswer<T> {
  readonly data: T;
  readonly dateMs: number | null;
}

export class NivodaClient {
  readonly #settings: NivodaSettings;
  #token: Promise<string> | null = null;

  constructor(settings: NivodaSettings) {
    this.#settings = settings;
  }

  async call<T>(
    document: string,
    variables: Readonly<Record<string, unknown>>,
    answer: z.ZodType<T>,
    signal: AbortSignal,
  ): Promise<NivodaAnswer<T>> {
    const token = this.#currentToken(signal);
    try {
      return await this.#send(document, { ...variables, token: await token }, answer, signal);
    } catch (error) {
      if (!(error instanceof AccessRefused)) throw error;
      if (this.#token === token) this.#token = null;
    }
    const renewed = await this.#currentToken(signal);
    return this.#send(document, { ...variables, token: renewed }, answer, signal);
  }

  /** One for all callers: pages that are read at the same time must not log in one by one. */
  #currentToken(signal: AbortSignal): Promise<string> {
    this.#token ??= this.#authenticate(signal).catch((error: unknown) => {
      this.#token = null;
      throw error;
    });
    return this.#token;
  }

  async #authenticate(signal: AbortSignal): Promise<string> {
    const { username, password } = this.#settings;
    const { data } = await this.#send(AUTHENTICATE, { username, password }, AUTHENTICATED, signal);
    return data.authenticate.username_and_password.token;
  }

  async #send<T>(
    query: string,
    variables: Readonly<Record<string, unknown>>,
    shape: z.ZodType<T>,
    signal: AbortSignal,
  ): Promise<NivodaAnswer<T>> {
    const { endpoint: url, callTimeoutMs: timeoutMs } = this.#settings;
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ query, variables });
    const answer = await callForJson({ url, method: 'POST', headers, body, timeoutMs }, signal);
    return { data: read(answer, shape), dateMs: answer.dateMs };
  }
}

/** What is asked stays as it is, and with it these: all others may pass. */
const LASTING = new Set(['GRAPHQL_PARSE_FAILED', 'GRAPHQL_VALIDATION_FAILED', 'BAD_USER_INPUT', 'FORBIDDEN']);

function read<T>({ json }: JsonAnswer, shape: z.ZodType<T>): T {
  const body = BODY.safeParse(json);
  if (!body.success) throw transient('the answer of the source is no answer to GraphQL');
  const errors = ERRORS.safeParse(body.data.errors);
  if (errors.success) throw faultOf(errors.data);
  const data = shape.safeParse(body.data.data);
  if (data.success) return data.data;
  throw transient('the answer of the source does not have the shape that was asked for');
}

function faultOf(errors: z.infer<typeof ERRORS>): SourceFault {
  const message = `the source refused: ${errors.map((error) => error.message).join('; ')}`;
  const codes = errors.map((error) => error.extensions?.code ?? '');
  if (codes.includes('UNAUTHENTICATED')) return new AccessRefused(message);
  return codes.some((code) => LASTING.has(code)) ? permanent(message) : transient(message);
}
