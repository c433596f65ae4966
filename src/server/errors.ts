// Turns anything thrown into the error a client sees, for HTTP and WebSocket alike. Invariants: every error
// shown has an `extensions.code`; an error we did not foresee is logged whole and shown as INTERNAL with the
// correlation id of its log line, never with its own text or stack.

import { randomUUID } from 'node:crypto';
import { GraphQLError, type GraphQLFormattedError } from 'graphql';
import type { Logger } from 'pino';
import { AppError, FAULTS, type ErrorCode, type Fault } from '../errors.js';

const HTTP_STATUS: Readonly<Record<Fault, number>> = {
  UNAUTHENTICATED: 401,
  FORBIDDEN: 403,
  BAD_USER_INPUT: 400,
  RATE_LIMITED: 429,
  UNAVAILABLE: 503,
  INTERNAL: 500,
};

/** Status of a response that consists of this error alone; partial results keep 200. */
export function httpStatusOf(shown: GraphQLFormattedError): number {
  const code = shown.extensions?.['code'];
  return isFault(code) ? HTTP_STATUS[code] : 400;
}

/** A refusal of the request itself. The status in its extensions is for Apollo, and is not shown. */
export function requestError(code: Fault, message: string): GraphQLError {
  return new GraphQLError(message, {
    originalError: new AppError(code, message),
    extensions: { http: { status: HTTP_STATUS[code] } },
  });
}

export class ErrorPresenter {
  /** Which operation they come from, where those who show them cannot tell. */
  private readonly origins = new WeakMap<object, string>();

  constructor(private readonly log: Logger) {}

  /** Notes that errors come from the operation with this correlation id. */
  attribute(errors: readonly object[], correlationId: string): void {
    for (const error of errors) this.origins.set(error, correlationId);
  }

  present(error: unknown, correlationId?: string): GraphQLFormattedError {
    const located = error instanceof GraphQLError ? error : null;
    const known = appErrorIn(error);
    if (known !== null && known.code !== 'INTERNAL') return shownAs(located, known.message, facts(known));
    if (located !== null && isFault(located.extensions['code'])) {
      return shownAs(located, located.message, { code: located.extensions['code'] });
    }
    if (located !== null && isTooDeepToParse(located)) {
      return shownAs(null, 'Syntax Error: The document is nested too deeply.', { code: 'BAD_USER_INPUT' });
    }
    if (located !== null && isFaultOfRequest(located)) {
      return shownAs(located, located.message, { code: 'BAD_USER_INPUT' });
    }
    return this.presentUnknown(error, located, correlationId);
  }

  private presentUnknown(
    error: unknown,
    located: GraphQLError | null,
    given: string | undefined,
  ): GraphQLFormattedError {
    const correlationId = given ?? (located && this.origins.get(located)) ?? randomUUID();
    const err = rootOf(error);
    this.log.error({ err, path: located?.path?.join('.'), correlationId }, 'unforeseen error in the API');
    return shownAs(located, 'Something went wrong on our side', { code: 'INTERNAL', correlationId });
  }
}

function shownAs(
  located: GraphQLError | null,
  message: string,
  extensions: Record<string, unknown>,
): GraphQLFormattedError {
  return {
    message,
    ...(located?.locations ? { locations: located.locations } : {}),
    ...(located?.path ? { path: located.path } : {}),
    extensions,
  };
}

function facts(error: AppError): Record<string, unknown> {
  return {
    code: shownCode(error.code),
    ...(error.field ? { field: error.field } : {}),
    ...(error.details ? { details: error.details } : {}),
  };
}

/** Where there are no `userErrors` (queries, subscriptions), input that does not fit is BAD_USER_INPUT. */
function shownCode(code: ErrorCode): ErrorCode {
  return code === 'INVALID_INPUT' || code === 'LIMIT_EXCEEDED' ? 'BAD_USER_INPUT' : code;
}

function isFault(code: unknown): code is Fault {
  return (FAULTS as readonly unknown[]).includes(code);
}

/** GraphQL wraps what a resolver throws, and Apollo wraps that again. */
function* layersOf(error: unknown): Generator<unknown> {
  let layer: unknown = error;
  while (layer !== undefined && layer !== null) {
    yield layer;
    layer = layer instanceof GraphQLError ? layer.originalError : undefined;
  }
}

function appErrorIn(error: unknown): AppError | null {
  for (const layer of layersOf(error)) if (layer instanceof AppError) return layer;
  return null;
}

function rootOf(error: unknown): unknown {
  return [...layersOf(error)].at(-1) ?? error;
}

/** The parser descends by recursion, so a document can run it out of stack. */
function isTooDeepToParse(error: GraphQLError): boolean {
  return error.path === undefined && rootOf(error) instanceof RangeError;
}

/**
 * GraphQL's own complaints: parsing, validation and variables come before execution and so have no path;
 * arguments are coerced during execution and point at their node. A value of ours that cannot be
 * serialized points at nothing, and is not the caller's fault.
 */
function isFaultOfRequest(error: GraphQLError): boolean {
  const layers = [...layersOf(error)];
  if (!layers.every((layer) => layer instanceof GraphQLError)) return false;
  return (
    error.path === undefined || (layers.length > 1 && (layers.at(-1) as GraphQLError).nodes !== undefined)
  );
}
