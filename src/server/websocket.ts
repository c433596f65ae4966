// Subscriptions over graphql-ws (subprotocol graphql-transport-ws). Owns every open socket: its viewer, its
// liveness, its backlog and its end. A client that misbehaves loses its own socket and nothing else.
// Close codes: 1001 the server stops · 1008 asks for subscriptions past the limit, on and on · 1009 a frame too
// big · 1013 authentication cannot be decided now · 4400 not a message of the protocol · 4401 no valid key, or
// no longer · 4403 the key may not connect · 4406 wrong subprotocol · 4408 no connection_init in time · 4409 id
// in use · 4413 the client does not read · 4429 a second connection_init · 4500 our fault. Called by http.

import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import {
  GRAPHQL_TRANSPORT_WS_PROTOCOL,
  makeServer,
  type Context as ConnectionContext,
  type Server as ProtocolServer,
  type SubscribePayload,
} from 'graphql-ws';
import type { GraphQLError, GraphQLSchema } from 'graphql';
import type { Logger } from 'pino';
import { WebSocketServer, type WebSocket } from 'ws';
import type { Admissions } from './admission.js';
import { credentialsFromConnection } from './auth.js';
import { requestError, type ErrorPresenter } from './errors.js';
import { ClientSocket } from './client-socket.js';
import type { Limits } from './limits.js';
import type { SocketUse } from './metrics.js';
import { SocketSubscription } from './socket-subscription.js';
import { PreparedSubscription, type SubscriptionExecutor } from './subscription.js';

export interface SocketOptions {
  readonly schema: GraphQLSchema;
  readonly admissions: Admissions;
  readonly executor: SubscriptionExecutor;
  readonly errors: ErrorPresenter;
  readonly limits: Limits;
  readonly log: Logger;
}

/** How many times the limit of a socket may be refused on it. */
const REFUSALS_PER_PLACE = 10;

/** What graphql-ws keeps for us beside each connection. */
interface Extra {
  readonly client: ClientSocket;
}

type Connection = ConnectionContext<Record<string, unknown> | undefined, Extra>;

export class SubscriptionSockets {
  private readonly sockets: WebSocketServer;
  private readonly protocol: ProtocolServer<Extra>;
  private readonly clients = new Set<ClientSocket>();
  private readonly pulse: NodeJS.Timeout;

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
  }

  get use(): SocketUse {
    const { admissions, executor } = this.options;
    return {
      sockets: this.clients.size,
      subscriptions: admissions.places,
      deliveries: executor.deliveries,
    };
  }

  /** Takes over a connection that asks to be a WebSocket at our path. */
  accept(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.sockets.handleUpgrade(request, socket, head, (webSocket) => this.open(webSocket, socket, request));
  }

  /** Tells every client to go elsewhere, and waits until all are gone. */
  async close(): Promise<void> {
    clearInterval(this.pulse);
    for (const client of this.clients) client.sendAway();
    await new Promise<void>((resolve) => this.sockets.close(() => resolve()));
  }

  private open(webSocket: WebSocket, stream: Duplex, request: IncomingMessage): void {
    const { admissions, limits, log } = this.options;
    const caller = { remoteAddress: request.socket.remoteAddress, headers: request.headers };
    let closed: ReturnType<ProtocolServer<Extra>['opened']> | null = null;
    const end = (code: number, reason: string): void => {
      closed?.(code, reason).catch((err: unknown) => log.error({ err }, 'a subscription did not end well'));
    };
    const client = new ClientSocket(webSocket, stream, caller, limits, log, end);
    this.clients.add(client);
    closed = this.protocol.opened(client, { client });
    webSocket.once('close', (code, reason) => {
      this.clients.delete(client);
      admissions.forget(client);
      end(code, String(reason));
    });
  }

  private createProtocol(): ProtocolServer<Extra> {
    const { errors, limits } = this.options;
    return makeServer<Record<string, unknown> | undefined, Extra>({
      connectionInitWaitTimeout: limits.connectionInitMs,
      onConnect: (connection) => this.connect(connection),
      onSubscribe: (connection, id, payload) => this.prepare(connection, id, payload),
      subscribe: (args) => (args as SocketSubscription).start(),
      // Only a subscription that did not start comes this way; events are sent by SocketSubscription.
      onNext: (_connection, _id, _payload, _args, { errors: failures = [] }) => ({
        errors: failures.map((error) => errors.present(error)),
      }),
      onError: (_connection, _id, _payload, failures) => failures.map((error) => errors.present(error)),
    });
  }

  private async connect({ extra: { client }, connectionParams }: Connection): Promise<boolean> {
    try {
      await this.options.admissions.admit(client, credentialsFromConnection(client.caller, connectionParams));
      return true;
    } catch (error) {
      client.expel(this.options.errors.present(error));
      return false;
    }
  }

  private prepare(
    { extra: { client } }: Connection,
    id: string,
    payload: SubscribePayload,
  ): SocketSubscription | GraphQLError[] {
    const { schema, admissions, executor, limits } = this.options;
    if (client.subscriptions >= limits.subscriptionsPerSocket) return [this.refuse(client)];
    const prepared = executor.prepare(payload, () => client.viewer);
    if (!(prepared instanceof PreparedSubscription)) return [...prepared];
    const place = admissions.takePlace(client.viewer);
    if (!('leave' in place)) return [place];
    client.subscriptions += 1;
    return new SocketSubscription(schema, prepared, client, id, () => {
      client.subscriptions -= 1;
      place.leave();
    });
  }

  /** One subscription too many is answered; whoever takes no notice is sent away. */
  private refuse(client: ClientSocket): GraphQLError {
    client.refusals += 1;
    const maximum = this.options.limits.subscriptionsPerSocket;
    if (client.refusals > maximum * REFUSALS_PER_PLACE) {
      client.close(1008, `No more than ${maximum} subscriptions per socket`);
    }
    return requestError(
      'RATE_LIMITED',
      `This socket already carries ${maximum} subscriptions; complete some, or open another socket.`,
    );
  }
}
