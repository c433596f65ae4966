// Reads a source the way the runner does, for tests: the plan, then every range page by page.
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';
import { openSource, type SourceDefaults } from '../../src/connectors/source-registry.js';
import type { FeedRecord, Page, Plan, Source, SourceFailure } from '../../src/connectors/source.js';

export const never = new AbortController().signal;

export const DEFAULTS: SourceDefaults = {
  retry: DEFAULT_RETRY_POLICY,
  callTimeoutMs: 5_000,
  filesDir: null,
};

export function open(kind: string, config: unknown, defaults: Partial<SourceDefaults> = {}): Source {
  return openSource(kind, config, { ...DEFAULTS, ...defaults }).source;
}

export async function planOf(source: Source, since: Date | null = null): Promise<Plan> {
  const plan = await source.plan(since, never);
  if (plan.kind !== 'planned') throw new Error(plan.message);
  return plan;
}

export interface ReadRange {
  readonly pages: readonly Page[];
  readonly records: readonly FeedRecord[];
}

export async function readRange(
  source: Source,
  range: Plan['ranges'][number],
  { limit = 30, since = null as Date | null } = {},
): Promise<ReadRange> {
  const pages: Page[] = [];
  let offset = 0;
  let cursor: string | null = null;
  for (;;) {
    const page: Page | SourceFailure = await source.fetchPage(
      { range: range.range, offset, cursor, limit, since },
      never,
    );
    if (page.kind !== 'page') throw new Error(page.message);
    pages.push(page);
    offset += page.passed;
    cursor = page.cursor;
    if (page.isLast) return { pages, records: pages.flatMap(({ records }) => records) };
  }
}

/** The ids of all records, as they came. */
export async function readIds(source: Source, since: Date | null = null): Promise<(string | null)[]> {
  const ids: (string | null)[] = [];
  for (const range of (await planOf(source, since)).ranges) {
    const { records } = await readRange(source, range, { since });
    ids.push(...records.map(({ externalId }) => externalId));
  }
  return ids;
}
