// `runledger watch`: follows a run of any kind in the terminal.

import { Api, CONNECTION_OPTIONS } from '../api.js';
import type { Arguments, Command } from '../command.js';
import { watchRun } from './watch-run.js';

export const watchCommand: Command = {
  name: 'watch',
  summary: 'follow a run of any kind to its end',
  operands: 'RUN',
  description: `Follows a run until it ends: a progress bar for rule and pipeline runs, the ledger for ops runs.
Survives a restart of the server without missing or repeating a line. Ends with the run's outcome.`,
  options: {
    ...CONNECTION_OPTIONS,
    events: { type: 'boolean', help: 'show the ledger of rule and pipeline runs too' },
    json: { type: 'boolean', help: 'one JSON object per line: {"state": …} or {"event": …}' },
  },
  run: watch,
};

function watch(args: Arguments): Promise<number> {
  const runId = args.operand('RUN');
  return watchRun(Api.of(args, process.env), runId, { json: args.flag('json'), events: args.flag('events') });
}
