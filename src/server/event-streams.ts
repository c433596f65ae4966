// Subscriptions over Server-Sent Events, for networks without WebSockets, by the protocol "GraphQL over SSE" of
// graphql-sse. Distinct connections: GET or POST with Accept: text/event-stream, one subscription per response;
// `runEvents` goes on after Last-Event-ID. A single connection: PUT reserves a stream and answers its token,
// GET opens it, POST adds a subscription to it, DELETE ends one. Called by http.

import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { GraphQLError } from 'graphql';
import type { Admissions, Admitted } from './admission.js';
import { httpStatusOf, requestError, type ErrorPresenter } from './errors.js';
import { EventStream } from './event-stream.js';
import type { Limits } from './limits.js';
import { readStreamRequest, type StreamRequest } from './stream-request.js';
import { BARE, namedBy, StreamSubscription, type Envelope } from './stream-subscription.js';
import { PreparedSubscription, type SubscriptionExecutor } from './subscription.js';

export interface StreamOptions {
  readonly admissions: Admissions;
  readonly executor: SubscriptionExecutor;
  readonly errors: ErrorPresenter;
  readonly limits: Limits;
  /** By what right a request was let in. */
  readonly rightOf: (request: FastifyRequest) => Admitted;
}

/** A single connection, from the reservation to the end of its stream. */
interface Reservation {
  readonly right: Admitted;
  readonly subscriptions: Map<string, StreamSubscription>;
  stream: EventStream | null;
}

const TOKEN_HEADER = 'x-graphql-event-stream-token';
/** How long a reserved stream may take to be opened. */
const RESERVED_MS = 30_000;

export class EventStreams {
  private readonly streams = new Set<EventStream>();
  private readonly reservations = new Map<string, Reservation>();
  private readonly reservedBy = new Map<string | null, number>();
  private readonly pulse: NodeJS.Timeout;

  constructor(private readonly options: StreamOptions) {
    const beat = (): void => this.streams.forEach((stream) => stream.beat());
    this.pulse = setInterval(beat, options.limits.pingMs);
  }

  get count(): number {
    return this.streams.size;
  }

  addTo(
    http: FastifyInstance,
    url: string,
    onRequest: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>,
  ): void {
    http.route({
      method: ['GET', 'POST'],
      url,
      onRequest,
      handler: (request, reply) => this.serve(request, reply),
    });
    this.addReservationsTo(http, url, onRequest);
  }

  /** What only a single connection asks for; the rest of it may come to an address that serves more. */
  addReservationsTo(
    http: FastifyInstance,
    url: string,
    onRequest: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>,
  ): void {
    const hooks = [onRequest, forgetTypeOfNoBody];
    http.route({
      method: 'PUT',
      url,
      onRequest: hooks,
      handler: (request, reply) => this.reserve(request, reply),
    });
    http.route({
      method: 'DELETE',
      url,
      onRequest: hooks,
      handler: (request, reply) => this.cancel(request, reply),
    });
  }

  /** Whether a request at the address of all GraphQL is meant for here. */
  wants(request: FastifyRequest): boolean {
    if (TOKEN_HEADER in request.headers) return true;
    const accept = request.headers.accept ?? '';
    if (!accept.includes('text/event-stream')) return false;
    // Some clients accept all that they understand, whatever they send.
    return !accept.includes('json') || this.options.executor.isSubscription(readStreamRequest(request));
  }

  async serve(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
    const reservation = this.reservationOf(request);
    if (reservation === 'unknown') return refuse(reply, 404, 'No such stream: reserve one with PUT.');
    if (reservation !== null) {
      return request.method === 'GET'
        ? this.openReserved(reservation, request, reply)
        : this.add(reservation, request, reply);
    }
    const wanted = readStreamRequest(request);
    const stream = this.open(request, reply);
    const subscription = this.subscribe(wanted, stream, BARE);
    if (subscription instanceof StreamSubscription) await subscription.run();
    else stream.refuse(subscription.map((error) => this.options.errors.present(error)));
    stream.end();
    return undefined;
  }

  /** Ends every stream without a word, so that clients come back to another server and resume. */
  close(): void {
    clearInterval(this.pulse);
    for (const stream of this.streams) stream.end();
  }

  private open(request: FastifyRequest, reply: FastifyReply): EventStream {
    const { admissions, limits, rightOf } = this.options;
    const stream = new EventStream(reply, rightOf(request), limits);
    this.streams.add(stream);
    admissions.watch(stream);
    stream.onEnd(() => {
      this.streams.delete(stream);
      admissions.forget(stream);
    });
    return stream;
  }

  private subscribe(
    wanted: StreamRequest,
    stream: EventStream,
    envelope: Envelope,
  ): StreamSubscription | readonly GraphQLError[] {
    const { admissions, executor, errors, limits } = this.options;
    if (stream.subscriptions >= limits.subscriptionsPerSocket) {
      const message = `This stream already carries ${stream.subscriptions} subscriptions; end some, or open another.`;
      return [requestError('RATE_LIMITED', message)];
    }
    const prepared = executor.prepare(wanted, () => stream.viewer);
    if (!(prepared instanceof PreparedSubscription)) return prepared;
    const place = admissions.takePlace(stream.viewer);
    if (!('leave' in place)) return [place];
    return new StreamSubscription(prepared, stream, envelope, errors, place);
  }

  // ------------------------------------------------------------------------------- a single connection

  private reserve(request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const right = this.options.rightOf(request);
    const { keyId } = right.viewer;
    const reserved = this.reservedBy.get(keyId) ?? 0;
    if (reserved >= this.options.limits.reservedStreamsPerKey) {
      throw requestError('RATE_LIMITED', `This key already has ${reserved} streams here; end some first.`);
    }
    this.reservedBy.set(keyId, reserved + 1);
    const token = randomUUID();
    const reservation = { right, subscriptions: new Map(), stream: null };
    this.reservations.set(token, reservation);
    setTimeout(() => {
      if (reservation.stream === null) this.release(token);
    }, RESERVED_MS).unref();
    return reply.code(201).type('text/plain').send(token);
  }

  private release(token: string): void {
    const { keyId } = this.reservations.get(token)!.right.viewer;
    this.reservations.delete(token);
    const left = this.reservedBy.get(keyId)! - 1;
    if (left > 0) this.reservedBy.set(keyId, left);
    else this.reservedBy.delete(keyId);
  }

  private reservationOf(request: FastifyRequest): Reservation | 'unknown' | null {
    const token = tokenOf(request);
    if (token === null) return null;
    const reservation = this.reservations.get(token);
    const { viewer } = this.options.rightOf(request);
    const isTheirs =
      reservation?.right.viewer.keyId === viewer.keyId &&
      reservation.right.viewer.tenantId === viewer.tenantId;
    return reservation && isTheirs ? reservation : 'unknown';
  }

  private openReserved(reservation: Reservation, request: FastifyRequest, reply: FastifyReply): unknown {
    if (reservation.stream !== null) return refuse(reply, 409, 'The stream is open already.');
    const stream = this.open(request, reply);
    reservation.stream = stream;
    stream.onEnd(() => this.release(tokenOf(request)!));
    return undefined;
  }

  private add(
    { stream, subscriptions }: Reservation,
    request: FastifyRequest,
    reply: FastifyReply,
  ): FastifyReply {
    const wanted = readStreamRequest(request);
    const { operationId } = wanted;
    if (stream === null) return refuse(reply, 409, 'Open the stream with GET first.');
    if (operationId === null) return refuse(reply, 400, 'extensions.operationId is missing.');
    if (subscriptions.has(operationId)) return refuse(reply, 409, 'The operationId is in use.');
    const subscription = this.subscribe(wanted, stream, namedBy(operationId));
    if (!(subscription instanceof StreamSubscription)) {
      const errors = subscription.map((error) => this.options.errors.present(error));
      return reply.code(httpStatusOf(errors[0]!)).send({ errors });
    }
    subscriptions.set(operationId, subscription);
    void subscription.run().then(() => subscriptions.delete(operationId));
    return reply.code(202).send();
  }

  private cancel(request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const reservation = this.reservationOf(request);
    if (reservation === null || reservation === 'unknown') return refuse(reply, 404, 'No such stream.');
    const { operationId } = request.query as { operationId?: unknown };
    reservation.subscriptions.get(String(operationId))?.cancel();
    return reply.code(200).send();
  }
}

/** Some clients name a type whether they send a body or not; JSON that is empty would be refused. */
async function forgetTypeOfNoBody({ headers }: FastifyRequest): Promise<void> {
  const isBodiless = headers['transfer-encoding'] === undefined && !Number(headers['content-length']);
  if (isBodiless) delete headers['content-type'];
}

function refuse(reply: FastifyReply, status: 400 | 404 | 409, message: string): FastifyReply {
  const code = status === 404 ? 'NOT_FOUND' : status === 409 ? 'CONFLICT' : 'BAD_USER_INPUT';
  return reply.code(status).send({ errors: [{ message, extensions: { code } }] });
}

function tokenOf({ headers, query }: FastifyRequest): string | null {
  const token = headers[TOKEN_HEADER] ?? (query as { token?: unknown }).token;
  return typeof token === 'string' ? token : null;
}
