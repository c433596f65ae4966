// The server as `npm start` runs it, with its own PostgreSQL: from nothing, after kill -9 of either, and by Ctrl-C.
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { findRunningPostgres } from '../../src/postgres/embedded-postgres.js';
import { makeClient } from '../client/support.js';
import { request, until } from '../support/app.js';

const run = promisify(execFile);

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
let dataDir: string;
/** What a failed test left behind. */
const servers: ChildProcess[] = [];

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'runledger-embedded-'));
});
afterEach(() => void servers.splice(0).forEach((child) => child.kill('SIGKILL')));
afterAll(() => rm(dataDir, { recursive: true, force: true }));

interface Server {
  readonly child: ChildProcess;
  readonly url: string;
}

/** In a process group of its own, as a shell would start it. */
async function start(): Promise<Server> {
  const child = spawn(process.execPath, ['--import', 'tsx', MAIN], {
    env: { PATH: process.env['PATH'], RUNLEDGER_DATA_DIR: dataDir, PORT: '0', RUNLEDGER_LOG_LEVEL: 'error' },
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  servers.push(child);
  for await (const line of createInterface({ input: child.stdout })) {
    const url = /listens at (\S+)/.exec(line)?.[1];
    if (url !== undefined) return { child, url };
  }
  throw new Error('the server ended before it listened');
}

const RUNS = '{ ruleRuns { nodes { id status correlationId counts { total } } } }';

test('starts from nothing, survives kill -9, and Ctrl-C ends all of it in order', async () => {
  const first = await start();
  const { data } = await request(first.url, RUNS, {}, null);
  const [demo] = data.ruleRuns.nodes;
  expect(demo).toMatchObject({ status: 'PREVIEW', correlationId: 'demo' });
  const killed = once(first.child, 'exit');
  first.child.kill('SIGKILL');
  await killed;

  const second = await start();
  expect((await request(second.url, RUNS, {}, null)).data.ruleRuns.nodes).toEqual([demo]);
  const ended = once(second.child, 'exit');
  // The terminal's interrupt reaches every process of the group at once.
  process.kill(-second.child.pid!, 'SIGINT');
  expect(await ended).toEqual([0, null]);
  await expect(fetch(second.url)).rejects.toThrow();
}, 60_000);

/** Its postmaster, the parent of every session. */
async function killPostgres(): Promise<void> {
  const client = new pg.Client({ connectionString: (await findRunningPostgres(dataDir))! });
  client.on('error', () => {});
  await client.connect();
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const { stdout } = await run('ps', ['-o', 'ppid=', '-p', String(rows[0]!.pid)]);
  const gone = new Promise<void>((resolve) => client.once('end', resolve));
  process.kill(Number(stdout), 'SIGKILL');
  await gone;
}

test('goes on when its PostgreSQL is killed, with the same subscribers', async () => {
  const { child, url } = await start();
  const { data } = await request(url, RUNS, {}, null);
  const { id } = data.ruleRuns.nodes[0];
  const seqs: number[] = [];
  for await (const { seq, type } of makeClient(url).runEvents(id)) {
    seqs.push(seq);
    if (type === 'rule_run.add_targets') {
      await killPostgres();
      // Asked again while the database is away: the key makes it one request.
      const queue = `mutation { queueRuleRun(input: { runId: "${id}", idempotencyKey: "go" }) { userErrors { code } } }`;
      await until(
        () => request(url, queue, {}, null),
        (answer) => answer.data?.queueRuleRun?.userErrors.length === 0,
      );
    }
    if (type === 'rule_run.complete' || type === 'rule_run.complete_partially') break;
  }
  expect(seqs).toEqual(seqs.map((_, index) => index + 1));
  const ended = once(child, 'exit');
  child.kill('SIGINT');
  expect(await ended).toEqual([0, null]);
}, 120_000);

test('a wrong value names every fault and ends the process with an error', async () => {
  const child = spawn(process.execPath, ['--import', 'tsx', MAIN], {
    env: { PATH: process.env['PATH'], PORT: 'high', RUNLEDGER_ROLE: 'boss' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stderr })) lines.push(line);
  const [code] = child.exitCode === null ? ((await once(child, 'exit')) as [number]) : [child.exitCode];
  expect(code).not.toBe(0);
  expect(lines.join('\n')).toMatch(/PORT: .*\n.*RUNLEDGER_ROLE: /);
});
