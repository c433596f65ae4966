// The package as it would be published: packed, put where npm would put it, and used as its README says, in Node
// and in a bundle for browsers.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { build, type Rollup } from 'vite';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { ADMIN_KEY, TestApp } from '../support/app.js';
import { fire, makeRow, seedWorld } from '../support/fixtures.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** What the client is used with; the rest of the dependencies is the server's. */
const NEEDED = ['graphql-ws', 'graphql', 'ws'];

let home: string;

async function run(command: string, args: readonly string[], cwd: string): Promise<void> {
  const child = spawn(command, args, { cwd, stdio: ['ignore', 'ignore', 'inherit'] });
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${code}`);
}

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'runledger-package-'));
  const npm = process.env['npm_execpath'];
  const pack = ['pack', '--silent', '--pack-destination', home];
  if (npm?.endsWith('npm-cli.js')) await run(process.execPath, [npm, ...pack], ROOT);
  else await run('npm', pack, ROOT);
  const [tarball] = await readdir(home);
  const modules = join(home, 'node_modules');
  await mkdir(join(modules, 'runledger'), { recursive: true });
  await run('tar', ['-xzf', tarball!, '-C', join('node_modules', 'runledger'), '--strip-components=1'], home);
  for (const name of NEEDED) await symlink(join(ROOT, 'node_modules', name), join(modules, name));
}, 120_000);
afterAll(() => rm(home, { recursive: true, force: true }));

test('the ten lines of the README watch a run to its end, and its ledger', async () => {
  const readme = await readFile(join(home, 'node_modules', 'runledger', 'README.md'), 'utf8');
  const lines = /```js\n(.*?runledger\/client.*?)```/s.exec(readme)![1]!;
  const app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
  const world = await seedWorld(app.db);
  const row = await makeRow(app.db, world.home, ruleRunMachine);
  const options = `url: '${app.url}', apiKey: '${ADMIN_KEY}'`;
  await writeFile(join(home, 'watch.mjs'), lines.replace("url: 'http://127.0.0.1:4000/graphql'", options));
  const child = spawn(process.execPath, ['watch.mjs', row.id], {
    cwd: home,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const said: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    said.push(line);
    if (said.length === 1) await fire(app.db, row, 'cancel');
    if (line.startsWith('2 ')) break;
  }
  child.kill();
  await exited;
  await app.stop();
  expect(said).toEqual([
    'PREVIEW 0 % 1',
    expect.stringMatching(/^CANCELLED \d+ % 2$/),
    expect.stringMatching(/^1 rule_run.create /),
    expect.stringMatching(/^2 rule_run.cancel /),
  ]);
});

test('what its papers link to is in the package', async () => {
  const place = join(home, 'node_modules', 'runledger');
  const papers = (await readdir(place, { recursive: true })).filter((name) => name.endsWith('.md'));
  const broken: string[] = [];
  let links = 0;
  for (const paper of papers) {
    const text = await readFile(join(place, paper), 'utf8');
    for (const [, link] of text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)) {
      links += 1;
      if (!existsSync(join(place, dirname(paper), link!))) broken.push(`${paper}: ${link}`);
    }
  }
  expect(broken).toEqual([]);
  expect(links).toBeGreaterThan(10);
});

test('in a bundle for browsers there is nothing of Node, and of the server nothing', async () => {
  await writeFile(
    join(home, 'page.js'),
    "export { RunledgerClient, RunledgerError } from 'runledger/client';\n",
  );
  const bundled = (await build({
    root: home,
    configFile: false,
    logLevel: 'silent',
    build: {
      write: false,
      minify: false,
      lib: { entry: join(home, 'page.js'), formats: ['es'], fileName: 'page' },
    },
  })) as Rollup.RollupOutput[];
  const [chunk, ...others] = bundled.flatMap(({ output }) => output);
  if (chunk?.type !== 'chunk') throw new Error('no chunk');
  expect(others).toEqual([]);
  expect([...chunk.imports, ...chunk.dynamicImports]).toEqual([]);
  expect([...chunk.exports].sort()).toEqual(['RunledgerClient', 'RunledgerError']);
  const isOurs = /runledger\/dist\/client\/|graphql-ws\/dist\/|page\.js$/;
  // A builtin would come as a module that stands in for it.
  expect(Object.keys(chunk.modules).filter((name) => !isOurs.test(name))).toEqual([]);
  expect(chunk.code).not.toMatch(/\brequire\(|\bprocess\.|\bBuffer\b|from ['"]node:/);
});
