// The command line itself: help, wrong usage, a server that is not there or does not let us in.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Arguments, renderHelp, UsageError } from '../../src/cli/command.js';
import { COMMANDS } from '../../src/cli/commands.js';
import { TestApp } from '../support/app.js';
import { Cli } from './support.js';

let app: TestApp;
beforeAll(async () => {
  app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
});
afterAll(() => app.stop());

/** Nobody listens there. */
const NOWHERE = 'http://127.0.0.1:9';

describe('help', () => {
  test('lists every command and every exit code', async () => {
    const { code, stdout } = await Cli.run(NOWHERE, ['--help']);
    expect(code).toBe(0);
    for (const { name, summary } of COMMANDS) expect(stdout).toContain(`${name.padEnd(6)}  ${summary}`);
    expect(stdout).toMatch(/0 {2}it went well[^]*4 {2}the server cannot be reached/);
  });

  test('no command at all is told the same, as a mistake', async () => {
    const { code, stdout, stderr } = await Cli.run(NOWHERE, []);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('Usage: runledger COMMAND');
  });

  test.each(COMMANDS.map((command) => [command.name, command] as const))(
    'of %s names its options',
    (_name, command) => {
      const text = renderHelp(command);
      expect(text).toContain(`Usage: runledger ${command.name}`);
      for (const [name, { help }] of Object.entries(command.options))
        expect(text).toMatch(new RegExp(`--${name} .*${help.slice(0, 20)}`));
    },
  );

  test('what follows -- is not for us', async () => {
    const { code, stdout } = await Cli.run(app.url, ['work', '--once', '--env', 'none', '--', 'x', '--help']);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
  });
});

describe('wrong usage', () => {
  test.each<[string[], string]>([
    [['frob'], 'there is no command "frob"'],
    [['--frob'], 'a command comes first'],
    [['queue'], '--env is needed'],
  ])('%j ends with 2, before anybody is called', async (args, message) => {
    const { code, stdout, stderr } = await Cli.run(NOWHERE, args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(`runledger: ${message}`);
  });

  test.each<[string, string[], string]>([
    ['queue', ['--env', 'x', 'more'], 'queue takes options only'],
    ['queue', ['--env', 'x', '--metadata', '[1]'], '--metadata must be a JSON object'],
    ['queue', ['--env', 'x', '--metadata', '{'], '--metadata must be a JSON object'],
    ['queue', ['--env', 'x', '--on-stale', 'weep'], '--on-stale must be cancel or requeue'],
    ['queue', ['--env', 'x', '--url', 'ftp://x'], '--url must be an http or https URL'],
    ['work', [], 'the command to execute is needed'],
    ['work', ['--attempts', '0', '--', 'x'], '--attempts must be an integer from 1 to 100'],
    ['work', ['--grace', 'soon', '--', 'x'], '--grace must be a number of seconds'],
    ['work', ['--frob', '--', 'x'], "Unknown option '--frob'"],
    ['watch', [], 'exactly one RUN is needed'],
    ['cancel', ['a', 'b'], 'exactly one RUN is needed'],
  ])('%s %j: %s', async (name, args, message) => {
    const command = COMMANDS.find((each) => each.name === name)!;
    const outcome = Promise.resolve().then(() => command.run(Arguments.parse(command, args)));
    await expect(outcome).rejects.toThrow(message);
    await expect(outcome).rejects.toBeInstanceOf(UsageError);
  });
});

test('no server: says so and ends with 4', async () => {
  const { code, stdout, stderr } = await Cli.run(NOWHERE, ['queue', '--env', 'x']);
  expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
  expect(stderr).toMatch(/^runledger: http:\/\/127\.0\.0\.1:9\/graphql cannot be reached: .+\n$/);
});

test.each(['watch run-x', 'work --once -- x'])('a key that opens nothing ends %s with 4', async (line) => {
  const { code, stderr } = await Cli.run(app.url, line.split(' '), { RUNLEDGER_API_KEY: 'not-a-key' });
  expect(code).toBe(4);
  expect(stderr).toMatch(/^runledger: .*key/i);
});

test.each(['watch x', 'cancel run-x'])('a run that is not there ends %s with 1', async (line) => {
  const { code, stderr } = await Cli.run(app.url, line.split(' '));
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr: `runledger: There is no run ${line.split(' ')[1]}.\n`,
  });
});

test('queue prints the id, or the run; the same key is the same run; cancel ends it', async () => {
  const args = [
    'queue',
    '--project',
    'shop',
    '--env',
    'staging',
    '--sha',
    'abc',
    '--ref',
    'main',
    '--priority=-3',
  ];
  const keyed = [
    ...args,
    '--metadata',
    '{"a": 1}',
    '--idempotency-key',
    'k',
    '--on-stale',
    'requeue',
    '--max-attempts',
    '5',
  ];
  const first = await Cli.run(app.url, keyed);
  expect(first).toMatchObject({ code: 0, stdout: expect.stringMatching(/^run-[0-9a-f-]{36}\n$/) });
  const runId = first.stdout.trim();
  const again = await Cli.run(app.url, [...keyed, '--json']);
  expect(JSON.parse(again.stdout)).toMatchObject({
    id: runId,
    projectId: 'shop',
    gitSha: 'abc',
    gitRef: 'main',
    metadata: { a: 1 },
    idempotencyKey: 'k',
  });
  const mismatch = await Cli.run(app.url, [...args, '--idempotency-key', 'k']);
  expect(mismatch).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('idempotencyKey') });

  expect(await Cli.run(app.url, ['cancel', runId, '--reason', 'enough'])).toMatchObject({
    code: 0,
    stdout: `${runId} is cancelled\n`,
  });
  expect(await Cli.run(app.url, ['cancel', runId])).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('cancelled'),
  });
  const { data } = await app.request('query ($id: ID!) { opsRun(id: $id) { status metadata } }', {
    id: runId,
  });
  expect(data.opsRun).toMatchObject({ status: 'CANCELLED', metadata: { a: 1, reason: 'enough' } });
});

test('numbers and lengths of time are read exactly', () => {
  const work = COMMANDS.find(({ name }) => name === 'work')!;
  const parse = (...args: string[]) => Arguments.parse(work, args);
  expect(parse('--grace', '0.25').seconds('grace')).toBe(250);
  expect(parse().seconds('backoff')).toBe(5_000);
  for (const wrong of ['-1', '0', '1e3', '', '0x10', '90000']) {
    expect(() => parse(`--grace=${wrong}`).seconds('grace'), wrong).toThrow('--grace');
  }
});
