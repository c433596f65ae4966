// `runledger work`: turns this machine into a worker of ops runs.

import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { DEFAULT_MAX_ATTEMPTS, RETRY_BASE_MS } from '../../domain/ops-run.js';
import { Api, CONNECTION_OPTIONS } from '../api.js';
import { EXIT, UsageError, type Arguments, type Command } from '../command.js';
import { OpsApi, type Outcome } from './ops-api.js';
import { Worker } from './worker.js';

export const workCommand: Command = {
  name: 'work',
  summary: 'claim ops runs and execute a command for each',
  operands: '-- COMMAND [ARG …]',
  description: `Claims ops runs one after another and executes COMMAND for each. The command finds the run in
RUNLEDGER_RUN_ID, _PROJECT, _ENV, _GIT_SHA, _GIT_REF, _METADATA, _ATTEMPT, _EXECUTION and as JSON on
standard input. Its output goes to the run's ledger; exit code 0 is success. A JSON object that it
writes to the file RUNLEDGER_RUN_RESULT is added to the run's metadata, e.g. {"artifacts": [{"type":
"image", "url": "…"}]}. A cancelled run gets SIGTERM, then SIGKILL.

SIGINT or SIGTERM ends the worker after the run at hand; a second one stops the command.`,
  options: {
    ...CONNECTION_OPTIONS,
    project: { type: 'string', value: 'NAME', help: 'only runs of this project' },
    env: { type: 'string', value: 'NAME', help: 'only runs for this environment' },
    'worker-id': {
      type: 'string',
      value: 'ID',
      help: 'the name to claim under (host, pid and a random tag)',
    },
    attempts: {
      type: 'string',
      value: 'N',
      help: 'executions of a command that fails, in all',
      fallback: String(DEFAULT_MAX_ATTEMPTS),
    },
    backoff: {
      type: 'string',
      value: 'SECONDS',
      help: 'the pause after the first failure, doubled each time',
      fallback: String(RETRY_BASE_MS / 1000),
    },
    grace: { type: 'string', value: 'SECONDS', help: 'from SIGTERM to SIGKILL', fallback: '10' },
    heartbeat: { type: 'string', value: 'SECONDS', help: 'between two signs of life', fallback: '5' },
    poll: { type: 'string', value: 'SECONDS', help: 'between two looks at an empty queue', fallback: '2' },
    once: { type: 'boolean', help: 'end after one run, with its outcome, or at once when there is none' },
    'until-empty': { type: 'boolean', help: 'end when there is nothing to claim' },
    quiet: { type: 'boolean', help: 'do not repeat the output of the command here' },
  },
  run: work,
};

async function work(args: Arguments): Promise<number> {
  if (args.operands.length === 0) throw new UsageError('the command to execute is needed, after --');
  const workerId = args.text('worker-id') ?? `${hostname()}-${process.pid}-${randomBytes(3).toString('hex')}`;
  const quiet = args.flag('quiet');
  const worker = new Worker({
    api: new OpsApi(Api.of(args, process.env), workerId),
    filter: { projectId: args.text('project'), env: args.text('env') },
    command: args.operands,
    environment: process.env,
    attempts: args.integer('attempts', 1, 100),
    retryBaseMs: args.seconds('backoff'),
    graceMs: args.seconds('grace'),
    heartbeatMs: args.seconds('heartbeat'),
    pollMs: args.seconds('poll'),
    until: args.flag('once') ? 'one' : args.flag('until-empty') ? 'empty' : 'never',
    echo: (stream, chunk) => void (quiet || process[stream].write(chunk)),
    log: (message) => console.error(`runledger: ${message}`),
  });
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => worker.stop());
  const outcome = await worker.run();
  return args.flag('once') ? exitCodeOf(outcome) : EXIT.success;
}

function exitCodeOf(outcome: Outcome | null): number {
  switch (outcome) {
    case 'FAILED':
      return EXIT.failure;
    case 'CANCELLED':
      return EXIT.stopped;
    default:
      return EXIT.success;
  }
}
