// What the benchmarks stand on: a durable PostgreSQL of their own that is gone afterwards, databases in it, and the
// median of what was measured.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { startEmbeddedPostgres } from '../../src/postgres/embedded-postgres.js';

export { MIGRATIONS } from '../../src/store/migrate.js';

const silent = { info: () => {}, warn: () => {} };

/** Starts PostgreSQL, hands its address to `body`, and takes it and its files away, whatever became of that. */
export async function withPostgres(body: (url: string) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'runledger-bench-'));
  try {
    const postgres = await startEmbeddedPostgres({ dataDir: directory, log: silent });
    await body(postgres.url).finally(() => postgres.stop());
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Answers the address of the new database. */
export async function createDatabase(adminUrl: string, name: string): Promise<string> {
  const admin = new pg.Client({ connectionString: adminUrl });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${name}`);
  await admin.end();
  const url = new URL(adminUrl);
  url.pathname = `/${name}`;
  return url.href;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
