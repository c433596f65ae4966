// `runledger cancel`: stops a run of any kind.

import { Api, ApiFault, CONNECTION_OPTIONS } from './api.js';
import { EXIT, type Arguments, type Command } from './command.js';
import { findKind, type Kind } from './run-kind.js';

const REASON = { type: 'string', value: 'TEXT', help: 'why, for the ledger of an ops run' } as const;

export const cancelCommand: Command = {
  name: 'cancel',
  summary: 'stop a run of any kind',
  operands: 'RUN',
  description: 'Cancels a run. The worker of an ops run learns of it at its next event or heartbeat.',
  options: { ...CONNECTION_OPTIONS, reason: REASON },
  run: cancel,
};

const MUTATIONS: Readonly<Record<Kind, string>> = {
  OpsRun: `mutation Cancel($input: CancelOpsRunInput!) {
    cancelOpsRun(input: $input) { userErrors { code message details } } }`,
  RuleRun: `mutation Cancel($input: RuleRunInput!) {
    cancelRuleRun(input: $input) { userErrors { code message details } } }`,
  PipelineRun: `mutation Cancel($input: PipelineRunInput!) {
    cancelPipelineRun(input: $input) { userErrors { code message details } } }`,
};

async function cancel(args: Arguments): Promise<number> {
  const runId = args.operand('RUN');
  const reason = args.text('reason');
  const api = Api.of(args, process.env);
  const kind = await findKind(api, runId);
  if (kind === null) throw new ApiFault('NOT_FOUND', `There is no run ${runId}.`, null, true);
  await api.mutate(`cancel${kind}`, MUTATIONS[kind], kind === 'OpsRun' ? { runId, reason } : { runId });
  console.log(`${runId} is cancelled`);
  return EXIT.success;
}
