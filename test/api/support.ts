// The API for tests: a real server on a database of its own, and callers with real keys over HTTP and
// WebSocket. No runner: a run stays as the test has put it.
import { createClient, type Client, type FormattedExecutionResult } from 'graphql-ws';
import { WebSocket } from 'ws';
import type { Role } from '../../src/domain/viewer.js';
import type { Database } from '../../src/store/db.js';
import { TypedDocumentString } from '../generated/graphql.js';
import { TestApp } from '../support/app.js';
import { seedWorld, type World } from '../support/fixtures.js';

export interface ApiError {
  readonly message: string;
  readonly path?: readonly (string | number)[];
  readonly extensions: { readonly code: string; readonly [name: string]: unknown };
}

export interface ApiAnswer<Data> {
  readonly data?: Data | null;
  readonly errors?: readonly ApiError[];
  readonly extensions?: { readonly cost: { readonly requested: number; readonly maximum: number } };
}

/** A caller with a key of its own. */
export class ApiClient {
  private readonly sockets: Client[] = [];

  constructor(
    readonly url: string,
    private readonly key: string,
  ) {}

  /** Any operation, valid or not, and the whole answer. */
  async send<Data = Record<string, unknown>>(
    query: string,
    variables: object = {},
  ): Promise<ApiAnswer<Data>> {
    const response = await this.post(JSON.stringify({ query, variables }));
    return (await response.json()) as ApiAnswer<Data>;
  }

  post(body: string): Promise<Response> {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${this.key}` };
    return fetch(this.url, { method: 'POST', headers, body });
  }

  /** The data of an operation that must succeed. */
  async ask<Data, Variables extends object>(
    document: TypedDocumentString<Data, Variables>,
    variables: Variables,
  ): Promise<Data> {
    const { data, errors } = await this.send<Data>(textOf(document), variables);
    if (errors || !data) throw new Error(`the operation failed: ${JSON.stringify(errors)}`);
    return data;
  }

  /** The results of a subscription; the caller ends it by `return()`. */
  watch<Data, Variables extends object>(
    document: TypedDocumentString<Data, Variables>,
    variables: Variables,
  ): AsyncIterableIterator<FormattedExecutionResult<Data, unknown>> {
    return this.stream<Data>(textOf(document), variables as Record<string, unknown>);
  }

  /** Any subscription, valid or not. */
  stream<Data>(
    query: string,
    variables: Record<string, unknown> = {},
  ): AsyncIterableIterator<FormattedExecutionResult<Data, unknown>> {
    const socket = createClient({
      url: this.url.replace('http', 'ws'),
      webSocketImpl: WebSocket,
      connectionParams: { authorization: `Bearer ${this.key}` },
      retryAttempts: 0,
    });
    this.sockets.push(socket);
    return socket.iterate<Data>({ query, variables });
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) await socket.dispose();
  }
}

function textOf(document: TypedDocumentString<unknown, never>): string {
  if (document instanceof TypedDocumentString) return document.toString();
  throw new Error('the document is new or was changed: run `npm run generate`');
}

export interface TestApi {
  readonly db: Database;
  readonly world: World;
  /** A caller with a new key of this role. */
  client(role?: Role, tenantId?: string): Promise<ApiClient>;
  stop(): Promise<void>;
}

export async function startApi(): Promise<TestApi> {
  const app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
  const world = await seedWorld(app.db);
  const clients: ApiClient[] = [];
  return {
    db: app.db,
    world,
    client: async (role = 'ADMIN', tenantId = 'default') => {
      const client = new ApiClient(app.url, await app.createKey(role, tenantId));
      clients.push(client);
      return client;
    },
    stop: async () => {
      for (const client of clients) await client.close();
      await app.stop();
    },
  };
}

/** Makes changes until a subscription shows one: nothing tells a client when its subscription has begun. */
export async function changeUntil<Data>(
  results: AsyncIterableIterator<FormattedExecutionResult<Data, unknown>>,
  change: () => Promise<void>,
): Promise<Data> {
  let heard = false;
  const first = results.next().finally(() => (heard = true));
  while (!heard) await change();
  const { value } = (await first) as IteratorYieldResult<FormattedExecutionResult<Data, unknown>>;
  await results.return!();
  return value.data!;
}
