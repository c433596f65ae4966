// A command's output on its way to the ledger: lines are collected into batches, one event each, sent in order
// and not too often. The command never waits for the server: what does not fit into the buffer is counted and
// left out, with a line that says so.

import { StringDecoder } from 'node:string_decoder';
import type { LogLine } from './ops-api.js';
import { cleanLine, cut } from './text.js';

export type Stream = 'stdout' | 'stderr';

export interface OutputLimits {
  /** Characters of one event; the server takes 65,536 bytes, and a character has up to three. */
  readonly batchLength: number;
  /** How long a line may wait for others to share an event with. */
  readonly gatherMs: number;
  /** Least time between two events. */
  readonly gapMs: number;
  /** Characters that wait to be sent. */
  readonly bufferLength: number;
}

const DEFAULT_OUTPUT_LIMITS: OutputLimits = {
  batchLength: 16_384,
  gatherMs: 500,
  gapMs: 100,
  bufferLength: 4_194_304,
};

interface Batch {
  readonly stream: Stream;
  readonly lines: string[];
  length: number;
}

export class Output {
  private readonly limits: OutputLimits;
  private readonly pieces: Record<Stream, Pieces> = { stdout: new Pieces(), stderr: new Pieces() };
  private readonly waiting: (Batch | LogLine)[] = [];
  private length = 0;
  private omitted = 0;
  private firstLine: Record<Stream, number> = { stdout: 1, stderr: 1 };
  private closing = false;
  private wake: () => void = () => {};
  private readonly pumping: Promise<void>;

  constructor(
    /** Must not throw; false when nothing more is taken. */
    private readonly send: (line: LogLine) => Promise<boolean>,
    limits: Partial<OutputLimits> = {},
  ) {
    this.limits = { ...DEFAULT_OUTPUT_LIMITS, ...limits };
    this.pumping = this.pump();
  }

  write(stream: Stream, chunk: Buffer): void {
    for (const line of this.pieces[stream].take(chunk, this.limits.batchLength)) this.add(stream, line);
  }

  /** A line of the worker's own. */
  say(line: LogLine): void {
    this.waiting.push(line);
    this.wake();
  }

  /** What has not ended in a line break is a line all the same. */
  endOfStreams(): void {
    for (const stream of ['stdout', 'stderr'] as const) {
      const rest = this.pieces[stream].rest();
      if (rest !== null) this.add(stream, rest);
    }
  }

  /** Resolves when everything is sent, or nothing more is taken. */
  async close(): Promise<void> {
    this.closing = true;
    this.wake();
    await this.pumping;
  }

  private add(stream: Stream, line: string): void {
    if (this.length + line.length > this.limits.bufferLength) {
      this.omitted += 1;
      return;
    }
    if (this.omitted > 0) this.tellOmission();
    const last = this.waiting.at(-1);
    const batch =
      last && 'lines' in last && last.stream === stream && last.length + line.length < this.limits.batchLength
        ? last
        : this.open(stream);
    batch.lines.push(line);
    batch.length += line.length + 1;
    this.length += line.length + 1;
    this.wake();
  }

  private open(stream: Stream): Batch {
    const batch: Batch = { stream, lines: [], length: 0 };
    this.waiting.push(batch);
    return batch;
  }

  private tellOmission(): void {
    const message = `${this.omitted} lines of output were left out: there were more than could be sent`;
    this.waiting.push({ level: 'WARN', message, payload: { omitted_lines: this.omitted } });
    this.omitted = 0;
  }

  private async pump(): Promise<void> {
    for (;;) {
      await this.somethingToSend();
      const next = this.waiting.shift();
      if (!next) return;
      if ('lines' in next) this.length -= next.length;
      if (!(await this.send('lines' in next ? this.toLine(next) : next))) return this.giveUp();
      await this.rest(this.limits.gapMs);
    }
  }

  // A batch waits a moment for more of its kind, unless another stands behind it already.
  private async somethingToSend(): Promise<void> {
    while (this.waiting.length === 0 && !this.closing) {
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    if (this.omitted > 0 && this.closing) this.tellOmission();
    const [first, second] = this.waiting;
    if (first && 'lines' in first && !second) await this.rest(this.limits.gatherMs);
  }

  /** Cut short when the end has come. */
  private async rest(ms: number): Promise<void> {
    const over = Date.now() + ms;
    for (let left = ms; left > 0 && !this.closing; left = over - Date.now()) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.wake = () => {
          if (!this.closing) return;
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.wake = () => {};
  }

  private toLine({ stream, lines }: Batch): LogLine {
    const first = this.firstLine[stream];
    this.firstLine[stream] += lines.length;
    return {
      level: stream === 'stdout' ? 'INFO' : 'WARN',
      message: lines.join('\n'),
      payload: { stream, first_line: first, lines: lines.length },
    };
  }

  private giveUp(): void {
    this.waiting.length = 0;
    this.length = Infinity;
  }
}

/** Bytes of one stream, turned into lines that the ledger can keep. */
class Pieces {
  private readonly decoder = new StringDecoder('utf8');
  private unfinished = '';

  take(chunk: Buffer, longest: number): string[] {
    const lines = (this.unfinished + this.decoder.write(chunk)).split('\n');
    this.unfinished = lines.pop()!;
    // A line without an end is not waited for for ever.
    if (this.unfinished.length > longest) {
      const pieces = cut(this.unfinished, longest);
      this.unfinished = pieces.pop()!;
      lines.push(...pieces);
    }
    return lines.flatMap((line) => cut(cleanLine(line), longest));
  }

  rest(): string | null {
    const rest = cleanLine(this.unfinished + this.decoder.end());
    this.unfinished = '';
    return rest === '' ? null : rest;
  }
}
