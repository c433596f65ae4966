// A server that dies and comes back while a worker works and a person watches: the command goes on, no line is
// lost or doubled, and the end is reported.
import { writeFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { request, ServerProcess } from '../support/app.js';
import { createTestDatabase } from '../support/database.js';
import { OpsSurface, type Session } from '../ops/support.js';
import { Cli, script } from './support.js';

const SETTINGS = { RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off', RUNLEDGER_LOG_LEVEL: 'error' };

test('work and watch survive kill -9 of the server', async () => {
  const database = await createTestDatabase();
  const directory = mkdtempSync(join(tmpdir(), 'runledger-test-'));
  const gate = join(directory, 'gate');
  let server = await ServerProcess.spawn(database.url, SETTINGS);
  const { url } = server;
  const session = {
    query: async (text: string, values?: unknown[]) => ({ rows: await database.db.query(text, values) }),
  };
  const ops = new OpsSurface(session as Session);
  try {
    const runId = await ops.queue('restart');
    const watcher = Cli.start(url, ['watch', runId]);
    // Says something, waits for the gate, and says more, all of it while nobody listens.
    const worker = Cli.start(url, [
      'work',
      '--once',
      '--heartbeat',
      '0.1',
      '--env',
      'restart',
      ...script(`
        console.log('before');
        const look = setInterval(() => {
          if (!require('fs').existsSync(${JSON.stringify(gate)})) return;
          clearInterval(look);
          for (let i = 0; i < 50; i += 1) console.log('line ' + i);
        }, 20);`),
    ]);
    await watcher.says('before');
    await server.end('SIGKILL');
    writeFileSync(gate, '');
    await worker.says('line 49');
    await worker.says('trying again');
    server = await ServerProcess.spawn(database.url, { ...SETTINGS, PORT: new URL(url).port });

    expect(await worker.ended).toMatchObject({ code: 0 });
    const { code, stdout } = await watcher.ended;
    expect(code).toBe(0);
    const lines = ['before', ...Array.from({ length: 50 }, (_, index) => `line ${index}`)];
    const output = (await ops.events(runId)).filter(({ payload }) => 'stream' in (payload as object));
    expect(output.map(({ message }) => message).join('\n')).toBe(lines.join('\n'));
    expect(await ops.run(runId)).toMatchObject({ status: 'success' });

    // What was watched is the ledger, each line once.
    const seen = stdout.split('\n').filter((line) => /(^| )(before|line \d+)$/.test(line));
    expect(seen.map((line) => /(before|line \d+)$/.exec(line)![1])).toEqual(lines);
    const { data } = await request(url, '{ opsRuns { totalCount } }');
    expect(data.opsRuns.totalCount).toBe(1);
  } finally {
    if (!existsSync(gate)) writeFileSync(gate, '');
    await server.end('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
    await database.drop();
  }
}, 60_000);
