// A small schema of its own and real clients for the tests of src/server: HTTP by node:http, so that every
// header can be set, and WebSocket frames by ws, so that every frame can be wrong.

import { EventEmitter, once } from 'node:events';
import http from 'node:http';
import { buildSchema, type GraphQLFieldResolver, type GraphQLSchema } from 'graphql';
import { pino, type Logger } from 'pino';
import { WebSocket, type ClientOptions } from 'ws';
import type { Viewer } from '../../src/domain/viewer.js';
import { AppError } from '../../src/errors.js';
import type { Credentials } from '../../src/server/auth.js';
import { GraphqlServer, type ServerOptions } from '../../src/server/http.js';

const SDL = `
  type Query {
    hello: String!
    actor: String!
    visit: Int!
    item: Item!
    items(first: Int = 20): ItemConnection!
    dear: String!
    slow: String!
    boom: String
    refused(code: String!): String
    wrongType: Int
    count(numbers: [Int!]!): Int!
  }
  type Item { id: ID! name: String! a: Int! b: Int! c: Int! child: Item! }
  type ItemConnection { nodes: [Item!]! pageInfo: PageInfo! totalCount: Int! }
  type PageInfo { hasNextPage: Boolean! endCursor: String }
  type Mutation { add(numbers: [Int!]!): Int! }
  type Tick { n: Int! visit: Int! actor: String! text: String! }
  type Line { seq: Int! }
  type Subscription {
    ticks(count: Int! = 3): Tick!
    watch(from: Int): Tick!
    flood(bytes: Int!): String!
    runEvents(after: Int = 0): Line!
    breaks: Int!
    neverStarts: Int!
    items(first: Int!): ItemConnection!
  }
`;

export interface TestContext {
  readonly viewer: Viewer;
  /** Numbers the contexts of one server: 1, 2, 3 … */
  readonly visit: number;
}

/** What a test and the resolvers tell each other. */
export class Stage extends EventEmitter {
  readonly logged: Record<string, unknown>[] = [];
  readonly seenCredentials: Credentials[] = [];
  openWatches = 0;
  openFloods = 0;
  executedTicks = 0;
  revoked = false;
  visits = 0;
}

const ITEM = { id: '1', name: 'thing', a: 1, b: 2, c: 3 };
const ADMIN: Viewer = { tenantId: 'default', role: 'ADMIN', actor: 'local', keyId: null };

function addResolvers(schema: GraphQLSchema, stage: Stage): void {
  type Resolve = GraphQLFieldResolver<unknown, TestContext>;
  const set = (type: string, field: string, resolve: Resolve): void => {
    const found = schema.getType(type);
    if (found && 'getFields' in found) Object.assign(found.getFields()[field] as object, { resolve });
  };
  set('Query', 'hello', () => 'world');
  set('Query', 'actor', (_root, _args, context) => context.viewer.actor);
  set('Query', 'visit', (_root, _args, context) => context.visit);
  set('Query', 'item', () => ITEM);
  set('Item', 'child', () => ITEM);
  set('Query', 'items', () => ({ nodes: [ITEM], pageInfo: { hasNextPage: false }, totalCount: 1 }));
  set('Query', 'dear', () => 'gold');
  set('Query', 'slow', async () => {
    stage.emit('slow started');
    await once(stage, 'slow may end');
    return 'at last';
  });
  set('Query', 'boom', () => {
    throw new Error('password=hunter2');
  });
  set('Query', 'refused', (_root, { code }: { code: AppError['code'] }) => {
    throw new AppError(code, `refused as ${code}`, { field: ['code'], details: { why: 'test' } });
  });
  set('Query', 'wrongType', () => 'not a number');
  set('Query', 'count', (_root, { numbers }: { numbers: number[] }) => numbers.length);
  set('Mutation', 'add', (_root, { numbers }: { numbers: number[] }) => numbers.reduce((a, b) => a + b, 0));
  set('Tick', 'visit', (_root, _args, context) => {
    stage.executedTicks += 1;
    return context.visit;
  });
  set('Tick', 'actor', (_root, _args, context) => context.viewer.actor);
  const dear = schema.getQueryType()?.getFields()['dear'];
  if (dear) dear.extensions = { complexity: 15_000 };
}

/** Every watcher gets the same event objects, as a feed would hand them out. */
class Watch implements AsyncIterableIterator<unknown> {
  private readonly queue: unknown[] = [];
  private wake: (() => void) | null = null;
  private ended = false;

  constructor(private readonly stage: Stage) {
    stage.openWatches += 1;
    stage.on('tick', this.push);
    stage.emit('watching');
  }

  private readonly push = (event: unknown): void => {
    this.queue.push(event);
    this.wake?.();
  };

  async next(): Promise<IteratorResult<unknown>> {
    while (this.queue.length === 0 && !this.ended)
      await new Promise<void>((resolve) => (this.wake = resolve));
    return this.ended ? { done: true, value: undefined } : { done: false, value: this.queue.shift() };
  }

  return(): Promise<IteratorResult<unknown>> {
    if (!this.ended) this.stage.openWatches -= 1;
    this.ended = true;
    this.stage.off('tick', this.push);
    this.wake?.();
    this.stage.emit('watch ended');
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

function addSubscribers(schema: GraphQLSchema, stage: Stage): void {
  const fields = schema.getSubscriptionType()?.getFields() ?? {};
  const set = (field: string, subscribe: GraphQLFieldResolver<unknown, TestContext>): void => {
    Object.assign(fields[field] as object, { subscribe });
  };
  set('ticks', async function* (_root, { count }: { count: number }) {
    for (let n = 1; n <= count; n += 1) yield { ticks: { n } };
  });
  set('watch', () => new Watch(stage));
  set('flood', async function* (_root, { bytes }: { bytes: number }) {
    stage.openFloods += 1;
    try {
      for (;;) yield { flood: 'x'.repeat(bytes) };
    } finally {
      stage.openFloods -= 1;
      stage.emit('flood ended');
    }
  });
  fields['runEvents']!.resolve = (line) => line;
  set('runEvents', async function* (_root, { after }: { after: number }) {
    for (let seq = after + 1; seq <= after + 3; seq += 1) yield { seq };
    await once(stage, 'never');
  });
  set('breaks', async function* () {
    yield { breaks: 1 };
    throw new Error('password=hunter2');
  });
  set('neverStarts', () => {
    throw new AppError('NOT_FOUND', 'no such run');
  });
}

function testSchema(stage: Stage): GraphQLSchema {
  const schema = buildSchema(SDL);
  addResolvers(schema, stage);
  addSubscribers(schema, stage);
  return schema;
}

export function testLog(stage: Stage): Logger {
  return pino({ level: 'trace' }, { write: (line: string) => void stage.logged.push(JSON.parse(line)) });
}

async function authenticate(stage: Stage, credentials: Credentials): Promise<Viewer> {
  stage.seenCredentials.push(credentials);
  stage.emit('authenticated');
  if (credentials.token === 'good' && !stage.revoked) return { ...ADMIN, actor: 'key good', keyId: 'k1' };
  if (credentials.token === 'viewer') return { ...ADMIN, role: 'VIEWER', actor: 'key viewer', keyId: 'k3' };
  if (credentials.token === 'other') return { ...ADMIN, actor: 'key other', keyId: 'k2' };
  if (credentials.token === 'nobody') throw new AppError('FORBIDDEN', 'this key may do nothing');
  if (credentials.token === 'db-away') throw new AppError('UNAVAILABLE', 'the database is away');
  if (credentials.token === 'explode') throw new Error('password=hunter2');
  if (credentials.token === null && credentials.local) return ADMIN;
  throw new AppError('UNAUTHENTICATED', 'An API key is needed.');
}

export async function startTestServer(
  overrides: Partial<ServerOptions> = {},
): Promise<{ server: GraphqlServer; stage: Stage }> {
  const stage = new Stage();
  stage.setMaxListeners(0);
  const server = await GraphqlServer.start({
    schema: testSchema(stage),
    authenticate: (credentials) => authenticate(stage, credentials),
    createContext: (viewer): TestContext => ({ viewer, visit: (stage.visits += 1) }),
    isReady: async () => ({ ready: true, checks: { database: 'ok', listener: 'ok' } }),
    log: testLog(stage),
    host: '127.0.0.1',
    port: 0,
    ...overrides,
  });
  return { server, stage };
}

export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly text: string;
  readonly json: {
    data?: Record<string, unknown> | null;
    errors?: { message: string; path?: string[]; extensions: Record<string, unknown> }[];
    extensions?: { cost: { requested: number; maximum: number } };
  };
}

export interface Sending {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: http.OutgoingHttpHeaders;
  readonly body?: string | Buffer;
}

export function send(server: GraphqlServer, sending: Sending): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const { method = 'GET', path = '/graphql', headers = {}, body } = sending;
    const request = http.request({
      host: '127.0.0.1',
      port: server.port,
      method,
      path,
      headers,
      agent: false,
    });
    request.on('error', reject);
    request.on('response', (response) => {
      const chunks: Buffer[] = [];
      response.on('error', reject);
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        const isJson = String(response.headers['content-type']).includes('json') && text !== '';
        const json = isJson ? (JSON.parse(text) as Answer['json']) : {};
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text, json });
      });
    });
    request.end(body);
  });
}

export function post(
  server: GraphqlServer,
  query: string,
  variables?: Record<string, unknown>,
  headers: http.OutgoingHttpHeaders = {},
): Promise<Answer> {
  return send(server, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ query, variables }),
  });
}

export interface Message {
  readonly type: string;
  readonly id?: string;
  readonly payload?: unknown;
}

/** A client that says what it is told to, and keeps what it hears. */
export class RawClient {
  readonly heard: Message[] = [];
  readonly closed: Promise<{ code: number; reason: string }>;
  private readonly news = new EventEmitter().setMaxListeners(0);

  constructor(
    readonly socket: WebSocket,
    private readonly opened: Promise<unknown>,
  ) {
    socket.on('message', (data) => {
      this.heard.push(JSON.parse(String(data)) as Message);
      this.news.emit('news');
    });
    socket.on('error', () => undefined);
    this.closed = new Promise((resolve) =>
      socket.on('close', (code, reason) => resolve({ code, reason: String(reason) })),
    );
  }

  static async open(
    server: { readonly url: string },
    options: ClientOptions = {},
    protocols: string[] = ['graphql-transport-ws'],
  ): Promise<RawClient> {
    const socket = new WebSocket(server.url.replace('http', 'ws'), protocols, options);
    const client = new RawClient(socket, once(socket, 'open'));
    await client.opened;
    return client;
  }

  /** Opens, and is admitted. */
  static async connect(
    server: { readonly url: string },
    payload: object = {},
    options: ClientOptions = {},
  ): Promise<RawClient> {
    const client = await RawClient.open(server, options);
    client.say({ type: 'connection_init', payload });
    await client.hear((message) => message.type === 'connection_ack');
    return client;
  }

  say(message: object): void {
    this.socket.send(JSON.stringify(message));
  }

  subscribe(id: string, query: string, variables?: Record<string, unknown>): void {
    this.say({ id, type: 'subscribe', payload: { query, variables } });
  }

  /** The first message, past or future, that fits. */
  async hear(fits: (message: Message) => boolean): Promise<Message> {
    for (;;) {
      const found = this.heard.find(fits);
      if (found) return found;
      await once(this.news, 'news');
    }
  }

  /** Waits for the end of an operation, and returns all that was said about it. */
  async ending(id: string): Promise<Message[]> {
    await this.hear(
      (message) => message.id === id && (message.type === 'complete' || message.type === 'error'),
    );
    return this.heard.filter((message) => message.id === id);
  }
}
