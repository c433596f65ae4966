// How a Shopify answer that is no success becomes an outcome. Pure: owns the mapping from HTTP status and
// GraphQL error code to what the runner understands. Only admin-client calls it.

import { z } from 'zod';
import type { FailureCode, Outcome } from '../channel.js';

export type Failure = Exclude<Outcome, { kind: 'applied' }>;

export interface CallErrors {
  readonly networkStatusCode?: number | undefined;
  readonly message?: string | undefined;
  readonly graphQLErrors?: unknown;
  readonly response?: Response | undefined;
}

const THROTTLE_STATUS = z.object({
  maximumAvailable: z.number(),
  currentlyAvailable: z.number(),
  restoreRate: z.number(),
});

const COST = z.object({ requestedQueryCost: z.number(), throttleStatus: THROTTLE_STATUS });
export type Cost = z.infer<typeof COST>;

const GRAPHQL_ERRORS = z
  .array(
    z.object({
      message: z.string(),
      extensions: z.object({ code: z.string().nullish() }).nullish(),
    }),
  )
  .min(1);
type GraphQLErrors = z.infer<typeof GRAPHQL_ERRORS>;

/** The budget that the answer reported, or null. */
export function costOf(extensions: unknown): Cost | null {
  const parsed = z.object({ cost: COST }).safeParse(extensions);
  return parsed.success ? parsed.data.cost : null;
}

export function failureOf(errors: CallErrors, cost: Cost | null): Failure {
  const status = errors.networkStatusCode;
  if (status === undefined) return retryable('UPSTREAM', errors.message ?? 'No answer');
  if (status < 200 || status >= 300) return statusFailure(status, errors.response?.headers);
  const parsed = GRAPHQL_ERRORS.safeParse(errors.graphQLErrors);
  return parsed.success ? graphqlFailure(parsed.data, cost) : MALFORMED;
}

export const MALFORMED: Failure = retryable('UPSTREAM', 'The answer could not be understood');

export function timeoutFailure(ms: number): Failure {
  return retryable('TIMEOUT', `No answer within ${ms} ms`);
}

export function invalid(message: string): Failure {
  return { kind: 'permanent', code: 'INVALID', message };
}

/** Refused for what it carries: a smaller call may pass, and the culprit can be found by halving. */
export function isRefusal(failure: Failure): boolean {
  return failure.kind === 'permanent' && failure.code === 'INVALID';
}

function statusFailure(status: number, headers: Headers | undefined): Failure {
  const message = `The shop answered HTTP ${status}`;
  const retryAfterMs = parseRetryAfter(headers?.get('retry-after') ?? null, Date.now());
  if (status === 401 || status === 403) return { kind: 'permanent', code: 'AUTH', message };
  if (status === 429) return retryable('RATE_LIMITED', message, retryAfterMs);
  if (status === 408) return retryable('TIMEOUT', message, retryAfterMs);
  if (status >= 400 && status < 500) return invalid(message);
  return retryable('UPSTREAM', message, retryAfterMs);
}

function graphqlFailure(errors: GraphQLErrors, cost: Cost | null): Failure {
  const codes = new Set(errors.map((error) => error.extensions?.code));
  const message = errors.map((error) => error.message).join('; ');
  if (codes.has('THROTTLED')) return retryable('RATE_LIMITED', message, cost ? restoreDelay(cost) : null);
  if (codes.has('ACCESS_DENIED')) return { kind: 'permanent', code: 'AUTH', message };
  if (codes.has('INTERNAL_SERVER_ERROR')) return retryable('UPSTREAM', message);
  return invalid(message);
}

function restoreDelay({ requestedQueryCost, throttleStatus }: Cost): number | null {
  const { currentlyAvailable, restoreRate } = throttleStatus;
  if (restoreRate <= 0) return null;
  return Math.ceil((Math.max(0, requestedQueryCost - currentlyAvailable) / restoreRate) * 1000);
}

/** Seconds, or an HTTP date; null when it is neither. */
export function parseRetryAfter(value: string | null, nowMs: number): number | null {
  if (value === null) return null;
  if (/^\d{1,9}(\.\d+)?$/.test(value)) return Math.ceil(Number(value) * 1000);
  // Date.parse takes bare numbers for years: a date in a header always has a month's name.
  const date = /[a-z]/i.test(value) ? Date.parse(value) : NaN;
  return Number.isNaN(date) ? null : Math.max(0, date - nowMs);
}

function retryable(code: FailureCode, message: string, retryAfterMs: number | null = null): Failure {
  const failure = { kind: 'retryable', code, message } as const;
  return retryAfterMs === null ? failure : { ...failure, retryAfterMs };
}
