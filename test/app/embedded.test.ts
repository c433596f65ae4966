// The server as `npm start` runs it, with its own PostgreSQL: from nothing, after kill -9, and by Ctrl-C.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { request } from '../support/app.js';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
let dataDir: string;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'runledger-embedded-'));
});
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
