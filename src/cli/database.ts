// The database for commands that need it directly: the one in DATABASE_URL, or the embedded one, whether its
// server runs or not. They see every tenant: whoever may read its password may do that anyway.

import { loadConfig, type DatabaseConfig } from '../config.js';
import { AppError } from '../errors.js';
import { findRunningPostgres, startEmbeddedPostgres } from '../postgres/embedded-postgres.js';
import { Database } from '../store/db.js';
import { isMigrated, MIGRATIONS, migrate } from '../store/migrate.js';
import { UsageError, type Option } from './command.js';

type Environment = Readonly<Record<string, string | undefined>>;

export const DATABASE_OPTIONS: Readonly<Record<string, Option>> = {
  database: {
    type: 'string',
    value: 'URL',
    help: 'the database; DATABASE_URL, else the embedded one of RUNLEDGER_DATA_DIR',
  },
};

interface OpenDatabase {
  readonly url: string;
  readonly close: () => Promise<void>;
}

/** Opens the database for as long as `work` takes. An empty one is refused, or made ready if asked. */
export async function withDatabase<T>(
  { DATABASE_URL, RUNLEDGER_DATA_DIR }: Environment,
  given: { readonly url: string | null; readonly prepare: boolean; readonly readOnly?: boolean },
  work: (db: Database) => Promise<T>,
): Promise<T> {
  const database = chooseDatabase(given.url ?? DATABASE_URL, RUNLEDGER_DATA_DIR, given.url !== null);
  const opened = await (database.kind === 'external'
    ? { url: database.url, close: async () => {} }
    : openEmbedded(database.dataDir));
  try {
    await requireTables(opened.url, given.prepare);
    const db = new Database({ url: opened.url, maxConnections: 2, readOnly: given.readOnly ?? false });
    try {
      return await work(db);
    } finally {
      await db.close();
    }
  } finally {
    await opened.close();
  }
}

function chooseDatabase(
  DATABASE_URL: string | undefined,
  RUNLEDGER_DATA_DIR: string | undefined,
  isOption: boolean,
): DatabaseConfig {
  try {
    return loadConfig({ DATABASE_URL, RUNLEDGER_DATA_DIR }).database;
  } catch (error) {
    // It would name the variable, which nobody has set.
    if (isOption)
      throw new UsageError('--database must be a URL that begins with postgres:// or postgresql://');
    throw error;
  }
}

async function openEmbedded(dataDir: string): Promise<OpenDatabase> {
  const running = await findRunningPostgres(dataDir);
  if (running !== null) return { url: running, close: async () => {} };
  const log = { info: () => {}, warn: (message: string) => console.error(`runledger: ${message}`) };
  const postgres = await startEmbeddedPostgres({ dataDir, log });
  return { url: postgres.url, close: () => postgres.stop() };
}

async function requireTables(url: string, prepare: boolean): Promise<void> {
  if (await isMigrated(url)) return;
  if (prepare) return void (await migrate(url, MIGRATIONS));
  throw new AppError('UNAVAILABLE', 'The database has no tables of Runledger: start the server once.');
}
