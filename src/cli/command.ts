// What a subcommand is, and how its arguments are read. A command's help is made of the same table that its
// arguments are parsed by. To add a command: write one, then name it in commands.ts.

import { parseArgs } from 'node:util';
import { isObject } from '../domain/json.js';

/** What the process ends with, whatever the command. */
export const EXIT = {
  success: 0,
  /** The run failed, or the server refused. */
  failure: 1,
  usage: 2,
  /** The run was cancelled or rolled back, or is no longer ours. */
  stopped: 3,
  /** The server or the database cannot be reached, or does not let us in. */
  unreachable: 4,
} as const;

export const EXIT_HELP = `Exit codes:
  0  it went well; the run succeeded
  1  the run failed, the server refused, or something is broken
  2  wrong usage
  3  the run was cancelled or rolled back
  4  the server cannot be reached, or does not let us in; or its database`;

export interface Option {
  readonly type: 'string' | 'boolean';
  readonly help: string;
  /** What stands for the value in the help. */
  readonly value?: string;
  readonly fallback?: string;
}

export interface Command {
  readonly name: string;
  /** One line, for the list of commands. */
  readonly summary: string;
  /** The arguments beside the options, e.g. `RUN` or `-- COMMAND [ARG …]`. */
  readonly operands: string;
  readonly description: string;
  readonly options: Readonly<Record<string, Option>>;
  run(args: Arguments): Promise<number>;
}

/** The caller got the command line wrong; shown with a pointer to the help. */
export class UsageError extends Error {}

export class Arguments {
  constructor(
    private readonly command: Command,
    private readonly values: Readonly<Record<string, string | boolean | undefined>>,
    readonly operands: readonly string[],
  ) {}

  static parse(command: Command, args: readonly string[]): Arguments {
    const options = Object.fromEntries(
      Object.entries(command.options).map(([name, { type }]) => [name, { type }]),
    );
    try {
      const { values, positionals } = parseArgs({
        args: [...args],
        options,
        allowPositionals: true,
        strict: true,
      });
      return new Arguments(command, values as Record<string, string | boolean | undefined>, positionals);
    } catch (error) {
      throw new UsageError(error instanceof Error ? error.message : String(error));
    }
  }

  text(name: string): string | null {
    const value = this.values[name] ?? this.command.options[name]?.fallback;
    return typeof value === 'string' && value !== '' ? value : null;
  }

  required(name: string): string {
    const value = this.text(name);
    if (value === null) throw new UsageError(`--${name} is needed`);
    return value;
  }

  flag(name: string): boolean {
    return this.values[name] === true;
  }

  integer(name: string, min: number, max: number): number {
    const text = this.required(name);
    const value = Number(text);
    if (/^-?\d+$/.test(text) && value >= min && value <= max) return value;
    throw new UsageError(`--${name} must be an integer from ${min} to ${max}, not ${JSON.stringify(text)}`);
  }

  /** A length of time in seconds, answered in milliseconds. */
  seconds(name: string, max = 86_400): number {
    const text = this.required(name);
    const value = Number(text);
    if (/^\d+(\.\d+)?$/.test(text) && value > 0 && value <= max) return Math.round(value * 1000);
    throw new UsageError(`--${name} must be a number of seconds up to ${max}, not ${JSON.stringify(text)}`);
  }

  oneOf<const T extends string>(name: string, words: readonly T[]): T {
    const text = this.required(name);
    const word = words.find((each) => each === text);
    if (word === undefined)
      throw new UsageError(`--${name} must be ${words.join(' or ')}, not ${JSON.stringify(text)}`);
    return word;
  }

  jsonObject(name: string): Record<string, unknown> | null {
    const text = this.text(name);
    if (text === null) return null;
    try {
      const value: unknown = JSON.parse(text);
      if (isObject(value)) return value;
    } catch {
      // Falls through: not JSON at all.
    }
    throw new UsageError(`--${name} must be a JSON object`);
  }

  /** The one operand of a command that takes exactly one. */
  operand(what: string): string {
    const [only, ...more] = this.operands;
    if (only === undefined || more.length > 0) throw new UsageError(`exactly one ${what} is needed`);
    return only;
  }
}

export function renderHelp(command: Command): string {
  const operands = command.operands === '' ? '' : ` ${command.operands}`;
  const entries: (readonly [string, string])[] = Object.entries(command.options).map(
    ([name, { value, help, fallback }]) => [
      `--${name}${value === undefined ? '' : ` ${value}`}`,
      fallback === undefined ? help : `${help} (${fallback})`,
    ],
  );
  return [
    `Usage: runledger ${command.name} [OPTIONS]${operands}`,
    '',
    command.description,
    '',
    'Options:',
    ...toColumns([...entries, ['--help', 'show this']]),
    '',
    EXIT_HELP,
  ].join('\n');
}

export function toColumns(entries: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...entries.map(([term]) => term.length));
  return entries.map(([term, meaning]) => `  ${term.padEnd(width)}  ${meaning}`);
}
