// Refusals of an HTTP request, in the shape of GraphQL errors and with the status that fits. Called by http.

import type { FastifyReply } from 'fastify';
import type { GraphQLFormattedError } from 'graphql';
import { AppError } from '../errors.js';
import { httpStatusOf, type ErrorPresenter } from './errors.js';

export class ErrorReplies {
  constructor(
    private readonly errors: ErrorPresenter,
    private readonly bodyBytes: number,
  ) {}

  send(reply: FastifyReply, error: unknown): FastifyReply {
    const { status, shown } = this.describe(error, reply.request.id);
    if (status === 401) void reply.header('www-authenticate', 'Bearer');
    // Fastify hangs up on a body that is too large; a client that is still sending would then see a
    // broken connection instead of this answer. Node reads and drops the rest.
    if (status === 413) reply.removeHeader('connection');
    return reply
      .code(status)
      .type('application/json; charset=utf-8')
      .send({ errors: [shown] });
  }

  private describe(error: unknown, correlationId: string): { status: number; shown: GraphQLFormattedError } {
    const { statusCode, code } = error as { statusCode?: number; code?: string };
    if (error instanceof AppError || statusCode === undefined || statusCode >= 500) {
      const shown = this.errors.present(error, correlationId);
      return { status: httpStatusOf(shown), shown };
    }
    const message = this.explain(statusCode, code, (error as Error).message);
    return { status: statusCode, shown: { message, extensions: { code: 'BAD_USER_INPUT' } } };
  }

  private explain(status: number, code: string | undefined, message: string): string {
    if (status === 413) return `The request body is larger than ${this.bodyBytes} bytes.`;
    if (status === 415) return 'The request body must be JSON, sent with Content-Type: application/json.';
    return code === 'FST_ERR_CTP_INVALID_JSON_BODY' ? 'The request body is not valid JSON.' : message;
  }
}
