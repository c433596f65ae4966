// The servers that are compared. All of them hear of an event in the same way, by our own feed; they differ in
// how it gets from there to the clients.

import { EventEmitter, on, once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import Fastify from 'fastify';
import { buildSchema } from 'graphql';
import { useServer } from 'graphql-ws/use/ws';
import mercurius from 'mercurius';
import type { Logger } from 'pino';
import { WebSocket, WebSocketServer } from 'ws';
import { App } from '../../src/app.js';
import { loadConfig } from '../../src/config.js';
import { RunFeed } from '../../src/events/feed.js';
import { BellListener } from '../../src/events/listener.js';
import { Database } from '../../src/store/db.js';
import type { RunEventRow } from '../../src/store/ledger.js';
import { API_KEY, SDL, type Contender, type ServerTask } from './protocol.js';

/** Starts the server and answers its port. */
type Start = (task: ServerTask, log: Logger) => Promise<number>;

/** The limit: one ready string, to every socket, by nothing but ws. */
const startRaw: Start = async (task, log) => {
  const sockets = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(sockets, 'listening');
  await follow(task, log, (row) => {
    const text = frameOf(row);
    for (const socket of sockets.clients) if (socket.readyState === WebSocket.OPEN) socket.send(text);
  });
  return (sockets.address() as AddressInfo).port;
};

/** The same, with all events of one turn of the event loop in one write per socket: as cheap as it gets. */
const startRawJoined: Start = async (task, log) => {
  const sockets = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(sockets, 'listening');
  let texts: string[] = [];
  const flush = (): void => {
    for (const socket of sockets.clients) {
      if (socket.readyState !== WebSocket.OPEN) continue;
      const { _socket: stream } = socket as unknown as { readonly _socket: Duplex };
      stream.cork();
      for (const text of texts) socket.send(text);
      stream.uncork();
    }
    texts = [];
  };
  await follow(task, log, (row) => {
    if (texts.length === 0) setImmediate(flush);
    texts.push(frameOf(row));
  });
  return (sockets.address() as AddressInfo).port;
};

/** graphql-ws as its documentation shows it: an async iterator for each client. */
const startGraphqlWs: Start = async (task, log) => {
  const events = new EventEmitter().setMaxListeners(0);
  const schema = buildSchema(SDL);
  const field = schema.getSubscriptionType()!.getFields()['runEvents']!;
  field.subscribe = async function* () {
    for await (const [row] of on(events, 'event')) yield { runEvents: show(row as RunEventRow) };
  };
  const http = createServer();
  useServer({ schema }, new WebSocketServer({ server: http, path: '/graphql' }));
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  await follow(task, log, (row) => void events.emit('event', row));
  return (http.address() as AddressInfo).port;
};

const startMercurius: Start = async (task, log) => {
  const app = Fastify();
  const subscribe = (_root: unknown, _args: unknown, context: mercurius.MercuriusContext) =>
    context.pubsub.subscribe('event');
  await app.register(mercurius, {
    schema: SDL,
    resolvers: { Subscription: { runEvents: { subscribe } } },
    subscription: true,
  });
  await app.listen({ port: 0, host: '127.0.0.1' });
  await follow(task, log, (row) => {
    void app.graphql.pubsub.publish({ topic: 'event', payload: { runEvents: show(row) } });
  });
  return (app.server.address() as AddressInfo).port;
};

/** Runledger as it is started in earnest, nothing left out. */
const startRunledger: Start = async ({ databaseUrl }, log) => {
  const config = loadConfig({
    DATABASE_URL: databaseUrl,
    PORT: '0',
    RUNLEDGER_ROLE: 'api',
    RUNLEDGER_SANDBOX: 'off',
    RUNLEDGER_API_KEY: API_KEY,
  });
  const app = await App.start(config, log);
  return Number(new URL(app.url!).port);
};

export const STARTS: Readonly<Record<Contender, Start>> = {
  raw: startRaw,
  'raw-joined': startRawJoined,
  'graphql-ws': startGraphqlWs,
  mercurius: startMercurius,
  runledger: startRunledger,
};

/** Answers when it follows: until then a server is not ready, and what it takes to begin is no connection's cost. */
async function follow(task: ServerTask, log: Logger, handle: (row: RunEventRow) => void): Promise<void> {
  const { databaseUrl: url, runId, after } = task;
  const listener = await BellListener.start({ url, log });
  const feed = new RunFeed(new Database({ url }), listener, { log });
  const viewer = { tenantId: 'default', role: 'ADMIN', actor: 'bench', keyId: null } as const;
  void pass(await feed.runEvents(viewer, runId, after), handle);
}

async function pass(rows: AsyncIterable<RunEventRow>, handle: (row: RunEventRow) => void): Promise<void> {
  for await (const row of rows) handle(row);
}

const frameOf = (row: RunEventRow): string =>
  JSON.stringify({ id: '1', type: 'next', payload: { data: { runEvents: show(row) } } });

function show({ seq, type, level, message, payload, actor, createdAt }: RunEventRow): object {
  return { seq, type, level, message, payload, actor, createdAt: createdAt.toISOString() };
}
