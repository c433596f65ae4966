// Keyset pages. A cursor is the sort key of the row it stands for, so that a page never shifts under a
// reader while rows are added; to clients it is opaque.

import { AppError } from '../errors.js';
import type { Database } from './db.js';
import { isUuid } from './id.js';

export interface Page<Row> {
  readonly nodes: readonly Row[];
  readonly hasNextPage: boolean;
  readonly hasPreviousPage: boolean;
}

export function checkFirst(first: number, most: number): void {
  if (Number.isInteger(first) && first >= 1 && first <= most) return;
  throw new AppError('BAD_USER_INPUT', `first must be from 1 to ${most}, not ${first}.`, {
    field: ['first'],
  });
}

export function encodeCursor(...parts: readonly string[]): string {
  return Buffer.from(JSON.stringify(parts)).toString('base64url');
}

export function decodeCursor(cursor: string, length: number): string[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
    if (Array.isArray(parts) && parts.length === length && parts.every((part) => typeof part === 'string')) {
      return parts as string[];
    }
  } catch {
    // Falls through: not one of ours.
  }
  throw new AppError('BAD_USER_INPUT', 'The cursor is not one that this list has given out.', {
    field: ['after'],
  });
}

const TIMESTAMP = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?[+-]\d\d(:\d\d)?$/;

/** The cursor of a list of runs: when a run was made, with all digits as PostgreSQL writes them, and its id. */
export function decodeRunCursor(cursor: string): [createdKey: string, id: string] {
  const [createdKey, id] = decodeCursor(cursor, 2) as [string, string];
  if (isTimestamp(createdKey) && isUuid(id)) return [createdKey, id];
  throw new AppError('BAD_USER_INPUT', 'The cursor is not one of a run.', { field: ['after'] });
}

function isTimestamp(text: string): boolean {
  // The rest of the calendar is the database's to know.
  return TIMESTAMP.test(text) && !Number.isNaN(Date.parse(text.slice(0, 19)));
}

export interface CappedCount {
  readonly count: number;
  /** There are more than that: they were not counted. */
  readonly isCapped: boolean;
}

/** Counting further would cost a scan, and nobody pages that far. */
const MAX_COUNTED = 10_000;

/** `from` is what follows FROM: a table and its WHERE. */
export async function countUpTo(
  db: Database,
  from: string,
  values: readonly unknown[],
  most = MAX_COUNTED,
): Promise<CappedCount> {
  const [row] = await db.query<{ count: number }>(
    `SELECT count(*)::integer AS count FROM (SELECT FROM ${from} LIMIT ${most + 1}) AS counted`,
    values,
  );
  const { count } = row!;
  return count > most ? { count: most, isCapped: true } : { count, isCapped: false };
}

/** `rows` was read with one row more than asked for, to know whether there is a next page. */
export function toPage<Row>(rows: readonly Row[], first: number, after: unknown): Page<Row> {
  return {
    nodes: rows.slice(0, first),
    hasNextPage: rows.length > first,
    hasPreviousPage: after !== null && after !== undefined && after !== 0,
  };
}

/** Sorts rows that were read for many runs at once into a page for each run. */
export function toPages<Row extends { readonly runId: string }>(
  runIds: readonly string[],
  rows: readonly Row[],
  first: number,
  after: unknown,
): Map<string, Page<Row>> {
  const byRun = new Map<string, Row[]>(runIds.map((id) => [id, []]));
  for (const row of rows) byRun.get(row.runId)?.push(row);
  return new Map([...byRun].map(([id, own]) => [id, toPage(own, first, after)]));
}
