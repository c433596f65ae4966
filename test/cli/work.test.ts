// `runledger work` as a process, with commands that are processes too: what a command is given, what comes of
// its output and its end, retries, cancellation, and being asked to stop.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { TestApp, until } from '../support/app.js';
import { Cli, script } from './support.js';

let app: TestApp;
let key: string;

beforeAll(async () => {
  app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
  key = await app.createKey('WORKER');
});
afterAll(() => app.stop());

const QUEUE = `mutation ($input: QueueOpsRunInput!) { queueOpsRun(input: $input) { opsRun { id } userErrors { message } } }`;
const RUN = `query ($id: ID!) { opsRun(id: $id) {
  status claimedBy metadata artifacts { type url } events(first: 1000) { nodes { type level message payload actor } } } }`;

interface Line {
  readonly type: string;
  readonly level: string;
  readonly message: string;
  readonly payload: Record<string, unknown>;
  readonly actor: string;
}

async function queue(more: object = {}): Promise<{ id: string; env: string }> {
  const env: string = crypto.randomUUID();
  const { data } = await app.request(QUEUE, { input: { projectId: 'shop', env, ...more } });
  return { id: data.queueOpsRun.opsRun.id as string, env };
}

async function runOf(id: string) {
  const { data } = await app.request(RUN, { id });
  return { ...data.opsRun, lines: data.opsRun.events.nodes as Line[] };
}

/** What the ledger has of a stream. */
function textOf(lines: readonly Line[], stream: string): string {
  return lines
    .filter(({ payload }) => payload['stream'] === stream)
    .map(({ message }) => message)
    .join('\n');
}

function work(env: string, ...args: string[]): Cli {
  const common = ['work', '--once', '--quiet', '--env', env, '--backoff', '0.05', '--heartbeat', '0.1'];
  return Cli.start(app.url, [...common, ...args], { RUNLEDGER_API_KEY: key });
}

test('the command gets the run, its output gets to the ledger, its result to the metadata', async () => {
  const { id, env } = await queue({ gitSha: 'abc', gitRef: 'main', metadata: { size: 3 } });
  const { code, stdout, stderr } = await work(
    env,
    '--worker-id',
    'worker-7',
    ...script(`
      const { RUNLEDGER_RUN_RESULT, RUNLEDGER_API_KEY, ...env } = process.env;
      const given = Object.entries(env).filter(([name]) => name.startsWith('RUNLEDGER_RUN_'));
      console.log(JSON.stringify({ ...Object.fromEntries(given), key: RUNLEDGER_API_KEY }));
      console.error('careful');
      const artifacts = [{ type: 'image', url: 'registry.example/shop:abc' }];
      require('fs').writeFileSync(RUNLEDGER_RUN_RESULT, JSON.stringify({ artifacts, deploy_url: 'https://x.example' }));
      process.stdin.pipe(process.stdout);
    `),
  ).ended;
  expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
  expect(stderr).toContain(`${id}: success`);

  const run = await runOf(id);
  expect(run).toMatchObject({
    status: 'SUCCESS',
    claimedBy: 'worker-7',
    metadata: { size: 3, exit_code: 0, retry_count: 0, deploy_url: 'https://x.example' },
    artifacts: [{ type: 'image', url: 'registry.example/shop:abc' }],
  });
  const [environment, input] = textOf(run.lines, 'stdout')
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(environment).toEqual({
    RUNLEDGER_RUN_ID: id,
    RUNLEDGER_RUN_PROJECT: 'shop',
    RUNLEDGER_RUN_ENV: env,
    RUNLEDGER_RUN_GIT_SHA: 'abc',
    RUNLEDGER_RUN_GIT_REF: 'main',
    RUNLEDGER_RUN_METADATA: '{"size":3}',
    RUNLEDGER_RUN_ATTEMPT: '1',
    RUNLEDGER_RUN_EXECUTION: '1',
  });
  expect(input).toEqual({
    runId: id,
    projectId: 'shop',
    env,
    gitSha: 'abc',
    gitRef: 'main',
    metadata: { size: 3 },
    attempt: 1,
    execution: 1,
  });
  expect(run.lines.find(({ message }: Line) => message === 'careful')).toMatchObject({
    type: 'log',
    level: 'WARN',
    actor: 'worker-7',
    payload: { stream: 'stderr', lines: 1 },
  });
});

test('a command that fails is tried again, and the third failure is the last', async () => {
  const { id, env } = await queue();
  const { code } = await work(env, ...script(`console.error('no luck'); process.exit(7)`)).ended;
  expect(code).toBe(1);
  const run = await runOf(id);
  expect(run).toMatchObject({
    status: 'FAILED',
    metadata: { exit_code: 7, retry_count: 2, error: 'exit code 7', stderr: 'no luck\n' },
  });
  const own = run.lines.filter(
    ({ type, payload }: Line) => type === 'log' && payload['stream'] === undefined,
  );
  expect(own.map(({ message }: Line) => message.replace(/ \/.* \(/, ' … ('))).toEqual([
    'runs … (1 of 3)',
    'exit code 7; again in 0.05 s',
    'runs … (2 of 3)',
    'exit code 7; again in 0.1 s',
    'runs … (3 of 3)',
  ]);
  expect(textOf(run.lines, 'stderr')).toBe('no luck\nno luck\nno luck');
});

test('one success is enough', async () => {
  const { id, env } = await queue();
  const { code } = await work(
    env,
    ...script('process.exit(process.env.RUNLEDGER_RUN_EXECUTION === "2" ? 0 : 1)'),
  ).ended;
  expect(code).toBe(0);
  expect(await runOf(id)).toMatchObject({ status: 'SUCCESS', metadata: { exit_code: 0, retry_count: 1 } });
});

test('a command that cannot be started fails at once', async () => {
  const { id, env } = await queue();
  const { code } = await work(env, '--', './no-such-command').ended;
  expect(code).toBe(1);
  expect(await runOf(id)).toMatchObject({
    status: 'FAILED',
    metadata: { retry_count: 0, error: expect.stringMatching(/could not be started.*ENOENT/) },
  });
});

test('a megabyte of output arrives whole', async () => {
  const { id, env } = await queue();
  const text = `for (let i = 0; i < 20000; i += 1) console.log(i + ' ' + 'x'.repeat(50))`;
  expect((await work(env, ...script(text)).ended).code).toBe(0);
  const run = await runOf(id);
  const expected = Array.from({ length: 20_000 }, (_, index) => `${index} ${'x'.repeat(50)}`).join('\n');
  expect(textOf(run.lines, 'stdout') === expected).toBe(true);
});

describe('cancelled', () => {
  test('the command gets SIGTERM, and what it says of that is its own', async () => {
    const { id, env } = await queue();
    const worker = work(
      env,
      ...script(`
        process.on('SIGTERM', () => process.exit(9));
        console.log('at work');
        setInterval(() => {}, 1000);`),
    );
    await until(
      () => runOf(id),
      ({ lines }) => textOf(lines, 'stdout') === 'at work',
    );
    await app.request(
      'mutation ($id: ID!) { cancelOpsRun(input: { runId: $id, reason: "stop" }) { userErrors { code } } }',
      { id },
    );
    expect((await worker.ended).code).toBe(3);
    const run = await runOf(id);
    expect(run).toMatchObject({ status: 'CANCELLED', metadata: { reason: 'stop' } });
    expect(run.lines.at(-1)).toMatchObject({
      type: 'ops_run.late_result',
      payload: { metadata: { exit_code: 9 } },
    });
  });

  test('a command that does not heed it is killed, with all that it has started', async () => {
    const { id, env } = await queue();
    const deaf = `process.on('SIGTERM', () => {}); setInterval(() => {}, 1000);`;
    const worker = work(
      env,
      '--grace',
      '0.2',
      ...script(`
        ${deaf}
        const child = require('child_process').spawn(process.execPath, ['-e', ${JSON.stringify(deaf)}], { stdio: 'ignore' });
        console.log(child.pid);`),
    );
    const { lines } = await until(
      () => runOf(id),
      (run) => textOf(run.lines, 'stdout') !== '',
    );
    await app.request('mutation ($id: ID!) { cancelOpsRun(input: { runId: $id }) { userErrors { code } } }', {
      id,
    });
    expect((await worker.ended).code).toBe(3);
    expect((await runOf(id)).lines.at(-1)).toMatchObject({ payload: { metadata: { signal: 'SIGKILL' } } });
    const grandchild = Number(textOf(lines, 'stdout'));
    await until(
      async () => isAlive(grandchild),
      (alive) => !alive,
    );
  });
});

describe('asked to stop', () => {
  test('the worker finishes the run at hand and claims no other', async () => {
    const { id, env } = await queue();
    const other = await app.request(QUEUE, { input: { projectId: 'shop', env } });
    const worker = Cli.start(app.url, [
      'work',
      '--env',
      env,
      ...script(`console.log('at work'); process.stdin.resume(); setTimeout(() => {}, 400)`),
    ]);
    await worker.says('at work');
    worker.signal('SIGTERM');
    expect((await worker.ended).code).toBe(0);
    expect(await runOf(id)).toMatchObject({ status: 'SUCCESS' });
    expect(await runOf(other.data.queueOpsRun.opsRun.id as string)).toMatchObject({ status: 'QUEUED' });
  });

  test('twice, it stops the command and reports that', async () => {
    const { id, env } = await queue();
    const worker = Cli.start(app.url, [
      'work',
      '--env',
      env,
      ...script(`console.log('at work'); setInterval(() => {}, 1000)`),
    ]);
    await worker.says('at work');
    worker.signal('SIGINT');
    await worker.says('once more to stop');
    worker.signal('SIGINT');
    expect((await worker.ended).code).toBe(0);
    expect(await runOf(id)).toMatchObject({
      status: 'FAILED',
      metadata: { error: 'the worker was stopped', signal: 'SIGTERM' },
    });
  });

  test('with nothing to do it ends at once', async () => {
    const worker = Cli.start(app.url, ['work', '--env', 'nothing', '--poll', '600', '--', 'x']);
    await until(
      async () => worker.signal('SIGTERM'),
      () => worker.child.exitCode !== null || worker.child.signalCode !== null,
    );
    await worker.ended;
  });
});

test('several workers share the work until there is none', async () => {
  const { env } = await queue();
  for (let index = 0; index < 7; index += 1) await app.request(QUEUE, { input: { projectId: 'shop', env } });
  const workers = [1, 2, 3].map((index) =>
    Cli.start(app.url, [
      'work',
      '--until-empty',
      '--quiet',
      '--worker-id',
      `shared-${index}`,
      '--env',
      env,
      ...script(''),
    ]),
  );
  for (const worker of workers) expect((await worker.ended).code).toBe(0);
  const { data } = await app.request('query ($env: String) { opsRuns(env: $env) { nodes { status } } }', {
    env,
  });
  expect(data.opsRuns.nodes).toEqual(Array.from({ length: 8 }, () => ({ status: 'SUCCESS' })));
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
