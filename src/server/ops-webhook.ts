// POST /hooks/ops: queues an ops run for whoever can sign the body with the shared secret, as GitHub does in
// X-Hub-Signature-256. Only the body is signed, so only the body decides what is a replay: the same body is
// the same run, whatever the headers say. Called by http.

import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '../errors.js';
import { inRequestSpan } from './request-trace.js';
import { readWebhook, type WantedRun } from '../domain/ops-webhook.js';

export interface OpsWebhookOptions {
  /** Null turns it off. */
  readonly secret: string | null;
  /** Answers the run, new or queued before under the same key. */
  readonly queue: (
    run: WantedRun & { readonly idempotencyKey: string },
  ) => Promise<{ readonly id: string; readonly status: string }>;
}

const WEBHOOK_PATH = '/hooks/ops';

const SIGNATURE = /^sha256=([0-9a-f]{64})$/;
const FORM = 'application/x-www-form-urlencoded';

export class OpsWebhook {
  constructor(private readonly options: OpsWebhookOptions) {}

  /** Adds the route in a scope of its own: here bodies are kept as they came, to be checked before they are read. */
  addTo(http: FastifyInstance, admit: (reply: FastifyReply) => void): void {
    void http.register(async (scope) => {
      scope.removeAllContentTypeParsers();
      scope.addContentTypeParser(['application/json', FORM], { parseAs: 'buffer' }, (_request, body, done) =>
        done(null, body),
      );
      scope.post(WEBHOOK_PATH, {
        onRequest: async (request, reply) => {
          if (this.options.secret === null) return this.sayOff(reply);
          admit(reply);
          requireSignature(request);
          return undefined;
        },
        handler: (request, reply) => inRequestSpan(request, reply, () => this.receive(request, reply)),
      });
    });
  }

  private sayOff(reply: FastifyReply): FastifyReply {
    const message = 'Webhooks are off: set RUNLEDGER_WEBHOOK_SECRET to turn them on.';
    return reply.code(404).send({ errors: [{ message, extensions: { code: 'NOT_FOUND' } }] });
  }

  private async receive(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
    this.verify(requireSignature(request), body);
    const query = request.query as Partial<Record<string, string | string[]>>;
    const reading = readWebhook({
      githubEvent: headerOf(request, 'x-github-event'),
      body: parse(body, request.headers['content-type'] ?? ''),
      project: one(query['project']),
      env: one(query['env']),
      ref: one(query['ref']),
    });
    if (reading.kind === 'fault') throw new AppError('BAD_USER_INPUT', reading.fault);
    if (reading.kind === 'ignored') return reply.code(200).send({ queued: false, reason: reading.reason });
    const key = reading.run.idempotencyKey ?? createHash('sha256').update(body).digest('hex');
    const run = await this.options.queue({ ...reading.run, idempotencyKey: `webhook:${key}` });
    return reply.code(202).send({ queued: true, runId: run.id, status: run.status.toUpperCase() });
  }

  private verify(signature: Buffer, body: Buffer): void {
    const expected = createHmac('sha256', this.options.secret!).update(body).digest();
    if (!timingSafeEqual(signature, expected)) throw unsigned('The signature does not fit the body.');
  }
}

function requireSignature(request: FastifyRequest): Buffer {
  const hex = SIGNATURE.exec(headerOf(request, 'x-hub-signature-256') ?? '')?.[1];
  if (hex === undefined) throw unsigned('X-Hub-Signature-256 must read "sha256=" and the HMAC of the body.');
  return Buffer.from(hex, 'hex');
}

function unsigned(message: string): AppError {
  return new AppError('UNAUTHENTICATED', message);
}

/** GitHub sends JSON, or the same as the field `payload` of a form, as the hook is set. */
function parse(body: Buffer, contentType: string): unknown {
  const text = body.toString('utf8');
  const json = contentType.startsWith(FORM) ? (new URLSearchParams(text).get('payload') ?? '') : text;
  try {
    return JSON.parse(json);
  } catch {
    throw new AppError('BAD_USER_INPUT', 'The body is not valid JSON.');
  }
}

function headerOf(request: FastifyRequest, name: string): string | null {
  return one(request.headers[name]);
}

function one(value: string | string[] | undefined): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}
