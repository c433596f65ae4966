// The API over real HTTP for tests: one server on a database of its own, and clients with real keys.
import type { GraphQLSchema } from 'graphql';
import { pino } from 'pino';
import type { Role, Viewer } from '../../src/domain/viewer.js';
import { AppError } from '../../src/errors.js';
import { createContext, type RunFeed } from '../../src/resolvers/context.js';
import { buildGraphqlSchema } from '../../src/resolvers/schema.js';
import { GraphqlServer } from '../../src/server/http.js';
import { createApiKey, findViewerByKey } from '../../src/store/api-key.js';
import type { Database } from '../../src/store/db.js';
import { createTestDatabase } from '../support/database.js';
import { seedWorld, type World } from '../support/fixtures.js';
import { TypedDocumentString } from '../generated/graphql.js';

export interface ApiError {
  readonly message: string;
  readonly extensions: { readonly code: string; readonly [name: string]: unknown };
}

export interface ApiAnswer<Data> {
  readonly data?: Data | null;
  readonly errors?: readonly ApiError[];
}

/** A caller with a key of its own. */
export class ApiClient {
  constructor(
    private readonly url: string,
    readonly key: string,
  ) {}

  async send<Data = Record<string, unknown>>(
    query: string,
    variables: object = {},
  ): Promise<ApiAnswer<Data>> {
    const response = await fetch(this.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${this.key}` },
      body: JSON.stringify({ query, variables }),
    });
    return (await response.json()) as ApiAnswer<Data>;
  }

  /** The data of an operation that must succeed. */
  async ask<Data, Variables extends object>(
    document: TypedDocumentString<Data, Variables>,
    variables: Variables,
  ): Promise<Data> {
    if (!(document instanceof TypedDocumentString)) throw new Error('a new document: run `npm run generate`');
    const { data, errors } = await this.send<Data>(document.toString(), variables);
    if (errors || !data) throw new Error(`the operation failed: ${JSON.stringify(errors)}`);
    return data;
  }
}

export interface TestApi {
  readonly db: Database;
  readonly world: World;
  readonly schema: GraphQLSchema;
  /** A caller with a new key of this role. */
  client(role?: Role, tenantId?: string): Promise<ApiClient>;
  stop(): Promise<void>;
}

const noFeed = (): never => {
  throw new AppError('UNAVAILABLE', 'This server has no feed.');
};
const NO_FEED: RunFeed = { runEvents: noFeed, runProgress: noFeed, runChanges: noFeed };

export async function startApi(): Promise<TestApi> {
  const database = await createTestDatabase();
  const { db } = database;
  const world = await seedWorld(db);
  const schema = buildGraphqlSchema();
  const server = await GraphqlServer.start({
    schema,
    authenticate: ({ token }) => authenticate(db, token),
    createContext: (viewer) => createContext({ db, feed: NO_FEED, viewer }),
    isReady: async () => ({ ready: true, checks: {} }),
    log: pino({ level: 'silent' }),
    host: '127.0.0.1',
    port: 0,
  });
  return {
    db,
    world,
    schema,
    client: async (role = 'ADMIN', tenantId = 'default') => {
      const { secret } = await createApiKey(db, { tenantId, name: `${role} of ${tenantId}`, role });
      return new ApiClient(server.url, secret);
    },
    stop: async () => {
      await server.stop();
      await database.drop();
    },
  };
}

async function authenticate(db: Database, token: string | null): Promise<Viewer> {
  const viewer = token === null ? null : await findViewerByKey(db, token);
  if (!viewer) throw new AppError('UNAUTHENTICATED', 'An API key is needed.');
  return viewer;
}
