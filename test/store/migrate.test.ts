// The migrator: the history that Prisma keeps, one migrator at a time, and no step on ground that it cannot
// judge.
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { migrate } from '../../src/store/migrate.js';
import { connect, createEmptyDatabase, MIGRATIONS, type EmptyDatabase } from '../support/database.js';
import { deployMigrations, diagnoseHistory } from '../support/schema-engine.js';
import { faultOf } from './rows.js';

let database: EmptyDatabase;
let client: pg.Client;
let directory: string;

beforeEach(async () => {
  database = await createEmptyDatabase();
  client = await connect(database.url);
  directory = await mkdtemp(join(tmpdir(), 'runledger-migrate-'));
});
afterEach(async () => {
  await client.end();
  await database.drop();
  await rm(directory, { recursive: true });
});

async function write(name: string, sql: string): Promise<void> {
  await mkdir(join(directory, name), { recursive: true });
  await writeFile(join(directory, name, 'migration.sql'), sql);
}

async function queryRows(sql: string): Promise<Record<string, unknown>[]> {
  return (await client.query<Record<string, unknown>>(sql)).rows;
}

const readHistory = () => queryRows('SELECT * FROM _prisma_migrations ORDER BY started_at');

describe('history', () => {
  test('each migration is applied once, in the order of the names', async () => {
    await write('2_second', 'ALTER TABLE a ADD COLUMN b INTEGER');
    await write('1_first', 'CREATE TABLE a (id INTEGER)');
    expect(await migrate(database.url, directory)).toEqual(['1_first', '2_second']);
    expect(await migrate(database.url, directory)).toEqual([]);
    await write('3_third', 'INSERT INTO a VALUES (1, 2)');
    expect(await migrate(database.url, directory)).toEqual(['3_third']);
    expect(await queryRows('SELECT * FROM a')).toEqual([{ id: 1, b: 2 }]);
  });

  test('a row says what Prisma would have written', async () => {
    const sql = "CREATE TABLE a (id INTEGER);\n-- ünïcode\nSELECT 'ü';\n";
    await write('1_first', sql);
    await migrate(database.url, directory);
    const [row] = await readHistory();
    expect(row).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string,
      checksum: createHash('sha256').update(sql).digest('hex'),
      migration_name: '1_first',
      started_at: expect.any(Date) as Date,
      finished_at: expect.any(Date) as Date,
      rolled_back_at: null,
      logs: null,
      applied_steps_count: 1,
    });
  });

  test('Prisma takes it for its own', async () => {
    await migrate(database.url, MIGRATIONS);
    expect(await diagnoseHistory(database.url, MIGRATIONS)).toMatchObject({
      hasMigrationsTable: true,
      history: null,
      editedMigrationNames: [],
      failedMigrationNames: [],
    });
    expect(await deployMigrations(database.url, MIGRATIONS)).toEqual([]);
  });

  test('what Prisma applied is not applied again', async () => {
    await write('1_first', 'CREATE TABLE a (id INTEGER)');
    expect(await deployMigrations(database.url, directory)).toEqual(['1_first']);
    await write('2_second', 'CREATE TABLE b (id INTEGER)');
    expect(await migrate(database.url, directory)).toEqual(['2_second']);
    await write('3_third', 'CREATE TABLE c (id INTEGER)');
    expect(await deployMigrations(database.url, directory)).toEqual(['3_third']);
    expect(await migrate(database.url, directory)).toEqual([]);
  });
});

describe('many servers at once', () => {
  test('one migrates, the others wait and find nothing to do', async () => {
    await write('1_first', 'CREATE TABLE a (id INTEGER)');
    await write('2_second', 'CREATE TABLE b (id INTEGER); SELECT pg_sleep(0.1)');
    const applied = await Promise.all(Array.from({ length: 5 }, () => migrate(database.url, directory)));
    expect(applied.filter(({ length }) => length > 0)).toEqual([['1_first', '2_second']]);
    expect(await readHistory()).toHaveLength(2);
  });

  test('the lock is the one that Prisma takes', async () => {
    await write('1_first', 'CREATE TABLE a (id INTEGER)');
    await client.query('SELECT pg_advisory_lock(72707369)');
    const migrating = migrate(database.url, directory);
    await waitForLock();
    expect(await queryRows(`SELECT to_regclass('a') AS a`)).toEqual([{ a: null }]);
    await client.query('SELECT pg_advisory_unlock(72707369)');
    expect(await migrating).toEqual(['1_first']);
  });

  /** Until somebody waits for an advisory lock of this database. */
  async function waitForLock(): Promise<void> {
    for (;;) {
      const waiting = await queryRows(
        `SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      );
      if (waiting.length > 0) return;
    }
  }
});

describe('a migration that fails', () => {
  beforeEach(async () => {
    await write('1_first', 'CREATE TABLE a (id INTEGER)');
    await write('2_broken', 'CREATE TABLE b (id INTEGER); INSERT INTO nowhere VALUES (1);');
    await write('3_third', 'CREATE TABLE c (id INTEGER)');
  });

  test('leaves nothing of itself but its row, and names itself', async () => {
    const fault = await faultOf(migrate(database.url, directory));
    expect(fault).toMatchObject({
      code: 'CONFLICT',
      message: 'Migration 2_broken failed: relation "nowhere" does not exist',
    });
    expect(
      await queryRows(
        `SELECT to_regclass('a') IS NOT NULL AS a, to_regclass('b') AS b, to_regclass('c') AS c`,
      ),
    ).toEqual([{ a: true, b: null, c: null }]);
    expect((await readHistory())[1]).toMatchObject({
      migration_name: '2_broken',
      finished_at: null,
      applied_steps_count: 0,
      logs: 'relation "nowhere" does not exist',
    });
  });

  test('blocks every later start until a person has decided', async () => {
    await faultOf(migrate(database.url, directory));
    await write('2_broken', 'CREATE TABLE b (id INTEGER)');
    const fault = await faultOf(migrate(database.url, directory));
    expect(fault).toMatchObject({ code: 'CONFLICT' });
    expect(fault.message).toContain('2_broken began but did not finish');
    expect(fault.message).toContain('rolled_back_at');
    expect((await diagnoseHistory(database.url, directory)).failedMigrationNames).toEqual(['2_broken']);
    await client.query('UPDATE _prisma_migrations SET rolled_back_at = now() WHERE finished_at IS NULL');
    expect(await migrate(database.url, directory)).toEqual(['2_broken', '3_third']);
    expect(await migrate(database.url, directory)).toEqual([]);
  });

  test('is kept when a person has mended the database by hand', async () => {
    await faultOf(migrate(database.url, directory));
    await client.query('CREATE TABLE b (id INTEGER)');
    await client.query('UPDATE _prisma_migrations SET finished_at = now() WHERE finished_at IS NULL');
    expect(await migrate(database.url, directory)).toEqual(['3_third']);
  });
});

describe('refusals', () => {
  test('a migration that was changed after it was applied', async () => {
    await write('1_first', 'CREATE TABLE a (id INTEGER)');
    await migrate(database.url, directory);
    await write('1_first', 'CREATE TABLE a (id BIGINT)');
    await write('2_second', 'CREATE TABLE b (id INTEGER)');
    const fault = await faultOf(migrate(database.url, directory));
    expect(fault).toMatchObject({ code: 'CONFLICT' });
    expect(fault.message).toBe('Migration 1_first was changed after it was applied to this database.');
    expect(await queryRows(`SELECT to_regclass('b') AS b`)).toEqual([{ b: null }]);
  });

  test('but one that names the text it had before is that one still, and is not applied again', async () => {
    const former = 'CREATE TABLE a (id INTEGER)';
    await write('1_first', former);
    await migrate(database.url, directory);
    const checksum = createHash('sha256').update(former).digest('hex');
    await write('1_first', `CREATE TABLE a (id BIGINT);\n-- Formerly ${checksum}\n`);
    await write('2_second', 'ALTER TABLE a ALTER COLUMN id TYPE BIGINT');
    expect(await migrate(database.url, directory)).toEqual(['2_second']);
    expect(await deployMigrations(database.url, directory)).toEqual([]);
  });

  test('a database that a newer version has migrated', async () => {
    await write('1_first', 'CREATE TABLE a (id INTEGER)');
    await write('9_future', 'CREATE TABLE z (id INTEGER)');
    await migrate(database.url, directory);
    await rm(join(directory, '9_future'), { recursive: true });
    const fault = await faultOf(migrate(database.url, directory));
    expect(fault).toMatchObject({
      code: 'CONFLICT',
      message: 'The database has migration 9_future, which this version does not know.',
    });
  });

  test('a server that is too old', async () => {
    await write('1_first', 'CREATE TABLE a (id INTEGER)');
    // The real server, made to give its age as 14: a function of ours stands before its own.
    const { rows } = await client.query<{ name: string }>('SELECT current_database() AS name');
    await client.query(`
      CREATE SCHEMA aged;
      CREATE FUNCTION aged.current_setting(name text) RETURNS text LANGUAGE sql AS $$
        SELECT CASE name WHEN 'server_version_num' THEN '140012' ELSE '14.12' END
      $$;
      ALTER DATABASE ${rows[0]!.name} SET search_path = aged, pg_catalog, public;`);
    const fault = await faultOf(migrate(database.url, directory));
    expect(fault).toMatchObject({
      code: 'UNAVAILABLE',
      message: 'PostgreSQL 14.12 is too old: Runledger needs 15 or later.',
    });
    expect(await queryRows(`SELECT to_regclass('_prisma_migrations') AS history`)).toEqual([
      { history: null },
    ]);
  });

  test('a server that does not answer', async () => {
    const fault = await faultOf(migrate('postgresql://nobody@127.0.0.1:1/nothing', directory));
    expect(fault).toMatchObject({ code: 'UNAVAILABLE' });
  });
});
