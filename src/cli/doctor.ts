// `runledger doctor`: examines the database, and says what is wrong and what to do. Reads only.

import { examine, type Diagnosis } from '../store/doctor.js';
import { MIGRATIONS, readVersion } from '../store/migrate.js';
import { EXIT, UsageError, type Arguments, type Command } from './command.js';
import { DATABASE_OPTIONS, withDatabase } from './database.js';

export const doctorCommand: Command = {
  name: 'doctor',
  summary: 'examine the database: is everything as it must be?',
  operands: '',
  description:
    'Checks every invariant of the runs and their ledger, the guards that keep them, and whether work goes on.\n' +
    'It reads only, and a large database range by range: no statement of it holds back the work for long.\n' +
    'Ends with 1 when something is broken; a warning alone is no failure unless --strict.',
  options: {
    ...DATABASE_OPTIONS,
    strict: { type: 'boolean', help: 'a warning is a failure too' },
    quiet: { type: 'boolean', help: 'show what is wrong and nothing else' },
    json: { type: 'boolean', help: 'print one JSON object per check' },
  },
  run: doctor,
};

const MARKS = { ERROR: 'BROKEN', WARNING: 'warn  ' } as const;

async function doctor(args: Arguments): Promise<number> {
  if (args.operands.length > 0) throw new UsageError('doctor takes options only');
  const given = { url: args.text('database'), prepare: false, readOnly: true };
  return withDatabase(process.env, given, async (db) => {
    const counts = { checks: 0, broken: 0, warnings: 0 };
    for await (const diagnosis of examine(db, await readVersion(MIGRATIONS))) {
      counts.checks += 1;
      if (diagnosis.count > 0) counts[diagnosis.severity === 'ERROR' ? 'broken' : 'warnings'] += 1;
      if (args.flag('json')) console.log(JSON.stringify(diagnosis));
      else if (diagnosis.count > 0 || !args.flag('quiet')) console.log(render(diagnosis));
    }
    const { checks, broken, warnings } = counts;
    if (!args.flag('json')) console.log(`${checks} checks: ${broken} broken, ${warnings} warnings`);
    return broken > 0 || (args.flag('strict') && warnings > 0) ? EXIT.failure : EXIT.success;
  });
}

function render({ name, says, remedy, severity, findings, count }: Diagnosis): string {
  if (count === 0) return `ok      ${name}: ${says}`;
  const rest = count - findings.length;
  return [
    `${MARKS[severity]}  ${name}: ${says}`,
    ...findings.map(({ id, fault }) => `          ${id}: ${fault}`),
    ...(rest > 0 ? [`          … and ${rest} more`] : []),
    `        → ${remedy}`,
  ].join('\n');
}
