// What is told of queries and mutations, a root field at a time: a span in the trace, if the request has one, and
// a log line for each mutation, also one that is refused, if those are wanted. A root field is one verb of the
// store.

import type { GraphQLField } from 'graphql';
import { AppError } from '../errors.js';
import { currentSpan, inSpan } from '../tracing.js';
import type { Resolve } from './authorise.js';
import type { Context } from './context.js';

/** Nothing is added to a subscription: it has its own span, and an event is no operation. */
export function tellOf(root: string, { name }: GraphQLField<unknown, Context>, resolve: Resolve): Resolve {
  if (root === 'Subscription') return resolve;
  const isMutation = root === 'Mutation';
  const facts = { 'runledger.verb': name };
  return (source, args, context, info) => {
    const traced = currentSpan() !== null;
    if (!traced && (!isMutation || context.operationLog === null))
      return resolve(source, args, context, info);
    const verb = async (): Promise<unknown> => resolve(source, args, context, info);
    const answer = traced ? inSpan({ name: `store ${name}`, facts }, verb) : verb();
    return isMutation ? logged(name, context, answer) : answer;
  };
}

async function logged(mutation: string, context: Context, answer: Promise<unknown>): Promise<unknown> {
  const from = performance.now();
  const tell = (outcome: object): void => {
    const ms = Math.round(performance.now() - from);
    const { correlationId, viewer } = context;
    const facts = { correlationId, tenantId: viewer.tenantId, mutation, ...outcome, ms };
    context.operationLog?.debug(facts, 'mutation');
  };
  try {
    const payload = await answer;
    tell(describe(payload));
    return payload;
  } catch (error) {
    tell({ refused: [error instanceof AppError ? error.code : 'INTERNAL'] });
    throw error;
  }
}

/** What the payload is about, by its ids, and the codes of what was refused. */
function describe(payload: unknown): object {
  const facts: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(payload ?? {})) {
    if (field === 'userErrors') facts['refused'] = codesOf(value);
    else if (isObject(value) && 'id' in value) {
      facts[`${field}Id`] = value['id'];
      if ('correlationId' in value) facts[`${field}CorrelationId`] = value['correlationId'];
    }
  }
  return facts;
}

function codesOf(errors: unknown): unknown[] | undefined {
  return Array.isArray(errors) && errors.length > 0
    ? errors.map((error: { code?: unknown }) => error.code)
    : undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
