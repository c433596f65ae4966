// Who may do what with the SQL surface: role runledger_worker has its verbs and two views, and nothing else;
// a database role sees its own tenant; nobody passes for somebody else in the ledger.
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
import { seedWorld } from '../support/fixtures.js';
import { OpsSurface, refusalOf, surfaceOf } from './support.js';

let database: TestDatabase;
let admin: pg.Client;
/** Logged in as a role of its own that is a member of runledger_worker. */
let client: pg.Client;
let worker: OpsSurface;
const login = `runledger_test_${crypto.randomUUID().replaceAll('-', '')}`;

beforeAll(async () => {
  database = await createTestDatabase();
  await seedWorld(database.db);
  admin = await connect(database.url);
  await admin.query(`CREATE ROLE ${login} LOGIN PASSWORD 'test' IN ROLE runledger_worker`);
  const url = new URL(database.url);
  url.username = login;
  url.password = 'test';
  client = await connect(url.href);
  worker = surfaceOf(client);
});
afterEach(() => admin.query('DELETE FROM sql_role'));
afterAll(async () => {
  await client.end();
  await admin.query(`DROP ROLE ${login}`);
  await admin.end();
  await database.drop();
});

const DENIED = '42501';

test('a worker has every verb, and the views to look', async () => {
  const runId = await worker.queue('rights');
  expect(await worker.claim('worker-001', 'rights')).toBe(runId);
  await worker.append(runId, 'hello');
  expect(await worker.rows(`SELECT ops.heartbeat($1, 'worker-001') AS status`, runId)).toEqual([
    { status: 'running' },
  ]);
  expect(await worker.finish(runId, 'success')).toBe('success');
  expect((await worker.events(runId)).map(({ type }) => type)).toContain('ops_run.succeed');
  expect((await worker.events(runId))[0]).toMatchObject({ actor: `sql:${login}` });
});

test('a worker sees and changes nothing else', async () => {
  const { rows: tables } = await admin.query<{ name: string }>(
    `SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname = 'public'`,
  );
  expect(tables.length).toBeGreaterThan(15);
  for (const { name } of tables) {
    expect((await refusalOf(client.query(`SELECT 1 FROM ${name}`))).code, name).toBe(DENIED);
  }
  for (const text of [
    `UPDATE ops.runs SET status = 'cancelled'`,
    'DELETE FROM ops.runs',
    `INSERT INTO ops.runs (project_id, env_id) VALUES ('p', 'e')`,
    `INSERT INTO ops.run_events (run_id, level, message) VALUES ('x', 'info', 'x')`,
    'SELECT ops.grant_worker()',
    `SELECT ops_run_claim('other', 'worker-001', NULL, NULL)`,
    'CREATE TABLE public.mine ()',
    'CREATE TABLE ops.mine ()',
  ]) {
    expect((await refusalOf(client.query(text))).code, text).toBe(DENIED);
  }
});

test('no role has the surface without being granted it', async () => {
  const { rows } = await admin.query(
    `SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = 'ops' AND has_function_privilege('pg_monitor', p.oid, 'EXECUTE')`,
  );
  expect(rows).toEqual([]);
  const { rows: pinned } = await admin.query(
    `SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE p.prosecdef AND n.nspname IN ('ops', 'public')
       AND NOT coalesce(array_to_string(p.proconfig, ';') LIKE '%search_path=pg_catalog, public, pg_temp%', false)`,
  );
  expect(pinned).toEqual([]);
});

test('a role sees the tenant it is entered for, and can set nothing to see another', async () => {
  const home = await worker.queue('tenants', 'key');
  await admin.query(`INSERT INTO sql_role VALUES ($1, 'other')`, [login]);
  const away = await worker.queue('tenants', 'key');
  expect(away).not.toBe(home);
  await client.query(`SET runledger.tenant = 'default'`);
  expect(await worker.rows('SELECT run_id FROM ops.runs')).toEqual([{ run_id: away }]);
  expect(await worker.events(home)).toEqual([]);
  expect((await refusalOf(worker.finish(home, 'cancelled'))).code).toBe('RL006');
  expect(await worker.claim('worker-001')).toBe(away);
  expect(await worker.claim('worker-001')).toBeNull();
});

test('what a session says of itself is not believed', async () => {
  await client.query(`SET runledger.actor = 'system'`);
  const runId = await worker.queue('actors');
  await worker.claim('worker-001', 'actors');
  await worker.append(runId, 'hello');
  await worker.finish(runId, 'cancelled');
  const actors = (await worker.events(runId)).map(({ actor }) => actor);
  expect(new Set(actors)).toEqual(new Set([`sql:${login}`, 'worker-001']));
  expect(await worker.row('SHOW runledger.actor')).toEqual({ 'runledger.actor': 'system' });
  await client.query('RESET runledger.actor');
});

test('a leaky condition is not asked about rows of another tenant', async () => {
  await worker.queue('hidden');
  await admin.query(`INSERT INTO sql_role VALUES ($1, 'other')`, [login]);
  await worker.queue('visible');
  await client.query(`CREATE FUNCTION pg_temp.tell(env text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
    BEGIN RAISE NOTICE '%', env; RETURN true; END $$`);
  // Every row is looked at, and the cheapest condition is asked first.
  await client.query('SET enable_indexscan = off; SET enable_bitmapscan = off');
  const told: (string | undefined)[] = [];
  client.on('notice', ({ message }) => told.push(message));
  await client.query('SELECT * FROM ops.runs WHERE pg_temp.tell(env_id)');
  expect(told).toContain('visible');
  expect(told).not.toContain('hidden');
});
