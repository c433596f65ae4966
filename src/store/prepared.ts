// Statements that every unit of work asks: a connection plans each once instead of each time, which of a small
// batch is half of what the database does. A plan is kept for as long as the connection, until the statistics of
// its tables change. So only for rows of runs, partitions and channels, found by their keys or a small index: the
// best way to targets, raw items or ledger lines depends on how many there are, and a run may bring a million at once.

import type pg from 'pg';

export interface Prepared {
  readonly name: string;
  readonly text: string;
}

const names = new Set<string>();

export function prepared(name: string, text: string): Prepared {
  if (names.has(name)) throw new Error(`two statements are called ${name}`);
  names.add(name);
  return { name, text };
}

export function bind({ name, text }: Prepared, values: readonly unknown[]): pg.QueryConfig {
  return { name, text, values: [...values] };
}
