// A file of records as a source: the Source port over CSV or NDJSON, on disk or downloaded, streamed. A file
// on disk is counted once and cut into ranges of bytes that begin with a record; a download is one range,
// whose stream stays open between pages. A page's cursor is the byte at which the next one begins.

import { z } from 'zod';
import { FieldMapping } from '../field-mapping.js';
import { outcomeOf, permanent, planBeganAt, waitFor } from '../source-call.js';
import type { PlanPolicy } from '../source-policy.js';
import type {
  FeedRecord,
  MappedItem,
  Page,
  PageRequest,
  Plan,
  PlannedRange,
  Source,
  SourceFailure,
} from '../source.js';
import { DiskFile, Download, fileChanged, type ByteSource } from './bytes.js';
import type { FileSettings } from './config.js';
import { toFeedRecord, type Format } from './format.js';
import { RecordReader, type Wait } from './record-reader.js';

const RANGE = z.object({
  from: z.number(),
  to: z.number().nullable(),
  version: z.string().nullable(),
  /** The header's cells, as a JSON array. */
  columns: z.string(),
});
type FileRange = z.infer<typeof RANGE>;

/** How long an open stream waits for the next page; after that it is opened anew. */
const IDLE_MS = 30_000;

interface OpenReader {
  readonly reader: RecordReader;
  readonly idle: NodeJS.Timeout;
}

export class FileSource implements Source {
  readonly #bytes: ByteSource;
  readonly #format: Format;
  readonly #timeoutMs: number;
  readonly #policy: PlanPolicy;
  readonly #mapping: FieldMapping;
  /** By the position that they stand at. */
  readonly #open = new Map<number, OpenReader>();

  constructor(settings: FileSettings, format: Format, policy: PlanPolicy) {
    const { path, url, headers, fields, defaultCurrency, priceUnit } = settings;
    this.#bytes = path === undefined ? new Download(url!, headers) : new DiskFile(path);
    this.#format = format;
    this.#timeoutMs = settings.callTimeoutMs;
    this.#policy = policy;
    this.#mapping = new FieldMapping({ fields, priceUnit, ...(defaultCurrency ? { defaultCurrency } : {}) });
  }

  plan(_since: Date | null, signal: AbortSignal): Promise<Plan | SourceFailure> {
    return outcomeOf(signal, async () => {
      const beganMs = Date.now();
      const { reader, dateMs } = await this.#openAt(0, signal);
      try {
        const ranges = await this.#cut(reader, this.#waitUnder(signal));
        // A file is as old as it was written: what changed between that and now is in the next one.
        const beganAt = Math.min(planBeganAt(beganMs, dateMs).getTime(), reader.modifiedMs ?? Infinity);
        return { kind: 'planned', beganAt: new Date(beganAt), ranges };
      } finally {
        reader.close();
      }
    });
  }

  fetchPage(
    { range, cursor, limit, since }: PageRequest,
    signal: AbortSignal,
  ): Promise<Page | SourceFailure> {
    return outcomeOf(signal, async () => {
      const bounds = toBounds(range);
      const reader = await this.#readerAt(cursor === null ? bounds.from : Number(cursor), bounds, signal);
      try {
        const page = await this.#readPage(reader, bounds, { limit, since }, this.#waitUnder(signal));
        refuseOther(bounds.version, await this.#bytes.currentVersion());
        if (page.isLast) reader.close();
        else this.#keep(reader);
        return page;
      } catch (error) {
        reader.close();
        throw error;
      }
    });
  }

  mapRecord(payload: unknown): MappedItem | { readonly reason: string } {
    return this.#mapping.map(payload);
  }

  close(): void {
    for (const { reader, idle } of this.#open.values()) {
      clearTimeout(idle);
      reader.close();
    }
    this.#open.clear();
  }

  async #readPage(
    reader: RecordReader,
    { to, columns }: FileRange,
    { limit, since }: Pick<PageRequest, 'limit' | 'since'>,
    wait: Wait,
  ): Promise<Page> {
    const names = JSON.parse(columns) as string[];
    // What the files before it lacked cannot be told where nobody says when they were written.
    const from = reader.modifiedMs === null ? null : since;
    const records: FeedRecord[] = [];
    let passed = 0;
    let isLast = false;
    while (passed < limit && !isLast) {
      const line = to !== null && reader.position >= to ? null : await reader.next(wait);
      isLast = line === null;
      if (!line) break;
      passed += 1;
      const parsed = this.#format.parse(line.text, names);
      const isOld = 'record' in parsed && !this.#mapping.mayHaveChangedSince(parsed.record, from);
      if (!isOld) records.push(toFeedRecord(parsed, line.text, (record) => this.#mapping.idOf(record)));
    }
    isLast ||= to !== null && reader.position >= to;
    const cursor = String(reader.position);
    return {
      kind: 'page',
      records,
      passed,
      cursor,
      isLast,
      totalRecords: null,
      counted: null,
      fingerprint: null,
    };
  }

  async #cut(reader: RecordReader, wait: Wait): Promise<PlannedRange[]> {
    const { version } = reader;
    const header = this.#format.hasHeader ? await reader.next(wait) : null;
    const columns = JSON.stringify(header ? this.#format.parseHeader(header.text) : []);
    const from = reader.position;
    if (!this.#bytes.isSeekable) {
      const isEmpty = (await reader.next(wait)) === null;
      return isEmpty ? [] : [{ range: { from, to: null, version, columns }, totalRecords: null }];
    }
    const { starts, total, end } = await this.#countPages(reader, wait);
    const count = Math.max(1, Math.min(this.#policy.partitions, Math.floor(starts.length / 2)));
    const pageOf = (index: number): number => Math.floor((starts.length * index) / count);
    const { pageSize } = this.#policy;
    return Array.from({ length: total === 0 ? 0 : count }, (_, index) => ({
      range: { from: starts[pageOf(index)]!, to: starts[pageOf(index + 1)] ?? end, version, columns },
      totalRecords: Math.min(total, pageOf(index + 1) * pageSize) - pageOf(index) * pageSize,
    }));
  }

  /** Where every page begins: few numbers even for a large file. */
  async #countPages(
    reader: RecordReader,
    wait: Wait,
  ): Promise<{ starts: number[]; total: number; end: number }> {
    const starts: number[] = [];
    for (let total = 0; ; total += 1) {
      const start = reader.position;
      const line = await reader.next(wait);
      if (!line) return { starts, total, end: reader.position };
      if (total % this.#policy.pageSize === 0) starts.push(start);
    }
  }

  async #readerAt(position: number, { version }: FileRange, signal: AbortSignal): Promise<RecordReader> {
    const open = this.#open.get(position);
    if (open) {
      this.#open.delete(position);
      clearTimeout(open.idle);
      // Another run may have left it here, which was planned on another file.
      if (open.reader.version === version) return open.reader;
      open.reader.close();
    }
    const { reader } = await this.#openAt(position, signal);
    try {
      refuseOther(version, reader.version);
      return reader;
    } catch (error) {
      reader.close();
      throw error;
    }
  }

  async #openAt(
    position: number,
    signal: AbortSignal,
  ): Promise<{ reader: RecordReader; dateMs: number | null }> {
    // Its own: the stream outlives the page that opened it.
    const abort = new AbortController();
    const bytes = await this.#waitUnder(signal)(this.#bytes.open(position, abort.signal)).catch(
      (error: unknown) => {
        abort.abort();
        throw error;
      },
    );
    return { reader: new RecordReader(bytes, position, this.#format, abort), dateMs: bytes.dateMs };
  }

  #waitUnder(signal: AbortSignal): Wait {
    return (work) => waitFor(work, this.#timeoutMs, signal);
  }

  #keep(reader: RecordReader): void {
    const { position } = reader;
    this.#open.get(position)?.reader.close();
    const idle = setTimeout(() => {
      this.#open.delete(position);
      reader.close();
    }, IDLE_MS);
    idle.unref();
    this.#open.set(position, { reader, idle });
  }
}

/** The bytes of a range mean nothing in another file. A version that nobody knows is no other. */
function refuseOther(planned: string | null, found: string | null): void {
  if (planned === null || found === null || planned === found) return;
  throw fileChanged();
}

function toBounds(range: unknown): FileRange {
  const parsed = RANGE.safeParse(range);
  if (!parsed.success) throw permanent('the range is none of this source: its kind was changed');
  return parsed.data;
}
