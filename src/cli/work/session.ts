// One claimed run from its first word to its end: executes the command, again after a growing pause when it
// fails, while its output goes to the ledger and heartbeats go to the server. A run that is cancelled or taken
// away stops the command. The end is reported however long the server is away.

import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isObject } from '../../domain/json.js';
import { retryDelayMs } from '../../domain/ops-run.js';
import { ApiFault } from '../api.js';
import { pause, persist } from '../patience.js';
import { endedAs, isClaimLost, type ClaimedRun, type LogLine, type OpsApi, type Outcome } from './ops-api.js';
import { Output, type Stream } from './output.js';
import { clean } from './text.js';
import { CommandProcess, type CommandEnd } from './process.js';

export interface SessionOptions {
  readonly api: OpsApi;
  readonly run: ClaimedRun;
  readonly command: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  /** Executions in all. */
  readonly attempts: number;
  /** After the first execution; twice as long after each further one. */
  readonly retryBaseMs: number;
  readonly heartbeatMs: number;
  readonly graceMs: number;
  readonly echo: (stream: Stream, chunk: Buffer) => void;
  readonly log: (message: string) => void;
}

/** Why the command was stopped before it ended by itself. */
type StopReason = 'cancelled' | 'claim lost' | 'worker stopped';

interface Result {
  readonly outcome: Outcome;
  readonly metadata: Record<string, unknown>;
}

const STDERR_TAIL = 4_000;

export class Session {
  private readonly output = new Output((line) => this.append(line));
  private readonly stopped = new AbortController();
  private readonly never = new AbortController();
  private process: CommandProcess | null = null;
  private stopReason: StopReason | null = null;
  private lines = 0;
  private stderrTail = '';

  constructor(private readonly options: SessionOptions) {}

  async work(): Promise<Outcome> {
    const directory = await mkdtemp(join(tmpdir(), 'runledger-run-'));
    const heart = setInterval(() => void this.beat(), this.options.heartbeatMs);
    try {
      const result = await this.execute(join(directory, 'result.json'));
      await this.output.close();
      return await this.finish(result);
    } finally {
      clearInterval(heart);
      await rm(directory, { recursive: true, force: true });
    }
  }

  /** Ends the command; the run is reported as it then stands. */
  stop(reason: StopReason): void {
    if (this.stopReason !== null) return;
    this.stopReason = reason;
    this.options.log(`${this.options.run.id}: ${reason}, stopping the command`);
    this.stopped.abort();
    this.process?.stop();
  }

  private async execute(resultFile: string): Promise<Result> {
    const { command, attempts } = this.options;
    const startedAt = Date.now();
    for (let execution = 1; ; execution += 1) {
      const count = attempts === 1 ? '' : ` (${execution} of ${attempts})`;
      this.output.say(info(`runs ${command.join(' ')}${count}`, { execution }));
      const end = await this.executeOnce(execution, resultFile);
      const metadata = {
        ...(await readResult(resultFile)),
        exit_code: end.exitCode,
        ...(end.signal === null ? {} : { signal: end.signal }),
        retry_count: execution - 1,
        duration_ms: Date.now() - startedAt,
      };
      if (this.stopReason !== null) return this.cutShort(metadata);
      if (end.exitCode === 0) return { outcome: 'SUCCESS', metadata };
      const failure = { outcome: 'FAILED', metadata: { ...metadata, ...this.describe(end) } } as const;
      if (end.startError !== null || execution >= attempts) return failure;
      const delayMs = (this.options.retryBaseMs * retryDelayMs(execution)) / retryDelayMs(1);
      this.output.say({
        ...info(`${failure.metadata.error}; again in ${delayMs / 1000} s`, {}),
        level: 'WARN',
      });
      if (!(await pause(delayMs, this.stopped.signal))) return this.cutShort(failure.metadata);
    }
  }

  private async executeOnce(execution: number, resultFile: string): Promise<CommandEnd> {
    const { command, run, environment, graceMs } = this.options;
    this.stderrTail = '';
    const onOutput = (stream: Stream, chunk: Buffer): void => this.hear(stream, chunk);
    this.process = new CommandProcess({
      command,
      run,
      execution,
      environment,
      resultFile,
      graceMs,
      onOutput,
    });
    if (this.stopReason !== null) this.process.stop();
    const end = await this.process.ended;
    this.process = null;
    this.output.endOfStreams();
    return end;
  }

  private hear(stream: Stream, chunk: Buffer): void {
    this.options.echo(stream, chunk);
    this.output.write(stream, chunk);
    if (stream === 'stderr') this.stderrTail = (this.stderrTail + chunk.toString('utf8')).slice(-STDERR_TAIL);
  }

  private describe({ exitCode, signal, startError }: CommandEnd): { error: string; stderr?: string } {
    const error =
      startError !== null
        ? `the command could not be started: ${startError}`
        : signal === null
          ? `exit code ${exitCode}`
          : `ended by ${signal}`;
    const stderr = clean(this.stderrTail);
    return stderr === '' ? { error } : { error, stderr };
  }

  private cutShort(metadata: Record<string, unknown>): Result {
    return this.stopReason === 'worker stopped'
      ? { outcome: 'FAILED', metadata: { ...metadata, error: 'the worker was stopped' } }
      : { outcome: 'CANCELLED', metadata };
  }

  /** False when the run takes no more lines. */
  private async append(line: LogLine): Promise<boolean> {
    const { api, run } = this.options;
    this.lines += 1;
    const key = `${api.workerId}:${run.attempt}:${this.lines}`;
    try {
      await this.persist(() => api.append(run, line, key));
      return true;
    } catch (error) {
      if (this.noteLoss(error)) return false;
      // One line that the server does not take is no reason to drop the rest.
      this.options.log(`${run.id}: a line of output was refused: ${messageOf(error)}`);
      return error instanceof ApiFault && error.isRefusal;
    }
  }

  private async beat(): Promise<void> {
    const { api, run, log } = this.options;
    try {
      if (await api.heartbeat(run)) this.stop('cancelled');
    } catch (error) {
      // A server that is away is no news here: the next beat asks again.
      if (!this.noteLoss(error) && !(error instanceof ApiFault && error.isPassing)) {
        log(`${run.id}: the heartbeat was refused: ${messageOf(error)}`);
      }
    }
  }

  /** Whether the refusal means that the run is not ours to go on with. */
  private noteLoss(error: unknown): boolean {
    const ended = endedAs(error);
    if (ended === null && !isClaimLost(error)) return false;
    this.stop(ended === 'CANCELLED' ? 'cancelled' : 'claim lost');
    return true;
  }

  private async finish({ outcome, metadata }: Result): Promise<Outcome> {
    const { api, run, log } = this.options;
    try {
      await this.persist(() => api.finish(run, outcome, metadata));
      return outcome;
    } catch (error) {
      // Said before, but the answer was lost on its way.
      if (endedAs(error) === outcome) return outcome;
      // The server keeps what came too late as a line of the ledger.
      if (endedAs(error) !== null || isClaimLost(error)) return 'CANCELLED';
      log(`${run.id}: the end could not be reported: ${messageOf(error)}`);
      throw error;
    }
  }

  private persist<T>(work: () => Promise<T>): Promise<T> {
    return persist(work, this.never.signal, ({ message }) => this.options.log(`${message}; trying again`));
  }
}

function info(message: string, payload: LogLine['payload']): LogLine {
  return { level: 'INFO', message, payload };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** What the command left for the run's metadata; nothing when it left none, or no object. */
async function readResult(file: string): Promise<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(await readFile(file, 'utf8'));
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}
