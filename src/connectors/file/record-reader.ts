// Reads a file record by record from a position on, and knows at which byte the next one begins. Memory is
// that of one chunk and one record, however large the file is.

import { permanent } from '../source-call.js';
import type { OpenBytes } from './bytes.js';
import type { Format } from './format.js';

/** More than any record has: a quote that nobody closed would make the rest of the file one. */
const MAX_RECORD_BYTES = 1024 * 1024;

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const QUOTE = 0x22;
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

export interface ReadRecord {
  readonly text: string;
  /** Where the record after it begins. */
  readonly end: number;
}

/** How long, and under whose signal, the next bytes are waited for. */
export type Wait = <T>(work: Promise<T>) => Promise<T>;

export class RecordReader {
  readonly version: string | null;
  readonly modifiedMs: number | null;
  readonly #chunks: AsyncIterator<Uint8Array>;
  /** Null where there are no quotes. */
  readonly #delimiter: number | null;
  readonly #abort: AbortController;
  #buffer: Buffer = Buffer.alloc(0);
  #position: number;
  #isAtEnd = false;

  constructor(bytes: OpenBytes, position: number, format: Format, abort: AbortController) {
    this.version = bytes.version;
    this.modifiedMs = bytes.modifiedMs;
    this.#chunks = bytes.chunks[Symbol.asyncIterator]();
    this.#position = position;
    this.#delimiter = format.delimiter?.charCodeAt(0) ?? null;
    this.#abort = abort;
  }

  /** Where the next record begins. */
  get position(): number {
    return this.#position;
  }

  /** The next record; null at the end. Empty lines are none. */
  async next(wait: Wait): Promise<ReadRecord | null> {
    for (;;) {
      const end = await this.#findEnd(wait);
      if (end === 0) return null;
      const line = this.#take(end);
      const text = trimBreak(line).toString('utf8');
      if (text.trim() !== '') return { text, end: this.#position };
    }
  }

  close(): void {
    this.#abort.abort();
    // A stream that was cut rejects what it had under way; nobody waits for it any more.
    void this.#chunks.return?.()?.catch(() => {});
  }

  #take(length: number): Buffer {
    const line = this.#buffer.subarray(0, length);
    this.#buffer = this.#buffer.subarray(length);
    const isFirst = this.#position === 0;
    this.#position += length;
    return isFirst && line.subarray(0, 3).equals(BYTE_ORDER_MARK) ? line.subarray(3) : line;
  }

  /** How many bytes the record at the front has, with its line break; 0 at the end of the file. */
  async #findEnd(wait: Wait): Promise<number> {
    let isQuoted = false;
    let closedAt = -Infinity;
    let at = 0;
    for (;;) {
      for (; at < this.#buffer.length; at += 1) {
        const byte = this.#buffer[at];
        if (byte === QUOTE && this.#delimiter !== null) {
          if (isQuoted) closedAt = at;
          // Behind the quote that seemed to close a cell it opens again: two of them stand for one.
          isQuoted = !isQuoted && (this.#isCellStart(at) || at === closedAt + 1);
        } else if (byte === LINE_FEED && !isQuoted) return at + 1;
      }
      if (at > MAX_RECORD_BYTES) {
        throw permanent(`the record at byte ${this.#position} has more than ${MAX_RECORD_BYTES} bytes`);
      }
      if (!(await this.#fill(wait))) return this.#buffer.length;
    }
  }

  #isCellStart(at: number): boolean {
    if (at === 0 || this.#buffer[at - 1] === this.#delimiter) return true;
    return this.#position === 0 && at === 3 && this.#buffer.subarray(0, 3).equals(BYTE_ORDER_MARK);
  }

  async #fill(wait: Wait): Promise<boolean> {
    if (this.#isAtEnd) return false;
    const { value, done } = await wait(this.#chunks.next());
    if (done) {
      this.#isAtEnd = true;
      return false;
    }
    this.#buffer = this.#buffer.length === 0 ? Buffer.from(value) : Buffer.concat([this.#buffer, value]);
    return true;
  }
}

function trimBreak(line: Buffer): Buffer {
  let end = line.length;
  if (line[end - 1] === LINE_FEED) end -= 1;
  if (line[end - 1] === CARRIAGE_RETURN) end -= 1;
  return line.subarray(0, end);
}
