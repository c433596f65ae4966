// The two formats of a file: where a record ends in the bytes, and what a record says. Pure.

import { isObject } from '../../domain/json.js';
import { readRecord, setAside } from '../record.js';
import type { FeedRecord } from '../source.js';

/** A record as the format reads it, or why it is none. */
export type Parsed = { readonly record: Record<string, unknown> } | { readonly reason: string };

export interface Format {
  /** What ends a cell where a line break inside quotes belongs to the record; null: there are no quotes. */
  readonly delimiter: string | null;
  /** The first record names the columns. */
  readonly hasHeader: boolean;
  parse(text: string, columns: readonly string[]): Parsed;
  parseHeader(text: string): string[];
}

export const NDJSON: Format = {
  delimiter: null,
  hasHeader: false,
  parse: (text) => {
    try {
      const value: unknown = JSON.parse(text);
      return isObject(value) ? { record: value } : { reason: 'the line is no JSON object' };
    } catch {
      return { reason: 'the line is no JSON' };
    }
  },
  parseHeader: () => [],
};

export function csvFormat(delimiter: string): Format {
  const split = (text: string): string[] | null => splitCsv(text, delimiter);
  return {
    delimiter,
    hasHeader: true,
    parse: (text, columns) => {
      const cells = split(text);
      if (!cells) return { reason: 'a quote stands where none may' };
      if (cells.length !== columns.length) {
        return { reason: `the line has ${cells.length} cells, the header ${columns.length}` };
      }
      return { record: Object.fromEntries(columns.map((name, index) => [name, cells[index]])) };
    },
    parseHeader: (text) => split(text) ?? [],
  };
}

/**
 * RFC 4180, and a quote inside a cell that did not begin with one is a character like any other (5" ring). Null
 * when more follows a quoted cell than it may.
 */
function splitCsv(text: string, delimiter: string): string[] | null {
  const cells: string[] = [];
  let at = 0;
  for (;;) {
    if (text[at] === '"') {
      const end = endOfQuoted(text, at);
      if (end === null || (end < text.length && text[end] !== delimiter)) return null;
      cells.push(text.slice(at + 1, end - 1).replaceAll('""', '"'));
      at = end;
    } else {
      const next = text.indexOf(delimiter, at);
      const end = next < 0 ? text.length : next;
      cells.push(text.slice(at, end));
      at = end;
    }
    if (at >= text.length) return cells;
    at += 1;
  }
}

/** The place behind the closing quote. */
function endOfQuoted(text: string, start: number): number | null {
  for (let at = start + 1; ; at += 2) {
    at = text.indexOf('"', at);
    if (at < 0) return null;
    if (text[at + 1] !== '"') return at + 1;
  }
}

export function toFeedRecord(parsed: Parsed, text: string, idOf: (record: unknown) => unknown): FeedRecord {
  return 'record' in parsed ? readRecord(parsed.record, idOf(parsed.record)) : setAside(text, parsed.reason);
}
