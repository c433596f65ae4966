// The stand-in for Shopify's Admin GraphQL, as one route of the sandbox. Owns the order in which a request
// can fail: access token, form, the fault that its ids ask for, points, execution.

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { execute, GraphQLError, type ExecutionResult } from 'graphql';
import type { SandboxState } from '../state.js';
import { ShopCatalog } from './catalog.js';
import { faultOf, type Fault } from './faults.js';
import { LeakyBucket } from './leaky-bucket.js';
import { planRequest, RequestRefused, type RequestPlan, type ShopRequest } from './request-plan.js';
import { SHOP_SCHEMA } from './schema.js';
import { externalIdOf } from './variants.js';

export interface ShopOptions {
  readonly state: SandboxState;
  readonly restorePerSecond: number;
  readonly now: () => number;
  readonly accessToken: string;
}

type Strike =
  { readonly status: number; readonly headers?: Readonly<Record<string, string>> } | 'hang' | null;

const RETRY_AFTER_S = '1';

export class Shop {
  readonly #state: SandboxState;
  readonly #accessToken: string;
  readonly #bucket: LeakyBucket;
  readonly #catalog: ShopCatalog;
  #held = 0;

  constructor({ state, restorePerSecond, now, accessToken }: ShopOptions) {
    this.#state = state;
    this.#accessToken = accessToken;
    this.#bucket = new LeakyBucket(restorePerSecond, now);
    this.#catalog = new ShopCatalog(state);
  }

  /** How many writes of this id were accepted. */
  writesOf(externalId: string): number {
    return this.#catalog.writesOf(externalId);
  }

  /** How many calls are left without an answer right now. */
  get held(): number {
    return this.#held;
  }

  register(server: FastifyInstance): void {
    server.post('/admin/api/:version/graphql.json', (request, reply) => this.#answer(request, reply));
  }

  async #answer(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
    if (request.headers['x-shopify-access-token'] !== this.#accessToken) return fail(reply, 401);
    const body = request.body as Partial<ShopRequest> | null;
    if (typeof body?.query !== 'string') return fail(reply, 400);
    const variables = body.variables;
    const plan = this.#plan({ query: body.query, variables });
    if (!('cost' in plan)) return this.#withCost(plan, 0);
    const strike = await this.#strike(plan, request.headers['idempotency-key']);
    if (strike === 'hang') return this.#hold(reply);
    if (strike) return fail(reply.headers(strike.headers ?? {}), strike.status);
    return this.#run(plan, variables);
  }

  #plan(request: ShopRequest): RequestPlan | ExecutionResult {
    try {
      return planRequest(request);
    } catch (error) {
      if (error instanceof RequestRefused) return { errors: error.errors };
      if (error instanceof GraphQLError) return { errors: [error] };
      throw error;
    }
  }

  /** The first fault that the written ids ask for, if it is still due. */
  async #strike(plan: RequestPlan, key: string | string[] | undefined): Promise<Strike> {
    for (const { id } of plan.written) {
      const externalId = id ? externalIdOf(id) : null;
      const fault = externalId === null ? null : faultOf(externalId);
      // Counted per key, so that the retries of one target get past the fault and the next run meets it anew.
      const counted = key === undefined ? `${externalId}` : `${externalId} ${String(key)}`;
      const strike = fault && (await this.#strikeOf(fault, counted));
      if (strike) return strike;
    }
    return null;
  }

  async #strikeOf(fault: Fault, key: string): Promise<Strike> {
    switch (fault.kind) {
      case 'unavailable': {
        const due = fault.times === Infinity || (await this.#state.countFault(key)) <= fault.times;
        return due ? { status: 503 } : null;
      }
      case 'throttle': {
        const due = (await this.#state.countFault(key)) <= 1;
        return due ? { status: 429, headers: { 'retry-after': RETRY_AFTER_S } } : null;
      }
      case 'deny':
        return { status: 401 };
      case 'hang':
        return 'hang';
      default:
        return null;
    }
  }

  async #run(plan: RequestPlan, variables: ShopRequest['variables']): Promise<unknown> {
    const points = this.#bucket.charge(plan.cost);
    if (!this.#bucket.spend(points)) {
      const throttled = new GraphQLError('Throttled', { extensions: { code: 'THROTTLED' } });
      return this.#withCost({ errors: [throttled] }, points, null);
    }
    const result = await execute({
      schema: SHOP_SCHEMA,
      document: plan.document,
      rootValue: this.#catalog,
      variableValues: variables,
    });
    const broken = result.errors?.find((error) => error.originalError);
    // A fault of the sandbox itself (its state cannot be reached) is no answer about the request: HTTP 500.
    if (broken) throw broken;
    return this.#withCost(result, points);
  }

  #withCost(result: ExecutionResult, requested: number, actual: number | null = requested) {
    const throttleStatus = this.#bucket.status();
    const cost = { requestedQueryCost: requested, actualQueryCost: actual, throttleStatus };
    return { ...result, extensions: { cost } };
  }

  /** Keeps the socket open and says nothing; it ends when the client leaves or the sandbox stops. */
  #hold(reply: FastifyReply): void {
    this.#held += 1;
    reply.raw.once('close', () => (this.#held -= 1));
    reply.hijack();
  }
}

function fail(reply: FastifyReply, status: number): FastifyReply {
  return reply.code(status).send({ errors: `HTTP ${status}` });
}
