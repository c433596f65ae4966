// Subscriptions over graphql-ws (subprotocol graphql-transport-ws). Owns every open socket: its viewer, its
// liveness, its backlog and its end. A client that misbehaves loses its own socket and nothing else.
// Close codes: 1001 the server stops · 1008 asks for what is refused, on and on · 1009 a frame too
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
  type WebSocket as ProtocolPeer,
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
import { OperationIds, ProtocolFault } from './operation-ids.js';
import { correlationIdOf, traceparentIn } from './request-trace.js';
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

/** How many subscriptions a socket may be refused, for each that it may have, between two pings. */
const REFUSALS_PER_PLACE = 10;

/** What graphql-ws keeps for us beside each connection. */
interface Extra {
  readonly client: ClientSocket;
  readonly ids: OperationIds;
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
      executions: executor.executions,
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
    const { admissions, limits } = this.options;
    const log = this.options.log.child({ correlationId: correlationIdOf(request) });
    const caller = { remoteAddress: request.socket.remoteAddress, headers: request.headers };
    let closed: ReturnType<ProtocolServer<Extra>['opened']> | null = null;
    const end = (code: number, reason: string): void => {
      closed?.(code, reason).catch((err: unknown) => log.error({ err }, 'a subscription did not end well'));
    };
    const client = new ClientSocket(webSocket, stream, caller, limits, log, end);
    this.clients.add(client);
    const ids = new OperationIds();
    closed = this.protocol.opened(peerOf(client, ids), { client, ids });
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
      onSubscribe: (connection, number, payload) => this.prepare(connection, number, payload),
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
    { extra: { client, ids }, connectionParams }: Connection,
    number: string,
    payload: SubscribePayload,
  ): SocketSubscription | GraphQLError[] {
    const { schema, admissions, executor, limits } = this.options;
    if (client.subscriptions >= limits.subscriptionsPerSocket) return this.refuseOneMore(client);
    const prepared = executor.prepare(payload, () => client.viewer);
    if (!(prepared instanceof PreparedSubscription)) return this.refuse(client, prepared);
    const place = admissions.takePlace(client.viewer);
    if (!('leave' in place)) return this.refuse(client, [place]);
    client.subscriptions += 1;
    const traceparent = traceparentIn(connectionParams) ?? traceparentIn(client.caller.headers);
    const request = { client, id: ids.idOf(number), traceparent };
    return new SocketSubscription(schema, prepared, request, () => {
      client.subscriptions -= 1;
      place.leave();
    });
  }

  private refuseOneMore(client: ClientSocket): GraphQLError[] {
    const maximum = this.options.limits.subscriptionsPerSocket;
    const error = requestError(
      'RATE_LIMITED',
      `This socket already carries ${maximum} subscriptions; complete some, or open another socket.`,
    );
    return this.refuse(client, [error], `No more than ${maximum} subscriptions per socket`);
  }

  /** One subscription that cannot be is answered; whoever takes no notice, on and on, is sent away. */
  private refuse(
    client: ClientSocket,
    errors: readonly GraphQLError[],
    reason = 'Too many subscriptions were refused',
  ): GraphQLError[] {
    const most = this.options.limits.subscriptionsPerSocket * REFUSALS_PER_PLACE;
    if (client.countRefusal() > most) client.close(1008, reason);
    return [...errors];
  }
}

/** The client as graphql-ws sees it. */
function peerOf(client: ClientSocket, ids: OperationIds): ProtocolPeer {
  return {
    protocol: client.protocol,
    send: (data) => {
      const text = ids.translateOut(data);
      return text === null ? undefined : client.answer(text);
    },
    close: (code = 1000, reason = '') => client.close(code, reason),
    onMessage: (handle) => client.onMessage((data) => passOn(data, handle)),
  };

  async function passOn(data: string, handle: (data: string) => Promise<void>): Promise<void> {
    try {
      const text = ids.translateIn(data);
      if (text !== null) await handle(text);
    } catch (error) {
      if (!(error instanceof ProtocolFault)) throw error;
      client.close(error.closeCode, error.message);
    }
  }
}
