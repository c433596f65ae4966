// One call to Shopify's Admin GraphQL, paced by its budget and bounded in time. Owns the HTTP client; an
// answer is the checked data or a failure, and it rejects only when the caller's signal aborts, or it is enough
// before the points are there. It never retries: when to try again is the runner's to decide.

import { createAdminApiClient, type AdminApiClient } from '@shopify/admin-api-client';
import type { z } from 'zod';
import { Deadline } from '../deadline.js';
import type { Failure } from '../channel.js';
import { MALFORMED, networkMessage, timeoutFailure } from '../failures.js';
import type { ShopifyConfig } from './config.js';
import type { CostBudget } from './cost-budget.js';
import { costOf, failureOf, type CallErrors } from './failures.js';
import { tracedFetch } from '../../tracing.js';

export interface AdminCall<T> {
  readonly document: string;
  readonly variables: Readonly<Record<string, unknown>>;
  readonly answer: z.ZodType<T>;
  /** Points that the call is expected to cost. */
  readonly cost: number;
  readonly idempotencyKey?: string;
}

export type Answer<T> =
  { readonly ok: true; readonly data: T } | { readonly ok: false; readonly failure: Failure };

interface RawAnswer {
  readonly data?: unknown;
  readonly extensions?: unknown;
  readonly errors?: CallErrors | undefined;
}

export class AdminClient {
  readonly #client: AdminApiClient;
  readonly #budget: CostBudget;
  readonly #callTimeoutMs: number;

  constructor(config: ShopifyConfig, budget: CostBudget) {
    this.#client = connect(config);
    this.#budget = budget;
    this.#callTimeoutMs = config.callTimeoutMs;
  }

  async call<T>(call: AdminCall<T>, signal: AbortSignal, enough = signal): Promise<Answer<T>> {
    await this.#budget.reserve(call.cost, AbortSignal.any([signal, enough]));
    const deadline = new Deadline(this.#callTimeoutMs, signal);
    let raw: RawAnswer = {};
    try {
      raw = await this.#send(call, deadline.signal);
    } finally {
      deadline.clear();
      this.#budget.settle(call.cost, costOf(raw.extensions)?.throttleStatus ?? null);
    }
    if (raw.errors) {
      signal.throwIfAborted();
      return { ok: false, failure: this.#failure(raw.errors, raw.extensions, deadline) };
    }
    const parsed = call.answer.safeParse(raw.data);
    return parsed.success ? { ok: true, data: parsed.data } : { ok: false, failure: MALFORMED };
  }

  async #send<T>(call: AdminCall<T>, signal: AbortSignal): Promise<RawAnswer> {
    const headers = call.idempotencyKey === undefined ? {} : { 'Idempotency-Key': call.idempotencyKey };
    const { document, variables } = call;
    const raw: RawAnswer = await this.#client.request(document, { variables, headers, signal });
    discardBody(raw.errors?.response);
    return raw;
  }

  #failure(errors: CallErrors, extensions: unknown, deadline: Deadline): Failure {
    return deadline.expired ? timeoutFailure(this.#callTimeoutMs) : failureOf(errors, costOf(extensions));
  }
}

function connect({ endpoint, accessToken }: ShopifyConfig): AdminApiClient {
  const { host, pathname } = new URL(endpoint);
  return createAdminApiClient({
    storeDomain: host,
    apiVersion: pathname.split('/')[3] ?? '',
    accessToken,
    // The library makes an https address of whatever it is given; the endpoint itself is what was checked.
    customFetchApi: (_, init) => post(endpoint, init),
    // Without a logger of ours it writes to the console.
    logger: () => {},
  });
}

async function post(endpoint: string, init: RequestInit | undefined): Promise<Response> {
  try {
    // A redirect would carry the access token to another host.
    return await tracedFetch(endpoint, { ...init, redirect: 'error' });
  } catch (error) {
    // The library keeps the message only.
    throw new Error(networkMessage(error), { cause: error });
  }
}

/** An unread body keeps its connection from being used again. */
function discardBody(response: Response | undefined): void {
  if (!response?.body || response.bodyUsed) return;
  response.body.cancel().catch(() => {});
}
