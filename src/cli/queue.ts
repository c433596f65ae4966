// `runledger queue`: queues an ops run, prints its id, and waits for its end if asked.

import { DEFAULT_MAX_ATTEMPTS, STALE_ACTIONS } from '../domain/ops-run.js';
import { Api, CONNECTION_OPTIONS } from './api.js';
import { EXIT, UsageError, type Arguments, type Command } from './command.js';
import { watchRun } from './watch/watch-run.js';

const QUEUE = `mutation Queue($input: QueueOpsRunInput!) {
  queueOpsRun(input: $input) {
    opsRun { id status projectId env gitSha gitRef idempotencyKey queuedAt metadata }
    userErrors { code message details }
  }
}`;

const MAX_PRIORITY = 2 ** 31 - 1;

export const queueCommand: Command = {
  name: 'queue',
  summary: 'queue an ops run for a worker to claim',
  operands: '',
  description: 'Queues an ops run and prints its id.',
  options: {
    ...CONNECTION_OPTIONS,
    project: { type: 'string', value: 'NAME', help: 'the label to file it under', fallback: 'default' },
    env: { type: 'string', value: 'NAME', help: 'the environment it is for (needed)' },
    sha: { type: 'string', value: 'SHA', help: 'the commit it is about' },
    ref: { type: 'string', value: 'REF', help: 'the branch or tag it is about' },
    metadata: { type: 'string', value: 'JSON', help: 'an object for the worker' },
    'idempotency-key': { type: 'string', value: 'KEY', help: 'the same key again is the same run again' },
    priority: { type: 'string', value: 'N', help: 'higher is claimed first', fallback: '0' },
    'on-stale': {
      type: 'string',
      value: 'WAY',
      help: 'cancel or requeue it when its worker falls silent',
      fallback: 'cancel',
    },
    'max-attempts': {
      type: 'string',
      value: 'N',
      help: 'how often it may be claimed, with --on-stale requeue',
      fallback: String(DEFAULT_MAX_ATTEMPTS),
    },
    wait: { type: 'boolean', help: 'watch it to its end, and end with its outcome' },
    json: { type: 'boolean', help: 'print the run as JSON' },
  },
  run: queue,
};

async function queue(args: Arguments): Promise<number> {
  if (args.operands.length > 0) throw new UsageError('queue takes options only');
  const api = Api.of(args, process.env);
  const { opsRun } = await api.mutate<{ opsRun: { id: string } }>('queueOpsRun', QUEUE, {
    projectId: args.required('project'),
    env: args.required('env'),
    gitSha: args.text('sha'),
    gitRef: args.text('ref'),
    metadata: args.jsonObject('metadata'),
    idempotencyKey: args.text('idempotency-key'),
    priority: args.integer('priority', -MAX_PRIORITY, MAX_PRIORITY),
    onStale: args.oneOf('on-stale', STALE_ACTIONS).toUpperCase(),
    maxAttempts: args.integer('max-attempts', 1, 100),
  });
  console.log(args.flag('json') ? JSON.stringify(opsRun) : opsRun.id);
  if (!args.flag('wait')) return EXIT.success;
  return watchRun(api, opsRun.id, { json: args.flag('json'), events: false });
}
