// The `runledger` command as a process of its own, against a server of the tests.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { ADMIN_KEY } from '../support/app.js';

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Cli {
  private stdout = '';
  private stderr = '';
  private heard: () => void = () => {};
  readonly ended: Promise<Ended>;

  private constructor(readonly child: ChildProcess) {
    child.stdout!.on('data', (chunk: Buffer) => this.hear('stdout', chunk));
    child.stderr!.on('data', (chunk: Buffer) => this.hear('stderr', chunk));
    this.ended = once(child, 'close').then(([code]) => ({
      code: code as number | null,
      stdout: this.stdout,
      stderr: this.stderr,
    }));
  }

  static start(url: string, args: readonly string[], env: Record<string, string> = {}): Cli {
    const child = spawn(process.execPath, ['--import', 'tsx', MAIN, ...args], {
      env: { PATH: process.env['PATH'], RUNLEDGER_URL: url, RUNLEDGER_API_KEY: ADMIN_KEY, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    return new Cli(child);
  }

  static run(url: string, args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
    return Cli.start(url, args, env).ended;
  }

  /** Resolves as soon as its output contains the text; the test's own timeout bounds it. */
  async says(text: string): Promise<void> {
    while (!`${this.stdout}\n${this.stderr}`.includes(text)) {
      await new Promise<void>((resolve) => (this.heard = resolve));
    }
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  private hear(stream: 'stdout' | 'stderr', chunk: Buffer): void {
    this[stream] += chunk.toString('utf8');
    this.heard();
  }
}

/** Node's own words for a script, so that no test depends on the shell's tools. */
export function script(text: string): string[] {
  return ['--', process.execPath, '-e', text];
}
