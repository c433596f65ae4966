// Reads a subscription out of an HTTP request: of the query string for GET, of the body for POST. Called by
// event-streams.

import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { AppError } from '../errors.js';
import type { SubscriptionRequest } from './subscription.js';

export interface StreamRequest extends SubscriptionRequest {
  /** Names the subscription within a stream that carries several. */
  readonly operationId: string | null;
}

const jsonObject = z
  .string()
  .transform((text, context) => {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      context.addIssue('is not JSON');
      return z.NEVER;
    }
  })
  .pipe(z.record(z.string(), z.unknown()).nullable());

const inQuery = z.object({
  query: z.string().min(1),
  operationName: z.string().optional(),
  variables: jsonObject.optional(),
  extensions: jsonObject.optional(),
});

const inBody = z.object({
  query: z.string().min(1),
  operationName: z.string().nullish(),
  variables: z.record(z.string(), z.unknown()).nullish(),
  extensions: z.record(z.string(), z.unknown()).nullish(),
});

export function readStreamRequest({ method, query, body, headers }: FastifyRequest): StreamRequest {
  const { data, error } = method === 'GET' ? inQuery.safeParse(query) : inBody.safeParse(body);
  if (error) {
    const [issue] = error.issues;
    throw new AppError('BAD_USER_INPUT', `${issue!.path.join('.') || 'The request'}: ${issue!.message}.`);
  }
  const { operationName, variables, extensions } = data;
  const operationId = extensions?.['operationId'];
  const lastEventId = headers['last-event-id'];
  return {
    query: data.query,
    operationName,
    variables,
    operationId: typeof operationId === 'string' ? operationId : null,
    lastEventId: typeof lastEventId === 'string' ? lastEventId : null,
  };
}
