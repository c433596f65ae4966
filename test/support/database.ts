// Databases for tests: one per test file, cloned from a migrated template, so that files share no rows and
// hear none of each other's bells. The template is made once per set of migrations, by whichever worker
// comes first.
import { createHash, randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { inject } from 'vitest';
import { Database } from '../../src/store/db.js';
import { MIGRATIONS, migrate } from '../../src/store/migrate.js';

export { MIGRATIONS };

export interface EmptyDatabase {
  readonly url: string;
  drop(): Promise<void>;
}

export interface TestDatabase extends EmptyDatabase {
  readonly db: Database;
}

const TEMPLATE_LOCK = 5_150_001;

/** A migrated database of its own; `drop` closes it first. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const { url, drop } = await cloneDatabase(await ensureTemplate());
  const db = new Database({ url });
  return {
    url,
    db,
    drop: async () => {
      await db.close();
      await drop();
    },
  };
}

/** A database with nothing in it, not even a history of migrations. */
export function createEmptyDatabase(): Promise<EmptyDatabase> {
  return cloneDatabase('template0');
}

/** One connection outside of any pool: for LISTEN, for locks held over several statements. */
export async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return client;
}

async function cloneDatabase(template: string): Promise<EmptyDatabase> {
  const name = `runledger_test_${randomUUID().replaceAll('-', '')}`;
  await asAdmin((admin) => admin.query(`CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY file_copy`));
  return {
    url: urlOf(name),
    drop: async () => {
      await asAdmin((admin) => admin.query(`DROP DATABASE ${name} WITH (FORCE)`));
    },
  };
}

async function ensureTemplate(): Promise<string> {
  const template = `runledger_template_${await hashMigrations()}`;
  await asAdmin(async (admin) => {
    await admin.query('SELECT pg_advisory_lock($1)', [TEMPLATE_LOCK]);
    const found = await admin.query('SELECT 1 FROM pg_database WHERE datname = $1', [template]);
    if (found.rowCount === 1) return;
    // It gets its name when it is complete: one that a killed run left half made is never taken for it.
    const draft = `${template}_draft`;
    await admin.query(`DROP DATABASE IF EXISTS ${draft} WITH (FORCE)`);
    await admin.query(`CREATE DATABASE ${draft} TEMPLATE template0`);
    await migrate(urlOf(draft), MIGRATIONS);
    await admin.query(`ALTER DATABASE ${draft} RENAME TO ${template}`);
  });
  return template;
}

async function hashMigrations(): Promise<string> {
  const hash = createHash('sha256');
  const entries = await readdir(MIGRATIONS, { withFileTypes: true });
  for (const { name } of entries
    .filter((entry) => entry.isDirectory())
    .sort((a, b) => (a.name < b.name ? -1 : 1))) {
    hash.update(name).update(await readFile(join(MIGRATIONS, name, 'migration.sql')));
  }
  return hash.digest('hex').slice(0, 16);
}

async function asAdmin<T>(work: (admin: pg.Client) => Promise<T>): Promise<T> {
  const admin = await connect(inject('adminUrl'));
  try {
    return await work(admin);
  } finally {
    await admin.end();
  }
}

function urlOf(database: string): string {
  const url = new URL(inject('adminUrl'));
  url.pathname = `/${database}`;
  return url.href;
}
