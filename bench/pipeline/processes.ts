// The processes of the benchmark, and what they use: CPU time and resident memory, as the kernel counts them.

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const CLOCK_TICKS_PER_SECOND = 100;

export class BenchProcess {
  private constructor(
    readonly child: ChildProcess,
    /** What it said when it was ready. */
    readonly greeting: string,
  ) {}

  /** `file` is relative to the project; TypeScript runs as it is. */
  static async start(
    file: string,
    args: readonly string[],
    isReady: (line: string) => boolean,
    env: Readonly<Record<string, string>> = {},
  ): Promise<BenchProcess> {
    const path = fileURLToPath(new URL(`../../${file}`, import.meta.url));
    const loader = path.endsWith('.ts') ? ['--import', 'tsx'] : [];
    const child = spawn(process.execPath, [...loader, path, ...args], {
      env: { PATH: process.env['PATH'], ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    for await (const line of createInterface({ input: child.stdout })) {
      if (!isReady(line)) continue;
      child.stdout.resume();
      return new BenchProcess(child, line);
    }
    throw new Error(`${file} ended before it was ready`);
  }

  get usage(): Usage {
    return usageOf(this.child.pid!);
  }

  async end(): Promise<void> {
    const exited = once(this.child, 'exit');
    this.child.kill('SIGTERM');
    await exited;
  }
}

export interface Usage {
  readonly cpuSeconds: number;
  readonly residentMb: number;
  /** The most that was ever resident. */
  readonly peakMb: number;
}

function usageOf(pid: number): Usage {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The name is in parentheses and may hold anything; user and system time are 12 and 13 fields after it.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const megabytes = (field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0) / 1024;
  return {
    cpuSeconds: (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS_PER_SECOND,
    residentMb: megabytes('VmRSS'),
    peakMb: megabytes('VmHWM'),
  };
}

export function parentOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
}

/** Of all processes whose parent is `pid`: PostgreSQL's backends. What has ended is not counted. */
export function cpuOfChildren(pid: number): number {
  let seconds = 0;
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      if (parentOf(Number(name)) === pid) seconds += usageOf(Number(name)).cpuSeconds;
    } catch {
      // It ended while it was looked at.
    }
  }
  return seconds;
}
