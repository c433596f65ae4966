// `runledger prune`: deletes what has outlived its tenant's retention policy, now and not when the server gets
// to it; or tells what that would be.

import { countDueRuns, pruneDueRuns, type DueRuns } from '../store/prune.js';
import { EXIT, UsageError, type Arguments, type Command } from './command.js';
import { DATABASE_OPTIONS, withDatabase } from './database.js';

export const pruneCommand: Command = {
  name: 'prune',
  summary: 'delete what has outlived its retention policy',
  operands: '',
  description:
    'Deletes the events and the parts of runs that ended longer ago than their tenant’s retention policy says, in\n' +
    'small batches, as a running server does by itself. Runs and their counts stay. Tenants without a policy lose\n' +
    'nothing. After the database’s clock has leapt, or nobody has pruned, for more than a day, nothing is pruned for a day.',
  options: {
    ...DATABASE_OPTIONS,
    tenant: { type: 'string', value: 'NAME', help: 'this tenant’s runs alone' },
    'dry-run': { type: 'boolean', help: 'tell what would be deleted, and delete nothing' },
    json: { type: 'boolean', help: 'print JSON' },
  },
  run: prune,
};

async function prune(args: Arguments): Promise<number> {
  if (args.operands.length > 0) throw new UsageError('prune takes options only');
  const tenantId = args.text('tenant');
  return withDatabase(process.env, { url: args.text('database'), prepare: false }, async (db) => {
    if (args.flag('dry-run')) {
      const due = await countDueRuns(db, tenantId);
      console.log(args.flag('json') ? JSON.stringify(due) : due.map(render).join('\n') || 'nothing is due');
      return EXIT.success;
    }
    const totals = await pruneDueRuns(db, { tenantId, actor: 'cli' });
    console.log(
      args.flag('json') ? JSON.stringify(totals) : `pruned ${totals.runs} runs: ${totals.rows} rows`,
    );
    if (totals.heldUntil === undefined) return EXIT.success;
    console.error(
      `Nothing is pruned until ${totals.heldUntil.toISOString()}: the database’s clock has leapt by more than a day, or ` +
        'nothing has looked at it for so long. Put the clock right, or run this again then.',
    );
    return EXIT.failure;
  });
}

function render({ tenantId, kind, runs, lines, parts }: DueRuns): string {
  return `${tenantId}: ${runs} ${kind} runs, with ${lines} events and ${parts} parts`;
}
