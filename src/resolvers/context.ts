// What a resolver is given beside its arguments. A context serves one operation, or one event of a
// subscription: its loaders remember rows, and a remembered row must not outlive the answer it is part of.

import type { Viewer } from '../domain/viewer.js';
import type { RunKind } from '../domain/run.js';
import type { Database } from '../store/db.js';
import type { RunEventRow } from '../store/ledger.js';
import type { RuleRunRow } from '../store/rule-run.js';
import { Loaders } from './loaders.js';

/** Grows into a union, told apart by `kind`, as further kinds of run come to the API. */
export interface RunRow {
  readonly kind: 'RULE';
  readonly run: RuleRunRow;
}

/** The live reads, answered by the listener's bell. Each refuses an unknown run with NOT_FOUND. */
export interface RunFeed {
  runEvents(viewer: Viewer, runId: string, after: number): Promise<AsyncIterableIterator<RunEventRow>>;
  runProgress(viewer: Viewer, kind: RunKind, runId: string): Promise<AsyncIterableIterator<RunRow>>;
  runChanges(
    viewer: Viewer,
    filter: { readonly kind: RunKind | null; readonly projectId: string | null },
  ): AsyncIterableIterator<RunRow>;
}

/** What all operations share. */
export interface Services {
  readonly db: Database;
  readonly feed: RunFeed;
}

export interface Context extends Services {
  readonly viewer: Viewer;
  readonly loaders: Loaders;
}

export function createContext(parts: Services & { readonly viewer: Viewer }): Context {
  return { ...parts, loaders: new Loaders(parts.db, parts.viewer) };
}
