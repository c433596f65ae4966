// Output on its way to the ledger: batches, order, what is cleaned, and what is left out when there is too much.
import { expect, test } from 'vitest';
import { Output, type OutputLimits } from '../../src/cli/work/output.js';
import type { LogLine } from '../../src/cli/work/ops-api.js';

/** A ledger that takes lines when it is told to. */
class Ledger {
  readonly lines: LogLine[] = [];
  private open: () => void = () => {};
  private readonly opened = new Promise<void>((resolve) => (this.open = resolve));

  static opened(): Ledger {
    const ledger = new Ledger();
    ledger.open();
    return ledger;
  }

  readonly take = async (line: LogLine): Promise<boolean> => {
    await this.opened;
    this.lines.push(line);
    return true;
  };

  reopen(): void {
    this.open();
  }

  /** What was written to a stream, as lines. */
  textOf(stream: string): string {
    const batches = this.lines.filter(({ payload }) => payload['stream'] === stream);
    return batches.map(({ message }) => message).join('\n');
  }
}

const QUICK: Partial<OutputLimits> = { gatherMs: 1, gapMs: 1 };

async function written(
  chunks: readonly (string | Buffer)[],
  limits: Partial<OutputLimits> = {},
): Promise<Ledger> {
  const ledger = Ledger.opened();
  const output = new Output(ledger.take, { ...QUICK, ...limits });
  for (const chunk of chunks) output.write('stdout', Buffer.from(chunk as string));
  output.endOfStreams();
  await output.close();
  return ledger;
}

test('lines that come together are one event, with their place in the stream', async () => {
  const { lines } = await written(['one\ntwo\n', 'thr', 'ee\n', 'four']);
  expect(lines).toEqual([
    {
      level: 'INFO',
      message: 'one\ntwo\nthree\nfour',
      payload: { stream: 'stdout', first_line: 1, lines: 4 },
    },
  ]);
});

test('what the streams and the worker say stays in order', async () => {
  const ledger = Ledger.opened();
  const output = new Output(ledger.take, QUICK);
  output.say({ level: 'INFO', message: 'begins', payload: {} });
  output.write('stdout', Buffer.from('a\nb\n'));
  output.write('stderr', Buffer.from('oops\n'));
  output.write('stdout', Buffer.from('c\n'));
  output.say({ level: 'INFO', message: 'ends', payload: {} });
  await output.close();
  expect(ledger.lines.map(({ level, message }) => `${level} ${message}`)).toEqual([
    'INFO begins',
    'INFO a\nb',
    'WARN oops',
    'INFO c',
    'INFO ends',
  ]);
  expect(ledger.lines[3]!.payload).toEqual({ stream: 'stdout', first_line: 3, lines: 1 });
});

test('three megabytes arrive whole, in events of a size that the server takes', async () => {
  const text = Array.from({ length: 30_000 }, (_, index) => `${index} ${'x'.repeat(95)}`).join('\n');
  const ledger = await written([text], { gapMs: 0 });
  expect(ledger.textOf('stdout')).toBe(text);
  for (const { message } of ledger.lines) expect(Buffer.byteLength(message)).toBeLessThanOrEqual(65_536);
});

test('a line without an end is cut, never within a character', async () => {
  const ledger = await written(['😀'.repeat(101)], { batchLength: 7 });
  expect(ledger.lines.length).toBeGreaterThan(10);
  for (const { message } of ledger.lines) expect(message).toMatch(/^(😀)+$/u);
  expect(ledger.lines.map(({ message }) => message).join('')).toBe('😀'.repeat(101));
});

test('bytes are read as UTF-8 across chunks; what cannot be kept is replaced', async () => {
  const euro = Buffer.from('€');
  const ledger = await written([
    euro.subarray(0, 1),
    euro.subarray(1),
    Buffer.from([0x41, 0x00, 0xff, 0x0a]),
  ]);
  expect(ledger.textOf('stdout')).toBe('€A␀\ufffd');
});

test('colours go, and of a line that is written over only the last state stays', async () => {
  const ledger = await written(['\u001b[31mred\u001b[0m\n', ' 10 %\r 50 %\r100 %\r\n', 'windows\r\n']);
  expect(ledger.textOf('stdout')).toBe('red\n100 %\nwindows');
});

test('a server that is away does not stop the command: what is too much is counted', async () => {
  const ledger = new Ledger();
  const output = new Output(ledger.take, { ...QUICK, bufferLength: 100 });
  for (let index = 0; index < 100; index += 1) output.write('stdout', Buffer.from('0123456789\n'));
  const closed = output.close();
  ledger.reopen();
  await closed;
  const kept = ledger.textOf('stdout').split('\n').length;
  const omitted = ledger.lines.at(-1)!;
  expect(omitted).toMatchObject({ level: 'WARN', payload: { omitted_lines: 100 - kept } });
  expect(omitted.message).toContain(`${100 - kept} lines`);
});

test('after the ledger takes no more, nothing is kept and close does not wait', async () => {
  let calls = 0;
  const output = new Output(async () => {
    calls += 1;
    return false;
  }, QUICK);
  output.write('stdout', Buffer.from('a\n'));
  await output.close();
  output.write('stdout', Buffer.from('b\n'));
  expect(calls).toBe(1);
});
