// Any JSON over HTTP as a source: the Source port over pages by offset or by cursor. Owns how the address of
// a page is made. By offset the feed is cut into ranges of offsets; by cursor it is one range, since only
// the page before knows where the next begins.

import { z } from 'zod';
import { FieldMapping, readPath } from '../field-mapping.js';
import { fingerprintOf, readRecord } from '../record.js';
import {
  callForJson,
  outcomeOf,
  permanent,
  planBeganAt,
  transient,
  type JsonAnswer,
} from '../source-call.js';
import type { PlanPolicy } from '../source-policy.js';
import type { MappedItem, Page, PageRequest, Plan, PlannedRange, Source, SourceFailure } from '../source.js';
import type { HttpJsonSettings } from './config.js';

const RANGE = z.object({ start: z.number(), end: z.number().nullable() });

interface Place {
  readonly offset: number;
  readonly cursor: string | null;
  readonly limit: number;
  readonly since: Date | null;
}

export class HttpJsonSource implements Source {
  readonly #settings: HttpJsonSettings;
  readonly #policy: PlanPolicy;
  readonly #mapping: FieldMapping;

  constructor(settings: HttpJsonSettings, policy: PlanPolicy) {
    this.#settings = settings;
    this.#policy = policy;
    const { fields, defaultCurrency, priceUnit } = settings;
    this.#mapping = new FieldMapping({ fields, priceUnit, ...(defaultCurrency ? { defaultCurrency } : {}) });
  }

  plan(since: Date | null, signal: AbortSignal): Promise<Plan | SourceFailure> {
    return outcomeOf(signal, async () => {
      const sentMs = Date.now();
      const answer = await this.#ask({ offset: 0, cursor: null, limit: 1, since }, signal);
      const beganAt = planBeganAt(sentMs, answer.dateMs);
      const total = this.#totalOf(answer);
      const isEmpty = total === 0 || (total === null && this.#itemsOf(answer).length === 0);
      return { kind: 'planned', beganAt, ranges: isEmpty ? [] : this.#cut(total) };
    });
  }

  fetchPage(
    { range, offset, cursor, limit, since }: PageRequest,
    signal: AbortSignal,
  ): Promise<Page | SourceFailure> {
    return outcomeOf(signal, async () => {
      const { start, end } = toOffsets(range);
      const size = end === null ? limit : Math.max(0, Math.min(limit, end - start - offset));
      // Of a range that was read to its end only the count is wanted, and no source is asked for none.
      const asked = Math.max(1, size);
      const answer = await this.#ask({ offset: start + offset, cursor, limit: asked, since }, signal);
      const given = this.#itemsOf(answer);
      if (given.length > asked) throw permanent(`the source gave ${given.length} records for ${asked}`);
      const items = given.slice(0, size);
      const next = this.#nextCursor(answer);
      if (next !== null && next === cursor)
        throw permanent(`the source gave the cursor ${next} twice in a row`);
      const read = items.map((item) => readRecord(item, this.#mapping.idOf(item)));
      const total = this.#totalOf(answer);
      return {
        kind: 'page',
        records: read.filter((_, index) => this.#mapping.mayHaveChangedSince(items[index], since)),
        passed: items.length,
        cursor: next,
        isLast:
          this.#isLast(items.length, size, next) || (end !== null && start + offset + items.length >= end),
        totalRecords: total === null ? null : Math.max(0, Math.min(end ?? Infinity, total) - start),
        counted: this.#settings.paging.kind === 'offset' ? total : null,
        fingerprint: fingerprintOf(read),
      };
    });
  }

  mapRecord(payload: unknown): MappedItem | { readonly reason: string } {
    return this.#mapping.map(payload);
  }

  close(): void {}

  #cut(total: number | null): PlannedRange[] {
    if (total === null || this.#settings.paging.kind === 'cursor') {
      return [{ range: { start: 0, end: null }, totalRecords: total }];
    }
    const { partitions, pageSize } = this.#policy;
    const pages = Math.ceil(total / pageSize);
    const count = Math.max(1, Math.min(partitions, Math.floor(pages / 2)));
    const startOf = (index: number): number => Math.floor((pages * index) / count) * pageSize;
    // The last one is open: what is added while the feed is read stands at its end.
    return Array.from({ length: count }, (_, index) => {
      const start = startOf(index);
      const isLast = index === count - 1;
      const end = isLast ? total : startOf(index + 1);
      const range = { start, end: isLast ? null : end };
      return { range, totalRecords: end - start, counted: total, lead: start };
    });
  }

  #ask({ offset, cursor, limit, since }: Place, signal: AbortSignal): Promise<JsonAnswer> {
    const { headers, paging, since: sinceParameter, callTimeoutMs: timeoutMs } = this.#settings;
    const url = new URL(this.#settings.url);
    url.searchParams.set(paging.limit, String(limit));
    if (paging.kind === 'offset') url.searchParams.set(paging.offset, String(offset));
    else if (cursor !== null) url.searchParams.set(paging.cursor, cursor);
    if (since !== null && sinceParameter !== undefined) {
      url.searchParams.set(sinceParameter, since.toISOString());
    }
    return callForJson({ url: url.href, headers, timeoutMs }, signal);
  }

  #itemsOf({ json }: JsonAnswer): unknown[] {
    const { items } = this.#settings;
    const list = items === '' ? json : readPath(json, items);
    if (Array.isArray(list)) return list;
    throw transient(`the source's answer has no list at ${items || 'its top'}`);
  }

  #totalOf({ json }: JsonAnswer): number | null {
    const { total } = this.#settings;
    if (total === undefined) return null;
    const count = readPath(json, total);
    if (Number.isSafeInteger(count) && (count as number) >= 0) return count as number;
    throw transient(`the source's answer has no number at ${total}`);
  }

  #nextCursor({ json }: JsonAnswer): string | null {
    const { paging } = this.#settings;
    if (paging.kind === 'offset') return null;
    const next = readPath(json, paging.next);
    // An empty text says that there is none, as null does.
    if (next === '') return null;
    return typeof next === 'string' || typeof next === 'number' ? String(next) : null;
  }

  #isLast(count: number, asked: number, next: string | null): boolean {
    return this.#settings.paging.kind === 'cursor' ? next === null : count < asked;
  }
}

function toOffsets(range: unknown): z.infer<typeof RANGE> {
  const parsed = RANGE.safeParse(range);
  if (!parsed.success) throw permanent('the range is none of this source: its kind was changed');
  return parsed.data;
}
