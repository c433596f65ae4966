// Lists of rule runs, newest first, by any combination of filters. Each filter has an index in the order of
// the list, so that a page costs what it shows, however many runs there are.

import { MAX_PAGE } from '../domain/page.js';
import type { RuleRunStatus } from '../domain/rule-run.js';
import type { Viewer } from '../domain/viewer.js';
import type { Database } from './db.js';
import { isUuid } from './id.js';
import {
  checkFirst,
  countUpTo,
  decodeRunCursor,
  encodeCursor,
  toPage,
  type CappedCount,
  type Page,
} from './page.js';
import { findRuleRuns, type RuleRunRow } from './rule-run-row.js';

export interface RuleRunFilter {
  readonly status?: readonly RuleRunStatus[] | null;
  readonly projectId?: string | null;
  readonly channelId?: string | null;
  readonly createdAfter?: Date | null;
  readonly createdBefore?: Date | null;
  readonly correlationId?: string | null;
  /** Words, or how they begin, that all stand in the run's metadata. */
  readonly text?: string | null;
}

export type ListedRun = RuleRunRow & {
  /** `createdAt` with all its digits, for the cursor. */
  readonly createdKey: string;
};

export async function listRuleRuns(
  db: Database,
  viewer: Viewer,
  request: { readonly first: number; readonly after: string | null; readonly filter: RuleRunFilter },
): Promise<Page<ListedRun>> {
  checkFirst(request.first, MAX_PAGE);
  const where = new Where(viewer, request.filter);
  if (request.after !== null) where.addAfter(request.after);
  const found = await db.query<{ id: string; createdKey: string }>(
    `SELECT id, created_at::text AS "createdKey" FROM rule_run WHERE ${where.sql}
     ORDER BY created_at DESC, id DESC LIMIT ${request.first + 1}`,
    where.values,
  );
  const ids = found.map(({ id }) => id);
  const rows = await findRuleRuns(db, viewer, ids);
  const listed = found.map(({ id, createdKey }) => ({ ...rows.get(id)!, createdKey }));
  return toPage(listed, request.first, request.after);
}

export function countRuleRuns(db: Database, viewer: Viewer, filter: RuleRunFilter): Promise<CappedCount> {
  const where = new Where(viewer, filter);
  return countUpTo(db, `rule_run WHERE ${where.sql}`, where.values);
}

export function runCursor({ createdKey, id }: ListedRun): string {
  return encodeCursor(createdKey, id);
}

/** A filter in SQL. Only what is asked for is in the text, so that the planner sees which index fits. */
class Where {
  readonly values: unknown[] = [];
  readonly #conditions: string[] = [];

  constructor(viewer: Viewer, filter: RuleRunFilter) {
    const { status, projectId, channelId, correlationId, createdAfter, createdBefore, text } = filter;
    this.#add('tenant_id = ?', viewer.tenantId);
    // One state is an equality, which an index keeps in order.
    if (status?.length === 1) this.#add('status = ?', status[0]);
    else if (status) this.#add('status = ANY(?)', status);
    if (isGiven(projectId)) this.#add('project_id = ?', projectId);
    if (isGiven(channelId)) this.#add('channel_id = ?', isUuid(channelId) ? channelId : null);
    if (isGiven(correlationId)) this.#add('correlation_id = ?', correlationId);
    // Rows have microseconds, clients see milliseconds: a run is not after the time that it shows.
    if (createdAfter) this.#add('created_at >= ?', new Date(createdAfter.getTime() + 1));
    if (createdBefore) this.#add('created_at < ?', createdBefore);
    if (isGiven(text)) this.#addText(viewer, text);
  }

  get sql(): string {
    return this.#conditions.join(' AND ');
  }

  addAfter(cursor: string): void {
    this.#add('(created_at, id) < (?, ?)', ...decodeRunCursor(cursor));
  }

  #addText({ tenantId }: Viewer, text: string): void {
    const found = 'SELECT run_id FROM rule_run_words WHERE tenant_id = ? AND words @@ words_query(?)';
    this.#add(`id IN (${found})`, tenantId, text);
  }

  #add(condition: string, ...values: readonly unknown[]): void {
    const places = values.map((value) => `$${this.values.push(value)}`);
    this.#conditions.push(condition.replaceAll('?', () => places.shift()!));
  }
}

function isGiven<T>(value: T | null | undefined): value is T {
  return value !== null && value !== undefined;
}
