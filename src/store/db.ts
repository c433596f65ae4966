// The database: one pool, Prisma on top of it for plain reads and writes, and transactions for the rest.
// Nothing outside this folder sees a connection. A transaction names its actor once, for the ledger.

import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { bind, type Prepared } from './prepared.js';
import { isAftermath, isRetryable, translateError } from './sqlstate.js';
import { PrismaClient } from './prisma/client.js';

/** One transaction's statements. */
export type Connection = Pick<pg.PoolClient, 'query'>;

export interface DatabaseOptions {
  readonly url: string;
  readonly maxConnections?: number;
  /** Refuses every write, whatever is asked of it. */
  readonly readOnly?: boolean;
  /** Told of faults on connections that are idle in the pool; they are replaced on the next use. */
  readonly onIdleError?: (error: Error) => void;
}

/** What the pool's connections are doing, and how many callers wait for one. */
export interface PoolUse {
  readonly busy: number;
  readonly idle: number;
  readonly waiting: number;
}

/** REPEATABLE READ: every statement of the transaction sees the same data. */
export type Isolation = 'READ COMMITTED' | 'REPEATABLE READ';

const MAX_TRIES = 5;

export class Database {
  readonly prisma: PrismaClient;
  readonly #pool: pg.Pool;

  constructor(options: DatabaseOptions | pg.Pool) {
    this.#pool = options instanceof pg.Pool ? options : openPool(options);
    this.prisma = new PrismaClient({ adapter: new PrismaPg(this.#pool) });
  }

  /**
   * The same connections, for whoever waits no longer than that for the answer to a single statement: one that
   * died in silence would otherwise be waited for without end. It is given up then, and the statement is
   * UNAVAILABLE. Transactions take their time as ever.
   */
  answeringWithin(ms: number): Database {
    return new Database(impatient(this.#pool, ms));
  }

  /** One statement in a transaction of its own. */
  query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    return this.#ask({ text, values: [...values] });
  }

  /** The same, planned once per connection. */
  queryPrepared<Row extends pg.QueryResultRow>(
    statement: Prepared,
    values: readonly unknown[] = [],
  ): Promise<Row[]> {
    return this.#ask(bind(statement, values));
  }

  async #ask<Row extends pg.QueryResultRow>(config: pg.QueryConfig): Promise<Row[]> {
    try {
      const result = await this.#pool.query<Row>(config);
      return result.rows;
    } catch (error) {
      throw translateError(error);
    }
  }

  /** Runs `work` in a transaction, again from the start when it lost a race (deadlock, serialisation). */
  async transaction<T>(
    actor: string,
    work: (connection: Connection) => Promise<T>,
    isolation: Isolation = 'READ COMMITTED',
  ): Promise<T> {
    return this.#tryAgain(() => this.#attempt(actor, work, isolation, false));
  }

  /**
   * The same for `work` that issues all its statements before it awaits one: their COMMIT goes out with them, so that
   * no lock is held while the answers are on their way. What must not be kept is called off in the database.
   */
  transactionAtOnce<T>(actor: string, work: (connection: Connection) => Promise<T>): Promise<T> {
    return this.#tryAgain(() => this.#attempt(actor, work, 'READ COMMITTED', true));
  }

  async #tryAgain<T>(attempt: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await attempt();
      } catch (error) {
        if (tries < MAX_TRIES && isRetryable(error)) continue;
        throw translateError(error);
      }
    }
  }

  async #attempt<T>(
    actor: string,
    work: (connection: Connection) => Promise<T>,
    isolation: Isolation,
    isAtOnce: boolean,
  ): Promise<T> {
    const client = await this.#pool.connect();
    const { connection, cause } = watchFaults(client);
    let fault: Error | undefined;
    try {
      const { begun, working, committed } = inOneWrite(client, () => ({
        // Not awaited yet, so that it goes out with the first statement. Where it fails, so do all that follow.
        begun: connection.query(
          `BEGIN ISOLATION LEVEL ${isolation};
           SELECT set_config('runledger.actor', ${client.escapeLiteral(actor)}, true)`,
        ),
        working: work(connection),
        committed: isAtOnce ? connection.query('COMMIT') : null,
      }));
      const result = await working;
      await begun;
      await (committed ?? connection.query('COMMIT'));
      return result;
    } catch (error) {
      await client.query('ROLLBACK').catch((rollbackError: Error) => (fault = rollbackError));
      throw cause(error);
    } finally {
      // A connection that could not even roll back is not given to the next caller.
      client.release(fault);
    }
  }

  get poolUse(): PoolUse {
    const { totalCount, idleCount, waitingCount } = this.#pool;
    return { busy: totalCount - idleCount, idle: idleCount, waiting: waitingCount };
  }

  async ping(): Promise<void> {
    await this.query('SELECT 1');
  }

  async close(): Promise<void> {
    await this.prisma.$disconnect();
    await this.#pool.end();
  }
}

function openPool({ url, maxConnections = 20, readOnly, onIdleError }: DatabaseOptions): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    max: maxConnections,
    // Statements that do not need each other's results go out together: issue them without awaiting each.
    pipeline: true,
    application_name: 'runledger',
    connectionTimeoutMillis: 10_000,
    // One forgotten transaction would hold back vacuum, and with it every claim.
    idle_in_transaction_session_timeout: 30_000,
    // A server that was cut off while it worked would be waited for without end.
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    ...(readOnly ? { options: '-c default_transaction_read_only=on' } : {}),
  });
  pool.on('error', (error) => {
    // A server that stops right after us may answer our goodbye with its own.
    if (!pool.ending) onIdleError?.(error);
  });
  // The pool listens only while a connection is idle. One that is cut between two statements of a transaction
  // would end the process; this way the next statement fails.
  pool.on('connect', (connection) => connection.on('error', () => {}));
  return pool;
}

/** What `issue` sends goes out together: each write of its own would wake the server, and us with the answer. */
function inOneWrite<T>(client: pg.PoolClient, issue: () => T): T {
  const { stream } = (client as unknown as pg.Client).connection;
  stream.cork();
  try {
    return issue();
  } finally {
    stream.uncork();
  }
}

/** Prisma wants a pool, and asks it as we do: by one object. */
function impatient(pool: pg.Pool, ms: number): pg.Pool {
  const query = (config: pg.QueryConfig, ...rest: unknown[]): unknown =>
    (pool.query as (...args: unknown[]) => unknown).call(pool, { ...config, query_timeout: ms }, ...rest);
  return new Proxy(pool, {
    get(_, key) {
      if (key === 'query') return query;
      const value: unknown = Reflect.get(pool, key);
      return typeof value === 'function' ? value.bind(pool) : value;
    },
  });
}

/** Prisma's promise, with its errors in our words. */
export async function translated<T>(promise: PromiseLike<T>): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    throw translateError(error);
  }
}

/**
 * Of statements that went out together, those after the first that fails are told only that their transaction is
 * over, and which of them the caller hears of depends on how it waits. `cause` answers what it was.
 */
function watchFaults(client: pg.PoolClient): {
  readonly connection: Connection;
  readonly cause: (error: unknown) => unknown;
} {
  let first: { readonly error: unknown } | null = null;
  const query = (...statement: Parameters<pg.PoolClient['query']>): Promise<unknown> => {
    const answer = (client.query as (...args: unknown[]) => Promise<unknown>)(...statement);
    answer.catch((error: unknown) => (first ??= { error }));
    return answer;
  };
  return {
    connection: { query: query as pg.PoolClient['query'] },
    cause: (error) => (first !== null && isAftermath(error) ? first.error : error),
  };
}
