// The database: one pool, Prisma on top of it for plain reads and writes, and transactions for the rest.
// Nothing outside this folder sees a connection. A transaction names its actor once, for the ledger.

import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { isRetryable, translateError } from './sqlstate.js';
import { PrismaClient } from './prisma/client.js';

export type Connection = pg.PoolClient;

export interface DatabaseOptions {
  readonly url: string;
  readonly maxConnections?: number;
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

  constructor(options: DatabaseOptions) {
    this.#pool = new pg.Pool({
      connectionString: options.url,
      max: options.maxConnections ?? 20,
      application_name: 'runledger',
      connectionTimeoutMillis: 10_000,
      // One forgotten transaction would hold back vacuum, and with it every claim.
      idle_in_transaction_session_timeout: 30_000,
    });
    this.#pool.on('error', (error) => {
      // A server that stops right after us may answer our goodbye with its own.
      if (!this.#pool.ending) options.onIdleError?.(error);
    });
    this.prisma = new PrismaClient({ adapter: new PrismaPg(this.#pool) });
  }

  /** One statement in a transaction of its own. */
  async query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    try {
      const result = await this.#pool.query<Row>(text, [...values]);
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
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#attempt(actor, work, isolation);
      } catch (error) {
        if (attempt < MAX_TRIES && isRetryable(error)) continue;
        throw translateError(error);
      }
    }
  }

  async #attempt<T>(
    actor: string,
    work: (connection: Connection) => Promise<T>,
    isolation: Isolation,
  ): Promise<T> {
    const connection = await this.#pool.connect();
    let fault: Error | undefined;
    try {
      await connection.query(
        `BEGIN ISOLATION LEVEL ${isolation};
         SELECT set_config('runledger.actor', ${connection.escapeLiteral(actor)}, true)`,
      );
      const result = await work(connection);
      await connection.query('COMMIT');
      return result;
    } catch (error) {
      await connection.query('ROLLBACK').catch((rollbackError: Error) => (fault = rollbackError));
      throw error;
    } finally {
      // A connection that could not even roll back is not given to the next caller.
      connection.release(fault);
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

/** Prisma's promise, with its errors in our words. */
export async function translated<T>(promise: PromiseLike<T>): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    throw translateError(error);
  }
}
