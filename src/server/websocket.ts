// Subscriptions over graphql-ws (subprotocol graphql-transport-ws). Owns every open socket: its viewer, its
// liveness, its backlog and its end. A client that misbehaves loses its own socket and nothing else.
// Close codes: 1001 the server stops · 1009 a frame too big · 1013 authentication cannot be decided now ·
// 4400 not a message of the protocol · 4401 no valid key · 4403 the key may not connect · 4406 wrong
// subprotocol · 4408 no connection_init in time · 4409 id in use · 4413 the client does not read · 4429 a
// second connection_init · 4500 our fault. Called by http.

import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import {
  GRAPHQL_TRANSPORT_WS_PROTOCOL,
  makeServer,
  type Context as ConnectionContext,
  type Server as ProtocolServer,
  type SubscribePayload,
} from 'graphql-ws';
import type { GraphQLError } from 'graphql';
import type { Logger } from 'pino';
import { WebSocketServer, type WebSocket } from 'ws';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { credentialsFromConnection, type Credentials } from './auth.js';
import { requestError, type ErrorPresenter } from './errors.js';
import { ClientSocket } from './client-socket.js';
import type { Limits } from './limits.js';
import type { SocketUse } from './metrics.js';
import { PreparedSubscription, type SubscriptionExecutor } from './subscription.js';

export interface SocketOptions {
  readonly authenticate: (credentials: Credentials) => Promise<Viewer>;
  readonly executor: SubscriptionExecutor;
  readonly errors: ErrorPresenter;
  readonly limits: Limits;
  readonly log: Logger;
}

/** What graphql-ws keeps for us beside each connection. */
interface Extra {
  readonly client: ClientSocket;
}

type Connection = ConnectionContext<Record<string, unknown> | undefined, Extra>;

const CLOSE_CODES: Readonly<Record<string, number>> = {
  UNAUTHENTICATED: 4401,
  FORBIDDEN: 4403,
  RATE_LIMITED: 1013,
  UNAVAILABLE: 1013,
};

export class SubscriptionSockets {
  private readonly sockets: WebSocketServer;
  private readonly protocol: ProtocolServer<Extra>;
  private readonly clients = new Set<ClientSocket>();
  /** Those that have been admitted. */
  private readonly connections = new Map<ClientSocket, Connection>();
  private deliveries = 0;
  private readonly pulse: NodeJS.Timeout;
  private readonly recheck: NodeJS.Timeout;

  constructor(private readonly options: SocketOptions) {
    const { limits } = options;
    this.sockets = new WebSocketServer({
      noServer: true,
      maxPayload: limits.socketMessageBytes,
      // A client that offers only other subprotocols is let in, so that it can be told 4406.
      handleProtocols: (offered) =>
        offered.has(GRAPHQL_TRANSPORT_WS_PROTOCOL)
          ? GRAPHQL_TRANSPORT_WS_PROTOCOL
          : ([...offered][0] ?? false),
    });
    this.protocol = this.createProtocol();
    this.pulse = setInterval(() => this.clients.forEach((client) => client.beat()), limits.pingMs);
    this.recheck = setInterval(() => this.reauthenticateAll(), limits.reauthenticateMs);
  }

  get use(): SocketUse {
    const { connections, deliveries } = this;
    const counts = [...connections.values()].map(({ subscriptions }) => Object.keys(subscriptions).length);
    return { sockets: this.clients.size, subscriptions: counts.reduce((a, b) => a + b, 0), deliveries };
  }

  /** Takes over a connection that asks to be a WebSocket at our path. */
  accept(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.sockets.handleUpgrade(request, socket, head, (webSocket) => this.open(webSocket, request));
  }

  /** Tells every client to go elsewhere, and waits until all are gone. */
  async close(): Promise<void> {
    clearInterval(this.pulse);
    clearInterval(this.recheck);
    for (const client of this.clients) client.close(1001, 'Going away');
    await new Promise<void>((resolve) => this.sockets.close(() => resolve()));
  }

  private open(webSocket: WebSocket, request: IncomingMessage): void {
    const { limits, log } = this.options;
    const caller = { remoteAddress: request.socket.remoteAddress, headers: request.headers };
    const client = new ClientSocket(webSocket, caller, limits.socketBufferBytes, log);
    this.clients.add(client);
    const closed = this.protocol.opened(client, { client });
    webSocket.once('close', (code, reason) => {
      this.clients.delete(client);
      this.connections.delete(client);
      closed(code, String(reason)).catch((err: unknown) =>
        log.error({ err }, 'a subscription did not end well'),
      );
    });
  }

  private createProtocol(): ProtocolServer<Extra> {
    const { errors, limits } = this.options;
    return makeServer<Record<string, unknown> | undefined, Extra>({
      connectionInitWaitTimeout: limits.connectionInitMs,
      onConnect: (connection) => this.connect(connection),
      onSubscribe: (connection, _id, payload) => this.prepare(connection, payload),
      subscribe: (args) => (args as PreparedSubscription).start(),
      onNext: (_connection, _id, _payload, _args, { data, errors: failures }) => {
        this.deliveries += 1;
        if (!failures) return undefined;
        const shown = failures.map((error) => errors.present(error));
        return data === undefined ? { errors: shown } : { data, errors: shown };
      },
      onError: (_connection, _id, _payload, failures) => failures.map((error) => errors.present(error)),
    });
  }

  private prepare(connection: Connection, payload: SubscribePayload): PreparedSubscription | GraphQLError[] {
    const crowded = this.refuseCrowd(connection);
    if (crowded) return [crowded];
    const prepared = this.options.executor.prepare(payload, () => connection.extra.client.viewer);
    return prepared instanceof PreparedSubscription ? prepared : [...prepared];
  }

  private async connect(connection: Connection): Promise<boolean> {
    const { connectionParams } = connection;
    const { client } = connection.extra;
    try {
      const credentials = credentialsFromConnection(client.caller, connectionParams);
      client.admit(credentials, await this.options.authenticate(credentials));
      // The client may have left meanwhile.
      if (this.clients.has(client)) this.connections.set(client, connection);
      return true;
    } catch (error) {
      this.reject(client, error);
      return false;
    }
  }

  private reject(client: ClientSocket, error: unknown): void {
    const shown = this.options.errors.present(error);
    client.close(CLOSE_CODES[String(shown.extensions?.['code'])] ?? 4500, shown.message);
  }

  private reauthenticateAll(): void {
    for (const client of this.clients) void this.reauthenticate(client);
  }

  /** A key may be revoked while its socket is open; a database that is away revokes nothing. */
  private async reauthenticate(client: ClientSocket): Promise<void> {
    const { credentials } = client;
    if (credentials === null) return;
    try {
      client.admit(credentials, await this.options.authenticate(credentials));
    } catch (error) {
      if (error instanceof AppError && (error.code === 'UNAUTHENTICATED' || error.code === 'FORBIDDEN')) {
        this.reject(client, error);
      } else {
        this.options.log.warn({ err: error }, 'a socket could not be authenticated again; it stays open');
      }
    }
  }

  private refuseCrowd(connection: Connection): GraphQLError | null {
    const maximum = this.options.limits.subscriptionsPerSocket;
    // The one that asks is already counted.
    if (Object.keys(connection.subscriptions).length <= maximum) return null;
    return requestError(
      'RATE_LIMITED',
      `This socket already carries ${maximum} subscriptions; complete some, or open another socket.`,
    );
  }
}
