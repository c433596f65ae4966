// The one port of Runledger: GraphQL over HTTP, WebSocket and SSE at /graphql, its landing page, /healthz, /readyz,
// /metrics and files. Invariants: nobody's body is read before they are known; every refusal is a GraphQL-shaped
// error; stop() lets requests in flight finish, within a bound, and leaves no handle open. Called by app.

import type { AddressInfo } from 'node:net';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { ApolloServer } from '@apollo/server';
import { fastifyApolloHandler } from '@as-integrations/fastify';
import Fastify, {
  LogController,
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type RouteHandlerMethod,
} from 'fastify';
import type { GraphQLSchema } from 'graphql';
import type { Logger } from 'pino';
import { isAllowed, OPERATING_TENANT, type Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { Admissions, type Admitted } from './admission.js';
import { createApollo } from './apollo.js';
import { credentialsFromRequest, type Credentials } from './auth.js';
import { addDownload, type Download } from './download.js';
import { ErrorPresenter } from './errors.js';
import { ErrorReplies } from './error-replies.js';
import { EventStreams } from './event-streams.js';
import { Health, type Readiness } from './health.js';
import { InFlight } from './in-flight.js';
import { renderLandingPage } from './landing-page.js';
import { DEFAULT_LIMITS, type Limits } from './limits.js';
import { OpsWebhook, type OpsWebhookOptions } from './ops-webhook.js';
import { Metrics } from './metrics.js';
import { CORRELATION_HEADER, correlationIdOf, inRequestSpan, logResponse, pathOf } from './request-trace.js';
import { SubscriptionExecutor } from './subscription.js';
import { SubscriptionSockets } from './websocket.js';

export interface ServerOptions {
  readonly schema: GraphQLSchema;
  /** False leaves only the health routes: for a process that runs work. */
  readonly serveGraphql?: boolean;
  /** The viewer these credentials belong to; refuses by an AppError (UNAUTHENTICATED, UNAVAILABLE). */
  readonly authenticate: (credentials: Credentials) => Promise<Viewer>;
  /** The context value of one operation, or of one event of a subscription. */
  readonly createContext: (viewer: Viewer, correlationId?: string) => object | Promise<object>;
  readonly isReady: () => Promise<Readiness>;
  /** Served at /hooks/ops, beside GraphQL. */
  readonly webhook?: OpsWebhookOptions;
  /** Files that may be fetched beside it. */
  readonly downloads?: readonly Download[];
  /** Shown at /metrics. */
  readonly metrics?: Metrics;
  readonly log: Logger;
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
  readonly limits?: Partial<Limits>;
}

const PATH = '/graphql';
const STREAM_PATH = `${PATH}/stream`;
/** A whole request must have arrived in this time, or a slow sender could hold its connection for ever. */
const REQUEST_TIMEOUT_MS = 60_000;

const SECURITY_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  'cross-origin-resource-policy': 'same-origin',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
} as const;

export class GraphqlServer {
  private readonly http: FastifyInstance;
  private readonly apollo: ApolloServer<object>;
  private readonly admissions: Admissions;
  private readonly sockets: SubscriptionSockets;
  private readonly streams: EventStreams;
  private readonly errors: ErrorPresenter;
  private readonly health: Health;
  private readonly limits: Limits;
  private readonly rights = new WeakMap<FastifyRequest, Admitted>();
  private readonly inFlight = new InFlight();
  private stopping: Promise<void> | null = null;

  static async start(options: ServerOptions): Promise<GraphqlServer> {
    const server = new GraphqlServer(options);
    await server.listen();
    return server;
  }

  private constructor(private readonly options: ServerOptions) {
    const { schema, log, authenticate, createContext } = options;
    this.limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.errors = new ErrorPresenter(log);
    this.health = new Health(options.isReady, log);
    const { errors, limits } = this;
    this.apollo = createApollo<object>({ schema, limits, errors, log });
    const executor = new SubscriptionExecutor({ schema, limits, errors, createContext });
    this.admissions = new Admissions({ authenticate, limits, errors, log });
    const live = { admissions: this.admissions, executor, errors, limits };
    this.sockets = new SubscriptionSockets({ ...live, schema, log });
    this.streams = new EventStreams({ ...live, rightOf: (request) => this.rightOf(request) });
    this.http = this.createHttp();
  }

  get port(): number {
    return (this.http.server.address() as AddressInfo).port;
  }

  /** The GraphQL endpoint, as a client on this machine would write it. */
  get url(): string {
    const { host } = this.options;
    const name = host === '0.0.0.0' || host === '::' ? 'localhost' : host.includes(':') ? `[${host}]` : host;
    return `http://${name}:${this.port}${PATH}`;
  }

  private get servesGraphql(): boolean {
    return this.options.serveGraphql ?? true;
  }

  /** A key was revoked, or given another role: its live connections are asked for it again. Null: any key. */
  keyChanged(keyId: string | null): Promise<void> {
    return this.admissions.keyChanged(keyId);
  }

  /** Refuses new work, closes the sockets, lets requests in flight finish, then closes the port. */
  stop(): Promise<void> {
    this.stopping ??= this.drain();
    return this.stopping;
  }

  private async listen(): Promise<void> {
    await this.apollo.start();
    this.addRoutes(
      fastifyApolloHandler(this.apollo, {
        context: async (request) => this.options.createContext(this.rightOf(request).viewer, request.id),
      }),
    );
    this.http.server.on('upgrade', (request, socket, head) => this.upgrade(request, socket, head));
    try {
      await this.http.listen({ host: this.options.host, port: this.options.port });
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  private async drain(): Promise<void> {
    this.health.startDraining();
    this.admissions.stop();
    this.streams.close();
    await this.sockets.close();
    await this.inFlight.settled(this.limits.drainMs);
    // Whoever is still here has had their time; close() waits for connections that are not idle.
    this.http.server.closeAllConnections();
    await this.http.close();
    await this.apollo.stop();
  }

  private createHttp(): FastifyInstance {
    const { log } = this.options;
    const http = Fastify({
      loggerInstance: log as FastifyBaseLogger,
      logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'correlationId' }),
      bodyLimit: this.limits.bodyBytes,
      requestTimeout: REQUEST_TIMEOUT_MS,
      genReqId: correlationIdOf,
      // We answer in our own shape while we drain.
      return503OnClosing: false,
    });
    // Anything but JSON is refused: forms and plain text are what a foreign page can send unasked.
    http.removeContentTypeParser('text/plain');
    http.addHook('onRequest', async ({ id }, reply) => {
      void reply.headers(SECURITY_HEADERS).header(CORRELATION_HEADER, id);
    });
    http.addHook('onResponse', async (request, reply) => logResponse(log, request, reply));
    const replies = new ErrorReplies(this.errors, this.limits.bodyBytes);
    http.setErrorHandler((error, _request, reply) => replies.send(reply, error));
    http.setNotFoundHandler((request, reply) => {
      const message = `There is nothing at ${request.method} ${pathOf(request.url)}; GraphQL is at ${PATH}.`;
      return reply.code(404).send({ errors: [{ message, extensions: { code: 'NOT_FOUND' } }] });
    });
    return http;
  }

  private addRoutes(runGraphql: RouteHandlerMethod): void {
    this.http.get('/healthz', (_request, reply) => reply.send({ status: 'live' }));
    this.http.get('/readyz', async (_request, reply) => {
      const readiness = await this.health.check();
      return reply.code(readiness.ready ? 200 : 503).send(readiness);
    });
    if (this.options.metrics) this.addMetricsRoute(this.options.metrics);
    if (!this.servesGraphql) return;
    this.addGraphqlRoutes(runGraphql);
    for (const download of this.options.downloads ?? []) {
      addDownload(this.http, download, (request, reply) => this.identify(request, reply));
    }
  }

  private addGraphqlRoutes(runGraphql: RouteHandlerMethod): void {
    const { streams } = this;
    this.http.get('/', (_request, reply) => reply.redirect(PATH));
    // A preflight gets an answer, and no permission.
    this.http.options(PATH, (_request, reply) =>
      reply.code(204).header('allow', 'GET, POST, PUT, DELETE, OPTIONS').send(),
    );
    this.http.route({
      method: ['GET', 'POST'],
      url: PATH,
      onRequest: (request, reply) => this.admit(request, reply),
      handler(request, reply) {
        if (streams.wants(request)) return streams.serve(request, reply);
        return inRequestSpan(request, reply, async () => runGraphql.call(this, request, reply));
      },
    });
    const identify = (request: FastifyRequest, reply: FastifyReply): Promise<Viewer> =>
      this.identify(request, reply);
    streams.addReservationsTo(this.http, PATH, identify);
    streams.addTo(this.http, STREAM_PATH, identify);
    const { webhook } = this.options;
    if (webhook) new OpsWebhook(webhook).addTo(this.http, (reply) => this.enter(reply));
  }

  private addMetricsRoute(metrics: Metrics): void {
    this.http.get('/metrics', async (request, reply) => {
      await this.admitToMetrics(request);
      return reply.type(Metrics.contentType).send(await metrics.render(this.sockets.use));
    });
  }

  private async admit(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
    if (request.method === 'GET' && request.headers.accept?.includes('text/html') === true) {
      const { html, contentSecurityPolicy } = renderLandingPage(PATH);
      void reply.headers({ 'content-security-policy': contentSecurityPolicy, 'cache-control': 'no-store' });
      return reply.type('text/html; charset=utf-8').send(html);
    }
    return this.identify(request, reply);
  }

  private async identify(request: FastifyRequest, reply: FastifyReply): Promise<Viewer> {
    this.enter(reply);
    const caller = { remoteAddress: request.socket.remoteAddress, headers: request.headers };
    const credentials = credentialsFromRequest(caller);
    const right = await this.admissions.identify(credentials);
    this.rights.set(request, right);
    return right.viewer;
  }

  /** Refuses new work while the server drains; what is let in is waited for. */
  private enter(reply: FastifyReply): void {
    if (this.health.draining) {
      void reply.header('connection', 'close');
      throw new AppError('UNAVAILABLE', 'The server is stopping; send the request again.');
    }
    this.inFlight.track(reply);
  }

  /**
   * The metrics are of all tenants: only for callers on this machine and for readers of the tenant that
   * operates the server.
   */
  private async admitToMetrics({ socket, headers }: FastifyRequest): Promise<void> {
    const credentials = credentialsFromRequest({ remoteAddress: socket.remoteAddress, headers });
    if (credentials.token === null && credentials.local) return;
    const viewer = await this.options.authenticate(credentials);
    if (viewer.tenantId === OPERATING_TENANT && isAllowed(viewer.role, 'READ')) return;
    throw new AppError('FORBIDDEN', `Metrics are for keys of the tenant ${OPERATING_TENANT} that may read.`);
  }

  private rightOf(request: FastifyRequest): Admitted {
    const right = this.rights.get(request);
    if (!right) throw new AppError('UNAUTHENTICATED', 'This request has not been admitted.');
    return right;
  }

  private upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    if (this.health.draining) return refuseUpgrade(socket, '503 Service Unavailable');
    if (!this.servesGraphql || pathOf(request.url ?? '') !== PATH)
      return refuseUpgrade(socket, '404 Not Found');
    this.sockets.accept(request, socket, head);
  }
}

function refuseUpgrade(socket: Duplex, status: string): void {
  socket.on('error', () => socket.destroy());
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, () => socket.destroy());
}
