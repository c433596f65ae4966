// Where a file's bytes come from: this machine's disk, or a download. Owns opening it at a position and
// knowing whether it is still the same file: a range was planned on its bytes, and means nothing on others.

import { createReadStream, type Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { failureOfStatus, permanent, send, type SourceFault } from '../source-call.js';

export interface OpenBytes {
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Differs when the file does; null when that cannot be known. */
  readonly version: string | null;
  /** The clock of whoever serves it. */
  readonly dateMs: number | null;
  /** When it was written: what changed since is not in it. */
  readonly modifiedMs: number | null;
}

export interface ByteSource {
  /** Whether it can be read from any position without reading what is before. */
  readonly isSeekable: boolean;
  open(position: number, signal: AbortSignal): Promise<OpenBytes>;
  /** Of the file as it is now, when that can be known without reading it again. */
  currentVersion(): Promise<string | null>;
}

export function fileChanged(): SourceFault {
  return permanent('the file has changed since the run was planned: start another run');
}

export class DiskFile implements ByteSource {
  readonly isSeekable = true;
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  async open(position: number, signal: AbortSignal): Promise<OpenBytes> {
    const found = await this.#stat();
    const chunks = createReadStream(this.#path, { start: position, signal });
    return { chunks, version: versionOnDisk(found), dateMs: null, modifiedMs: Math.floor(found.mtimeMs) };
  }

  async currentVersion(): Promise<string> {
    return versionOnDisk(await this.#stat());
  }

  #stat(): Promise<Stats> {
    return stat(this.#path).catch((error: NodeJS.ErrnoException) => {
      throw permanent(`the file cannot be read: ${error.code ?? error.message}`);
    });
  }
}

function versionOnDisk({ size, mtimeMs }: Stats): string {
  return `${size}-${mtimeMs}`;
}

export class Download implements ByteSource {
  readonly isSeekable = false;
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(url: string, headers: Readonly<Record<string, string>>) {
    this.#url = url;
    this.#headers = headers;
  }

  async open(position: number, signal: AbortSignal): Promise<OpenBytes> {
    // From the byte before, which is there even at the file's very end: no answer has to do without a version.
    const start = Math.max(0, position - 1);
    const headers = new Headers(this.#headers);
    headers.delete('accept-encoding');
    // Positions are of the file as it is, not compressed; beside a range, fetch says so of its own accord.
    if (position === 0) headers.set('accept-encoding', 'identity');
    else headers.set('range', `bytes=${start}-`);
    const response = await send({ url: this.#url, headers: Object.fromEntries(headers) }, signal);
    const fault = response.ok ? null : failureOfStatus(response);
    if (position > 0 && response.status === 416) throw fileChanged();
    if (fault) throw fault;
    const body = response.body ?? none();
    return {
      // A server that knows no ranges sends everything.
      chunks: skip(response.status === 206 ? position - start : position, body),
      version: versionOf(response.headers),
      dateMs: timeOf(response.headers.get('date')),
      modifiedMs: timeOf(response.headers.get('last-modified')),
    };
  }

  /** The stream that is open is of one answer, and so of one file. */
  async currentVersion(): Promise<null> {
    return null;
  }
}

/** A server may call the same file's tag weak in one answer and not in the next. */
function versionOf(headers: Headers): string | null {
  return headers.get('etag')?.replace(/^W\//, '') ?? headers.get('last-modified');
}

function timeOf(header: string | null): number | null {
  return Date.parse(header ?? '') || null;
}

async function* none(): AsyncGenerator<Uint8Array> {}

async function* skip(count: number, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let left = count;
  for await (const chunk of chunks) {
    if (left < chunk.byteLength) yield chunk.subarray(left);
    left = Math.max(0, left - chunk.byteLength);
  }
}
