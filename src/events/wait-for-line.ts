// Waiting for one line of a run's ledger, for as long as somebody has patience. Called by resolvers that ask
// for work and answer with what came of it.

import type { Viewer } from '../domain/viewer.js';
import type { RunEventRow } from '../store/ledger.js';
import type { RunFeed } from './feed.js';

export interface LineWait {
  readonly runId: string;
  /** The line before the first that is looked at. */
  readonly after: number;
  readonly isIt: (line: RunEventRow) => boolean;
  readonly longestMs: number;
}

/** The first line that is it; null when time is up before. */
export async function waitForLine(
  feed: Pick<RunFeed, 'runEvents'>,
  viewer: Viewer,
  { runId, after, isIt, longestMs }: LineWait,
): Promise<RunEventRow | null> {
  const lines = await feed.runEvents(viewer, runId, after);
  // Ending the iteration settles the read that is under way.
  const timer = setTimeout(() => void lines.return?.(), longestMs);
  try {
    for await (const line of lines) if (isIt(line)) return line;
    return null;
  } finally {
    clearTimeout(timer);
  }
}
