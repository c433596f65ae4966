// Applies prisma/migrations, in the way and with the table of `prisma migrate deploy`, so that both can be
// used on one history. Many servers may start at once: an advisory lock lets one of them work.

import { createHash, randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { AppError } from '../errors.js';
import { readStructure, type SchemaStructure } from './schema-structure.js';
import { translateError } from './sqlstate.js';

// The project directory is the parent of src as well as of dist.
export const MIGRATIONS = fileURLToPath(new URL('../../prisma/migrations', import.meta.url));

// Prisma takes the same lock.
const ADVISORY_LOCK = 72707369;
const MIN_SERVER_VERSION = 150_000;

interface Migration {
  readonly name: string;
  readonly sql: string;
  readonly checksum: string;
  /** Of what the file was before it was mended for databases on which it could not run. */
  readonly formerChecksums: readonly string[];
}

interface AppliedRow {
  readonly migration_name: string;
  readonly checksum: string;
  readonly finished_at: Date | null;
  readonly rolled_back_at: Date | null;
}

/** Brings the database up to the newest migration; answers the names of those it applied. */
export async function migrate(url: string, directory: string): Promise<string[]> {
  const migrations = await readMigrations(directory);
  const client = new pg.Client({ connectionString: url, application_name: 'runledger migrate' });
  try {
    await client.connect();
    await refuseOldServer(client);
    await client.query('SELECT pg_advisory_lock($1)', [ADVISORY_LOCK]);
    await createHistory(client);
    const pending = findPending(migrations, await readHistory(client));
    for (const migration of pending) await apply(client, migration);
    return pending.map(({ name }) => name);
  } catch (error) {
    throw translateError(error);
  } finally {
    await client.end();
  }
}

/** Whether a database has any history of migrations. */
export async function isMigrated(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, application_name: 'runledger' });
  try {
    await client.connect();
    const { rows } = await client.query<{ found: boolean }>(
      `SELECT to_regclass('_prisma_migrations') IS NOT NULL AS found`,
    );
    return rows[0]!.found;
  } catch (error) {
    throw translateError(error);
  } finally {
    await client.end();
  }
}

/** What a version's database has beside its tables. */
export interface SchemaVersion extends SchemaStructure {
  /** The names of its migrations, oldest first. */
  readonly migrations: readonly string[];
}

/** A line by which a migration says under which other text it may have been applied. */
const FORMER_CHECKSUM = /^-- Formerly ([0-9a-f]{64})$/gm;

export async function readVersion(directory: string): Promise<SchemaVersion> {
  const migrations = await readMigrations(directory);
  return {
    migrations: migrations.map(({ name }) => name),
    ...readStructure(migrations.map(({ sql }) => sql)),
  };
}

async function readMigrations(directory: string): Promise<Migration[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  return Promise.all(
    names.sort().map(async (name) => {
      const sql = await readFile(join(directory, name, 'migration.sql'), 'utf8');
      const formerChecksums = [...sql.matchAll(FORMER_CHECKSUM)].map(([, checksum]) => checksum!);
      return { name, sql, checksum: createHash('sha256').update(sql).digest('hex'), formerChecksums };
    }),
  );
}

async function refuseOldServer(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ number: number; version: string }>(
    `SELECT current_setting('server_version_num')::int AS number, current_setting('server_version') AS version`,
  );
  const { number, version } = rows[0]!;
  if (number < MIN_SERVER_VERSION) {
    throw new AppError('UNAVAILABLE', `PostgreSQL ${version} is too old: Runledger needs 15 or later.`);
  }
}

async function createHistory(client: pg.Client): Promise<void> {
  await client.query(`
    CREATE TABLE IF NOT EXISTS _prisma_migrations (
      id VARCHAR(36) PRIMARY KEY NOT NULL,
      checksum VARCHAR(64) NOT NULL,
      finished_at TIMESTAMPTZ,
      migration_name VARCHAR(255) NOT NULL,
      logs TEXT,
      rolled_back_at TIMESTAMPTZ,
      started_at TIMESTAMPTZ NOT NULL DEFAULT now(),
      applied_steps_count INTEGER NOT NULL DEFAULT 0
    )`);
}

async function readHistory(client: pg.Client): Promise<AppliedRow[]> {
  const { rows } = await client.query<AppliedRow>(
    'SELECT migration_name, checksum, finished_at, rolled_back_at FROM _prisma_migrations ORDER BY started_at',
  );
  return rows.filter(({ rolled_back_at }) => rolled_back_at === null);
}

function findPending(migrations: readonly Migration[], history: readonly AppliedRow[]): Migration[] {
  for (const row of history) refuseUnsound(row, migrations);
  const applied = new Set(history.map(({ migration_name }) => migration_name));
  return migrations.filter(({ name }) => !applied.has(name));
}

function refuseUnsound(row: AppliedRow, migrations: readonly Migration[]): void {
  const name = row.migration_name;
  if (row.finished_at === null) {
    throw new AppError(
      'CONFLICT',
      `Migration ${name} began but did not finish. See its logs in _prisma_migrations, mend the database, then ` +
        'set rolled_back_at (to apply it again) or finished_at (to keep it) on its row.',
    );
  }
  const migration = migrations.find((candidate) => candidate.name === name);
  if (!migration) {
    throw new AppError('CONFLICT', `The database has migration ${name}, which this version does not know.`);
  }
  if (![migration.checksum, ...migration.formerChecksums].includes(row.checksum)) {
    throw new AppError('CONFLICT', `Migration ${name} was changed after it was applied to this database.`);
  }
}

async function apply(client: pg.Client, { name, sql, checksum }: Migration): Promise<void> {
  const id = randomUUID();
  await client.query('INSERT INTO _prisma_migrations (id, checksum, migration_name) VALUES ($1, $2, $3)', [
    id,
    checksum,
    name,
  ]);
  try {
    // One simple query is one transaction: the whole file, or nothing of it.
    await client.query(sql);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    await client.query('UPDATE _prisma_migrations SET logs = $2 WHERE id = $1', [id, message]);
    throw new AppError('CONFLICT', `Migration ${name} failed: ${message}`, { cause: error });
  }
  await client.query(
    'UPDATE _prisma_migrations SET finished_at = now(), applied_steps_count = 1 WHERE id = $1',
    [id],
  );
}
