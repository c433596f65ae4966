#!/usr/bin/env node
// The `runledger` command: finds the subcommand, reads its arguments, and ends with its exit code. Errors that
// a person can mend are one line on standard error; anything else is shown whole.

import { inspect } from 'node:util';
import { ApiFault } from './api.js';
import { Arguments, EXIT, EXIT_HELP, renderHelp, toColumns, UsageError } from './command.js';
import { COMMANDS } from './commands.js';
import { AppError } from '../errors.js';
import { redactText } from '../redaction.js';

async function main(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args;
  if (name === undefined || name === 'help' || name.startsWith('-')) return showOverview(name);
  const command = COMMANDS.find((each) => each.name === name);
  if (!command) throw new UsageError(`there is no command ${JSON.stringify(name)}`);
  // What follows `--` is for somebody else.
  const own = rest.includes('--') ? rest.slice(0, rest.indexOf('--')) : rest;
  if (own.includes('--help') || own.includes('-h')) {
    console.log(renderHelp(command));
    return EXIT.success;
  }
  try {
    return await command.run(Arguments.parse(command, rest));
  } catch (error) {
    if (error instanceof UsageError) error.message += ` (see runledger ${name} --help)`;
    throw error;
  }
}

function showOverview(asked: string | undefined): number {
  if (asked !== undefined && !['help', '-h', '--help'].includes(asked)) {
    throw new UsageError(`a command comes first, not ${asked} (see runledger --help)`);
  }
  const overview = [
    'Usage: runledger COMMAND [OPTIONS]',
    '',
    'Commands:',
    ...toColumns(COMMANDS.map(({ name, summary }) => [name, summary] as const)),
    '',
    'runledger COMMAND --help tells more of each.',
    '',
    EXIT_HELP,
  ].join('\n');
  (asked === undefined ? console.error : console.log)(overview);
  return asked === undefined ? EXIT.usage : EXIT.success;
}

function explain(error: unknown): number {
  if (error instanceof UsageError) {
    console.error(`runledger: ${error.message}`);
    return EXIT.usage;
  }
  if (error instanceof ApiFault) {
    console.error(`runledger: ${error.message}`);
    return error.isRefusal ? EXIT.failure : EXIT.unreachable;
  }
  console.error(error instanceof AppError ? `runledger: ${error.message}` : redactText(inspect(error)));
  return error instanceof AppError && error.code === 'UNAVAILABLE' ? EXIT.unreachable : EXIT.failure;
}

// A reader that has seen enough (`| head`) is no fault of ours.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(process.exitCode ?? EXIT.success);
});

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.exitCode = explain(error);
}
