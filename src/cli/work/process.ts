// The command of one attempt: started with the run as its environment and on its standard input, and stopped
// together with everything it has started.

import { spawn, type ChildProcess } from 'node:child_process';
import type { ClaimedRun } from './ops-api.js';
import type { Stream } from './output.js';

export interface CommandEnd {
  /** Null when it never ran or a signal ended it. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** Why it could not be started; null when it could. */
  readonly startError: string | null;
}

export interface CommandOptions {
  readonly command: readonly string[];
  readonly run: ClaimedRun;
  readonly execution: number;
  readonly environment: NodeJS.ProcessEnv;
  /** Where the command may leave a JSON object for the run's metadata. */
  readonly resultFile: string;
  /** From SIGTERM to SIGKILL. */
  readonly graceMs: number;
  readonly onOutput: (stream: Stream, chunk: Buffer) => void;
}

export class CommandProcess {
  private readonly child: ChildProcess;
  private killer: NodeJS.Timeout | null = null;
  readonly ended: Promise<CommandEnd>;

  constructor(private readonly options: CommandOptions) {
    const [file, ...args] = options.command;
    // A group of its own: a signal reaches all of it, and Ctrl-C in the worker's terminal does not.
    this.child = spawn(file!, args, {
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
      env: environmentOf(options),
    });
    this.ended = this.watch();
    this.giveRun();
  }

  /** SIGTERM now, SIGKILL when that is not heeded in time. */
  stop(): void {
    if (this.killer !== null) return;
    this.signal('SIGTERM');
    this.killer = setTimeout(() => this.signal('SIGKILL'), this.options.graceMs);
  }

  private watch(): Promise<CommandEnd> {
    const { child } = this;
    child.stdout!.on('data', (chunk: Buffer) => this.options.onOutput('stdout', chunk));
    child.stderr!.on('data', (chunk: Buffer) => this.options.onOutput('stderr', chunk));
    return new Promise((resolve) => {
      const end = (result: CommandEnd): void => {
        if (this.killer) clearTimeout(this.killer);
        resolve(result);
      };
      child.once('error', ({ message }) => {
        if (child.pid === undefined) end({ exitCode: null, signal: null, startError: message });
      });
      // Not `exit`: what it has written last is still on its way then.
      child.once('close', (exitCode, signal) => end({ exitCode, signal, startError: null }));
    });
  }

  private giveRun(): void {
    const { id, ...run } = this.options.run;
    // A command that does not read it closes its end, which is its right.
    this.child.stdin!.on('error', () => {});
    this.child.stdin!.end(`${JSON.stringify({ runId: id, ...run, execution: this.options.execution })}\n`);
  }

  private signal(signal: NodeJS.Signals): void {
    const { pid } = this.child;
    if (pid === undefined) return;
    try {
      process.kill(-pid, signal);
    } catch {
      // It has ended in the meantime.
    }
  }
}

/** The worker's own environment with the run in it, without the key: the command is not the worker. */
function environmentOf({ run, execution, environment, resultFile }: CommandOptions): NodeJS.ProcessEnv {
  const { RUNLEDGER_API_KEY: _key, ...inherited } = environment;
  return {
    ...inherited,
    RUNLEDGER_RUN_ID: run.id,
    RUNLEDGER_RUN_PROJECT: run.projectId,
    RUNLEDGER_RUN_ENV: run.env,
    RUNLEDGER_RUN_GIT_SHA: run.gitSha ?? '',
    RUNLEDGER_RUN_GIT_REF: run.gitRef ?? '',
    RUNLEDGER_RUN_METADATA: JSON.stringify(run.metadata),
    RUNLEDGER_RUN_ATTEMPT: String(run.attempt),
    RUNLEDGER_RUN_EXECUTION: String(execution),
    RUNLEDGER_RUN_RESULT: resultFile,
  };
}
