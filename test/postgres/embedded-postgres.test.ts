// The embedded PostgreSQL, for real: starts, keeps data, recovers from kills, refuses what it must.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, lstat, mkdir, mkdtemp, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  findRunningPostgres,
  startEmbeddedPostgres,
  type EmbeddedPostgres,
} from '../../src/postgres/embedded-postgres.js';
import { commandOf, startMark } from '../../src/postgres/processes.js';

let scratch: string;
let dataDir: string;
let warnings: string[];
let running: EmbeddedPostgres[];
let children: ChildProcess[];

const log = { info: () => {}, warn: (message: string) => void warnings.push(message) };

beforeEach(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'runledger-embedded-'));
  // mkdtemp makes it 0700; an ordinary project directory lets others through.
  await chmod(scratch, 0o755);
  dataDir = join(scratch, 'data');
  warnings = [];
  running = [];
  children = [];
});

afterEach(async () => {
  for (const child of children) child.kill('SIGKILL');
  await Promise.all(running.map((postgres) => postgres.stop()));
  const moved = await readlink(join(dataDir, 'moved-to')).catch(() => null);
  if (moved !== null) await rm(moved, { recursive: true, force: true });
  await rm(scratch, { recursive: true, force: true, maxRetries: 5 });
});

async function start(directory = dataDir): Promise<EmbeddedPostgres> {
  const postgres = await startEmbeddedPostgres({ dataDir: directory, log, durable: false });
  running.push(postgres);
  return postgres;
}

async function query<T>(url: string, sql: string): Promise<T[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(sql)).rows as T[];
  } finally {
    await client.end();
  }
}

/** A server in a process of its own; resolves when its PostgreSQL is up. */
async function startChild(): Promise<{ child: ChildProcess; url: string; pid: number }> {
  const script = fileURLToPath(new URL('./hold-server.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', script, dataDir], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  const [url] = (await once(createInterface(child.stdout!), 'line')) as [string];
  return { child, url, pid: child.pid! };
}

async function killHard(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

async function postmasterPid(): Promise<number> {
  return Number((await readFile(join(dataDir, 'pgdata', 'postmaster.pid'), 'utf8')).split('\n')[0]);
}

describe('a server', () => {
  test('starts from nothing, keeps its data over a stop, and is gone after it', async () => {
    const first = await start();
    await query(first.url, 'CREATE TABLE kept AS SELECT 42 AS answer');
    const pid = await postmasterPid();
    await first.stop();
    expect(startMark(pid)).toBeNull();
    expect(await first.exited).toMatchObject({ expected: true });
    await first.stop();

    const second = await start();
    expect(await query(second.url, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }]);
    expect(warnings).toEqual([]);
  });

  test('is found by others while it runs, wherever its data is', async () => {
    expect(await findRunningPostgres(dataDir)).toBeNull();
    const postgres = await start();
    expect(await findRunningPostgres(dataDir)).toBe(postgres.url);
    await postgres.stop();
    expect(await findRunningPostgres(dataDir)).toBeNull();
  });

  test('speaks UTF-8 with a locale that does not depend on the machine', async () => {
    const { url } = await start();
    const sql = `SELECT datlocprovider AS provider, datlocale AS locale, pg_encoding_to_char(encoding) AS encoding,
      current_setting('TimeZone') AS zone FROM pg_database WHERE datname = current_database()`;
    expect(await query(url, sql)).toEqual([
      { provider: 'b', locale: 'C.UTF-8', encoding: 'UTF8', zone: 'UTC' },
    ]);
  });

  test('asks for its password, and lets nobody else read it', async () => {
    const { url } = await start();
    const wrong = new URL(url);
    wrong.password = 'guess';
    await expect(query(wrong.href, 'SELECT 1')).rejects.toMatchObject({ code: '28P01' });
    expect((await stat(join(dataDir, 'password'))).mode & 0o777).toBe(0o600);
    expect((await stat(join(dataDir, 'pgdata'))).mode & 0o777).toBe(0o700);
    expect(await query(url, 'SHOW listen_addresses')).toEqual([{ listen_addresses: '127.0.0.1' }]);
    expect(await query(url, 'SHOW unix_socket_directories')).toEqual([{ unix_socket_directories: '' }]);
  });

  test('is durable unless told otherwise', async () => {
    const postgres = await startEmbeddedPostgres({ dataDir, log });
    running.push(postgres);
    const sql = `SELECT name, setting FROM pg_settings
      WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name`;
    expect(await query(postgres.url, sql)).toEqual([
      { name: 'fsync', setting: 'on' },
      { name: 'full_page_writes', setting: 'on' },
      { name: 'synchronous_commit', setting: 'on' },
    ]);
  });

  test('tells when PostgreSQL dies by itself, and can be started again', async () => {
    const first = await start();
    process.kill(await postmasterPid(), 'SIGQUIT');
    const exit = await first.exited;
    expect(exit.expected).toBe(false);
    expect(exit.message).toContain('immediate shutdown');
    await first.stop();
    const second = await start();
    expect(await query(second.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  });
});

describe('one data directory', () => {
  test('has one server at a time: the second is told the pid of the first', async () => {
    const { pid, url } = await startChild();
    await expect(start()).rejects.toMatchObject({
      code: 'CONFLICT',
      message: expect.stringContaining(`pid ${pid}`) as string,
    });
    expect(await query(url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  });

  test('is free again when its server has stopped in order', async () => {
    const { child } = await startChild();
    child.kill('SIGTERM');
    await once(child, 'exit');
    await start();
    expect(warnings).toEqual([]);
  });

  test('survives kill -9 of its server: the orphan is stopped, committed data is there', async () => {
    const { child, url } = await startChild();
    await query(url, 'CREATE TABLE kept AS SELECT 42 AS answer');
    const orphan = await postmasterPid();
    await killHard(child);
    expect(startMark(orphan)).not.toBeNull();

    const postgres = await start();
    expect(startMark(orphan)).toBeNull();
    expect(warnings).toEqual([expect.stringContaining(`pid ${orphan}`)]);
    expect(await query(postgres.url, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }]);
  });

  test('survives kill -9 of its server and of PostgreSQL', async () => {
    const { child, url } = await startChild();
    await query(url, 'CREATE TABLE kept AS SELECT 42 AS answer');
    const postmaster = await postmasterPid();
    await killHard(child);
    process.kill(postmaster, 'SIGKILL');
    await expect.poll(() => startMark(postmaster)).toBeNull();
    const postgres = await start();
    expect(await query(postgres.url, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }]);
  });

  test('is not kept by a pid that was given to another process', async () => {
    const first = await start();
    await first.stop();
    const stranger = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6)'], { stdio: 'ignore' });
    children.push(stranger);
    await once(stranger, 'spawn');
    await writeFile(join(dataDir, 'server.lock'), JSON.stringify({ pid: stranger.pid, started: 'long ago' }));
    await writeFile(
      join(dataDir, 'pgdata', 'postmaster.pid'),
      `${stranger.pid}\n${dataDir}/pgdata\n0\n0\n\n\n`,
    );
    const second = await start();
    expect(await query(second.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    expect(commandOf(stranger.pid!)).not.toBeNull();
  });

  test('is made anew where creating it was interrupted', async () => {
    await mkdir(join(dataDir, 'pgdata.new', 'base'), { recursive: true });
    const { url } = await start();
    expect(await query(url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    expect(existsSync(join(dataDir, 'pgdata.new'))).toBe(false);
  });

  test('works below a directory that nobody else can enter, and finds its data again', async () => {
    await chmod(scratch, 0o700);
    const first = await start();
    await query(first.url, 'CREATE TABLE kept AS SELECT 42 AS answer');
    await first.stop();
    const second = await start();
    expect(await query(second.url, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }]);
    // Where the data went elsewhere (as root), every start says so.
    const moved = await lstat(join(dataDir, 'moved-to')).then(
      () => readlink(join(dataDir, 'moved-to')),
      () => null,
    );
    expect(warnings).toEqual(
      moved === null ? [] : [1, 2].map(() => expect.stringContaining(moved) as string),
    );
  });

  test('works if it was made for its owner alone', async () => {
    await mkdir(dataDir, { mode: 0o700 });
    const { url } = await start();
    expect(await query(url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    expect(warnings).toEqual([]);
    expect(existsSync(join(dataDir, 'pgdata', 'PG_VERSION'))).toBe(true);
  });
});

describe('a clear error', () => {
  test('for the data of another major version', async () => {
    const first = await start();
    await first.stop();
    await writeFile(join(dataDir, 'pgdata', 'PG_VERSION'), '15\n');
    await expect(start()).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/made by PostgreSQL 15.*this is PostgreSQL 18/s) as string,
    });
  });

  test('for a directory that cannot be made', async () => {
    const file = join(scratch, 'file');
    await writeFile(file, '');
    await expect(start(join(file, 'data'))).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringContaining('RUNLEDGER_DATA_DIR') as string,
    });
  });

  test('for a cluster whose password is lost', async () => {
    const first = await start();
    await first.stop();
    await rm(join(dataDir, 'password'));
    await expect(start()).rejects.toMatchObject({
      message: expect.stringContaining('password file') as string,
    });
  });

  test('that leaves the directory free', async () => {
    const first = await start();
    await first.stop();
    await writeFile(join(dataDir, 'pgdata', 'PG_VERSION'), '15\n');
    await expect(start()).rejects.toThrow();
    await writeFile(join(dataDir, 'pgdata', 'PG_VERSION'), '18\n');
    const { url } = await start();
    expect(await query(url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  });

  test('for settings PostgreSQL refuses, with the end of its log', async () => {
    const first = await start();
    await first.stop();
    await writeFile(join(dataDir, 'pgdata', 'postgresql.conf'), 'no_such_setting = 1\n');
    await expect(start()).rejects.toMatchObject({
      message: expect.stringContaining('no_such_setting') as string,
    });
  });
});
