// A database of somebody else's hosting: its owner may do all in it and is no superuser. Migrations, the SQL surface
// and pruning, which lean on settings of ours, are to work there as anywhere.
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Database } from '../../src/store/db.js';
import { examine } from '../../src/store/doctor.js';
import { migrate, readVersion } from '../../src/store/migrate.js';
import { pruneDueRuns } from '../../src/store/prune.js';
import { refusalOf, surfaceOf, type OpsSurface } from '../ops/support.js';
import { connect, createEmptyDatabase, MIGRATIONS, type EmptyDatabase } from '../support/database.js';
import { seedWorld, type World } from '../support/fixtures.js';
import { endedRun, keepFor, NOTHING, rowsOf } from '../support/retention.js';

const owner = `owner_${randomUUID().replaceAll('-', '')}`;

let empty: EmptyDatabase;
let admin: pg.Client;
let url: string;
let db: Database;
let world: World;
let client: pg.Client;
let surface: OpsSurface;

beforeAll(async () => {
  empty = await createEmptyDatabase();
  admin = await connect(empty.url);
  await admin.query(`CREATE ROLE ${owner} LOGIN PASSWORD 'owner' NOSUPERUSER NOCREATEROLE NOCREATEDB`);
  const asOwner = new URL(empty.url);
  await admin.query(`ALTER DATABASE ${asOwner.pathname.slice(1)} OWNER TO ${owner}`);
  asOwner.username = owner;
  asOwner.password = 'owner';
  url = asOwner.href;
  await migrate(url, MIGRATIONS);
  db = new Database({ url });
  world = await seedWorld(db);
  client = await connect(url);
  surface = surfaceOf(client);
});
afterAll(async () => {
  await client?.end();
  await db?.close();
  await admin.end();
  await empty.drop();
  const server = await connect(new URL('/postgres', empty.url).href);
  await server.query(`DROP ROLE ${owner}`);
  await server.end();
});

const actor = async (): Promise<unknown> =>
  (await surface.row(`SELECT current_setting('runledger.actor', true) AS actor`))['actor'];

test('the verbs of the surface name the worker, and leave the session’s own setting as it was', async () => {
  await client.query('BEGIN');
  await client.query(`SET LOCAL runledger.actor = 'somebody'`);
  const runId = await surface.queue('here');
  expect(await surface.claim('worker-001', 'here')).toBe(runId);
  await surface.append(runId, 'hello', 'info', 'worker-001');
  expect(await actor()).toBe('somebody');
  await client.query('SAVEPOINT before');
  expect((await refusalOf(surface.finish(runId, 'success', {}, 'worker-002'))).code).toBe('RL004');
  await client.query('ROLLBACK TO before');
  expect(await actor()).toBe('somebody');
  expect(await surface.finish(runId, 'success', {}, 'worker-001')).toBe('success');
  expect(await actor()).toBe('somebody');
  await client.query('COMMIT');
  const events = await surface.events(runId);
  expect(events[0]).toMatchObject({ type: 'ops_run.create', actor: `sql:${owner}` });
  expect(new Set(events.slice(1).map((event) => event['actor']))).toEqual(new Set(['worker-001']));
});

test('a run is pruned, and afterwards its transaction may delete nothing more', async () => {
  const runId = await endedRun(db, world.home, 'FAILED', 31);
  await keepFor(db, world.home, 'RULE', 30);
  expect(await pruneDueRuns(db)).toMatchObject({ runs: 1 });
  expect(await rowsOf(db, runId)).toEqual(NOTHING);

  const other = await endedRun(db, world.home, 'FAILED', 31);
  await client.query('BEGIN');
  expect(await surface.row(`SELECT retention_begin('RULE', $1)`, other)).toBeDefined();
  expect(await surface.row('SELECT removed FROM retention_prune($1, 1)', other)).toEqual({ removed: 1 });
  expect((await refusalOf(client.query('DELETE FROM run_event WHERE run_id = $1', [other]))).code).toBe(
    'RL003',
  );
  await client.query('ROLLBACK');
});

test('doctor finds it well', async () => {
  for await (const { name, count, findings } of examine(db, await readVersion(MIGRATIONS)))
    expect({ name, count, findings }).toEqual({ name, count: 0, findings: [] });
});
