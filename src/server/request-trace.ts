// What joins one request to the rest of the world: its correlation id, for log lines and answers, and the trace
// that its sender or we have begun. Called by http, ops-webhook and websocket.

import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import { inSpan } from '../tracing.js';

export const CORRELATION_HEADER = 'x-correlation-id';

const LABEL = /^[\w.:@/+=-]{1,128}$/;

/** The sender's own, when it can stand in a log line as it is. */
export function correlationIdOf({ headers }: { readonly headers: IncomingHttpHeaders }): string {
  const given = headers[CORRELATION_HEADER];
  return typeof given === 'string' && LABEL.test(given) ? given : randomUUID();
}

/** Answers a request within a span, as part of the trace that its headers name. */
export function inRequestSpan<T>(
  request: FastifyRequest,
  reply: FastifyReply,
  answer: () => Promise<T>,
): Promise<T> {
  const { method, headers, id, routeOptions } = request;
  const route = routeOptions.url ?? '';
  const facts = { 'http.request.method': method, 'http.route': route, 'runledger.correlation_id': id };
  const parent = traceparentIn(headers);
  return inSpan({ name: `${method} ${route}`, kind: 'server', parent, facts }, async (span) => {
    const answered = await answer();
    span.note({ 'http.response.status_code': reply.statusCode });
    return answered;
  });
}

export function logResponse(log: Logger, { method, url, id }: FastifyRequest, reply: FastifyReply): void {
  // Neither headers nor the query string: both can carry secrets.
  const facts = { correlationId: id, method, path: pathOf(url), status: reply.statusCode };
  log.debug({ ...facts, ms: Math.round(reply.elapsedTime) }, 'request');
}

export function pathOf(url: string): string {
  return url.split('?', 1)[0] ?? '';
}

/** The sender's traceparent, from headers or from the parameters of a WebSocket. */
export function traceparentIn(given: Readonly<Record<string, unknown>> | undefined): string | null {
  const value = given?.['traceparent'];
  return typeof value === 'string' ? value : null;
}
