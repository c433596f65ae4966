// The whole application for tests: real HTTP and WebSocket on a free port, a database of its own, the sandbox
// on, and delays short enough to wait for. In this process (TestApp, startApp) or as a process that can be killed
// (ServerProcess; servers.ts ends those that a test leaves).
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { createInterface } from 'node:readline';
import { pino } from 'pino';
import { App } from '../../src/app.js';
import { loadConfig } from '../../src/config.js';
import type { Role } from '../../src/domain/viewer.js';
import { createApiKey, ensureTenant } from '../../src/store/api-key.js';
import type { Database } from '../../src/store/db.js';
import { createTestDatabase, type TestDatabase } from './database.js';

export const ADMIN_KEY = 'test-admin-key';

type Environment = Readonly<Record<string, string>>;

/** What every test server is configured with, unless a test says otherwise. */
export function environmentOf(databaseUrl: string, overrides: Environment): Environment {
  return {
    DATABASE_URL: databaseUrl,
    PORT: '0',
    RUNLEDGER_API_KEY: ADMIN_KEY,
    RUNLEDGER_SANDBOX: 'on',
    RUNLEDGER_RETRY_BASE_MS: '20',
    RUNLEDGER_RETRY_MAX_MS: '200',
    RUNLEDGER_THROTTLE_BASE_MS: '40',
    RUNLEDGER_CALL_TIMEOUT_MS: '3000',
    RUNLEDGER_LEASE_MS: '5000',
    RUNLEDGER_CIRCUIT_OPEN_MS: '200',
    RUNLEDGER_LOG_LEVEL: 'warn',
    ...overrides,
  };
}

export interface GraphqlAnswer {
  // Tests read what they asked for; a shape of its own for each would say it twice.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly data: any;
  readonly errors?: readonly {
    readonly message: string;
    readonly path?: readonly (string | number)[];
    readonly extensions: Readonly<Record<string, unknown>>;
  }[];
  readonly extensions?: Readonly<Record<string, unknown>>;
}

/** One GraphQL request over HTTP; as the bootstrap admin of tenant `default` unless another key is given. */
export async function request(
  url: string,
  query: string,
  variables: Readonly<Record<string, unknown>> = {},
  key: string | null = ADMIN_KEY,
): Promise<GraphqlAnswer> {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
    },
    body: JSON.stringify({ query, variables }),
  });
  return (await response.json()) as GraphqlAnswer;
}

export class TestApp {
  static async start(overrides: Environment = {}): Promise<TestApp> {
    const database = await createTestDatabase();
    try {
      return new TestApp(database, await startApp(database.url, overrides));
    } catch (error) {
      await database.drop();
      throw error;
    }
  }

  private constructor(
    readonly database: TestDatabase,
    readonly app: App,
  ) {}

  get db(): Database {
    return this.database.db;
  }

  get url(): string {
    return this.app.url!;
  }

  request(
    query: string,
    variables: Readonly<Record<string, unknown>> = {},
    key: string | null = ADMIN_KEY,
  ): Promise<GraphqlAnswer> {
    return request(this.url, query, variables, key);
  }

  /** A key of another role or tenant; the tenant comes into being with it. */
  async createKey(role: Role, tenantId = 'default'): Promise<string> {
    await ensureTenant(this.db, tenantId);
    return (await createApiKey(this.db, { tenantId, name: `${tenantId} ${role}`, role })).secret;
  }

  async stop(): Promise<void> {
    await this.app.stop();
    await this.database.drop();
  }
}

/** A server in this process on a database that the caller owns: for a second one beside a TestApp. */
export function startApp(databaseUrl: string, overrides: Environment = {}): Promise<App> {
  const config = loadConfig(environmentOf(databaseUrl, overrides));
  return App.start(config, pino({ level: config.logLevel }, pino.destination({ fd: 2, sync: true })));
}

/** A server as a process of its own. */
export class ServerProcess {
  private constructor(
    readonly url: string,
    readonly child: ChildProcess,
  ) {}

  static async spawn(databaseUrl: string, overrides: Environment = {}): Promise<ServerProcess> {
    const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
    const child = spawn(process.execPath, ['--import', 'tsx', main], {
      env: { PATH: process.env['PATH'], ...environmentOf(databaseUrl, overrides) },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    for await (const line of createInterface({ input: child.stdout })) {
      const url = /listens at (\S+)/.exec(line)?.[1];
      if (url === undefined) continue;
      child.stdout.resume();
      return new ServerProcess(url, child);
    }
    throw new Error('the server ended before it listened');
  }

  /** Sends the signal and waits until the process is gone; answers its exit code. */
  async end(signal: NodeJS.Signals): Promise<number | null> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return this.child.exitCode;
    const exited = once(this.child, 'exit');
    this.child.kill(signal);
    return ((await exited) as [number | null])[0];
  }
}

/** Asks again until the answer fits; the test's own timeout bounds it. */
export async function until<T>(ask: () => Promise<T>, fits: (answer: T) => boolean): Promise<T> {
  for (;;) {
    const answer = await ask();
    if (fits(answer)) return answer;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
