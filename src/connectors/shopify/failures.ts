// How a Shopify answer that is no success becomes an outcome. Pure: owns the mapping from GraphQL error code
// and throttle status to what the runner understands. Only admin-client calls it.

import { z } from 'zod';
import type { Failure } from '../channel.js';
import { invalid, MALFORMED, permanent, retryable, statusFailure } from '../failures.js';

export interface CallErrors {
  readonly networkStatusCode?: number | undefined;
  readonly message?: string | undefined;
  readonly graphQLErrors?: unknown;
  readonly response?: Response | undefined;
}

/** Figures to compute times with: others than these make none that a clock has. */
const POINTS = z.number().min(-1e9).max(1e9);

const THROTTLE_STATUS = z.object({
  maximumAvailable: POINTS,
  currentlyAvailable: POINTS,
  restoreRate: POINTS.refine((rate) => rate <= 0 || rate >= 0.0001),
});

const COST = z.object({ requestedQueryCost: POINTS, throttleStatus: THROTTLE_STATUS });
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

function graphqlFailure(errors: GraphQLErrors, cost: Cost | null): Failure {
  const codes = new Set(errors.map((error) => error.extensions?.code));
  const message = errors.map((error) => error.message).join('; ');
  if (codes.has('THROTTLED')) return retryable('RATE_LIMITED', message, cost ? restoreDelay(cost) : null);
  if (codes.has('ACCESS_DENIED')) return permanent('AUTH', message);
  if (codes.has('INTERNAL_SERVER_ERROR')) return retryable('UPSTREAM', message);
  return invalid(message);
}

function restoreDelay({ requestedQueryCost, throttleStatus }: Cost): number | null {
  const { currentlyAvailable, restoreRate } = throttleStatus;
  if (restoreRate <= 0) return null;
  return Math.ceil((Math.max(0, requestedQueryCost - currentlyAvailable) / restoreRate) * 1000);
}
