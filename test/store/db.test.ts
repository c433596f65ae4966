// Connections that are cut fail what they were used for, and nothing else.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { Database, translated } from '../../src/store/db.js';
import { prepared } from '../../src/store/prepared.js';
import { isCalledOff } from '../../src/store/sqlstate.js';
import { until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

test('a connection cut between two statements of a transaction fails it, and not the process', async () => {
  const { db } = database;
  const cut = db.transaction('test', async (connection) => {
    const { rows } = await connection.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    await db.query('SELECT pg_terminate_backend($1)', [rows[0]!.pid]);
    await until(
      () => db.query('SELECT FROM pg_stat_activity WHERE pid = $1', [rows[0]!.pid]),
      (found) => found.length === 0,
    );
    await connection.query('SELECT 1');
  });
  await expect(cut).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  await db.ping();
});

test.each([
  ['refuses connections', null],
  ['cuts them', (end: () => void) => end()],
])('a server that %s is unavailable to both ways of asking it', async (_what, welcome) => {
  const server = createServer((socket) => welcome?.(() => socket.resetAndDestroy()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  if (welcome === null) await new Promise((resolve) => server.close(resolve));
  const db = new Database({ url: `postgres://u@127.0.0.1:${port}/none` });
  await expect(db.ping()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  await expect(translated(db.prisma.tenant.count())).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  await db.close();
  server.close();
});

test.each([0, 1, 2, 5])(
  'of statements that go out together the one that failed is heard of (%i waits)',
  async (waits) => {
    let tries = 0;
    const answer = database.db.transaction('test', async (connection) => {
      tries += 1;
      const lost = `DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$`;
      const failing = async (depth: number): Promise<unknown> =>
        depth > 0 ? Promise.all([failing(depth - 1)]) : connection.query(tries < 3 ? lost : 'SELECT 1');
      await Promise.all([failing(waits), connection.query('SELECT 2'), connection.query('SELECT 3')]);
      return 'done';
    });
    expect(await answer).toBe('done');
    expect(tries).toBe(3);
  },
);

test('a prepared statement is planned once per connection, and has its name for itself', async () => {
  const one = new Database({ url: database.url, maxConnections: 1 });
  const statement = prepared('test_sum', 'SELECT $1::int + $2::int AS sum');
  expect(await one.queryPrepared(statement, [1, 2])).toEqual([{ sum: 3 }]);
  expect(await one.queryPrepared(statement, [3, 4])).toEqual([{ sum: 7 }]);
  const kept = await one.query(`SELECT name FROM pg_prepared_statements WHERE name = 'test_sum'`);
  expect(kept).toEqual([{ name: 'test_sum' }]);
  await one.close();
  expect(() => prepared('test_sum', 'SELECT 1')).toThrow('test_sum');
});

test('statements that go out with their COMMIT are kept together or not at all', async () => {
  const { db } = database;
  await db.query('CREATE TABLE kept (n int)');
  const write = (n: number, isMet: boolean): Promise<unknown> =>
    db.transactionAtOnce('test', (connection) =>
      Promise.all([
        connection.query('INSERT INTO kept VALUES ($1)', [n]),
        connection.query('SELECT call_off_unless($1)', [isMet]),
        connection.query('INSERT INTO kept VALUES ($1)', [n + 1]),
      ]),
    );
  const fault = await write(1, false).catch((error: unknown) => error);
  expect(isCalledOff(fault)).toBe(true);
  await write(3, true);
  expect(await db.query('SELECT n FROM kept ORDER BY n')).toEqual([{ n: 3 }, { n: 4 }]);
});
