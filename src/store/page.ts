// Keyset pages. A cursor is the sort key of the row it stands for, so that a page never shifts under a
// reader while rows are added; to clients it is opaque.

import { AppError } from '../errors.js';

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
