// Lists of rule runs, newest first, by any combination of filters. Each filter has an index in the order of
// the list, so that a page costs what it shows, however many runs there are.

import { MAX_PAGE } from '../domain/page.js';
import type { RuleRunStatus } from '../domain/rule-run.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { Conditions } from './conditions.js';
import type { Database } from './db.js';
import { isUuid } from './id.js';
import { checkFirst, countUpTo, encodeCursor, toPage, type CappedCount, type Page } from './page.js';
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
  const where = conditionsOf(viewer, request.filter);
  if (request.after !== null) where.addAfterRun(request.after);
  const found = await db.query<{ id: string; createdKey: string }>(
    `SELECT id, created_at::text AS "createdKey" FROM rule_run WHERE ${where.sql}
     ORDER BY created_at DESC, id DESC LIMIT ${request.first + 1}`,
    where.values,
  );
  const ids = found.map(({ id }) => id);
  const rows = await findRuleRuns(db, viewer, ids);
  const listed = found.flatMap(({ id, createdKey }) => {
    const row = rows.get(id);
    // Retention may have taken it between the two reads.
    return row ? [{ ...row, createdKey }] : [];
  });
  return toPage(listed, request.first, request.after);
}

export function countRuleRuns(db: Database, viewer: Viewer, filter: RuleRunFilter): Promise<CappedCount> {
  const where = conditionsOf(viewer, filter);
  return countUpTo(db, `rule_run WHERE ${where.sql}`, where.values);
}

export function runCursor({ createdKey, id }: ListedRun): string {
  return encodeCursor(createdKey, id);
}

function conditionsOf(viewer: Viewer, filter: RuleRunFilter): Conditions {
  const { status, projectId, channelId, correlationId, createdAfter, createdBefore, text } = filter;
  const where = new Conditions();
  where.add('tenant_id = ?', viewer.tenantId);
  where.addOneOf('status', status);
  where.addIfGiven('project_id = ?', projectId);
  if (channelId !== null && channelId !== undefined) {
    where.add('channel_id = ?', isUuid(channelId) ? channelId : null);
  }
  where.addIfGiven('correlation_id = ?', correlationId);
  // Rows have microseconds, clients see milliseconds: a run is not after the time that it shows.
  if (createdAfter) where.add('created_at >= ?', new Date(createdAfter.getTime() + 1));
  where.addIfGiven('created_at < ?', createdBefore);
  if (text !== null && text !== undefined) {
    checkText(text);
    const found = 'SELECT run_id FROM rule_run_words WHERE tenant_id = ? AND words @@ words_query(?)';
    where.add(`id IN (${found})`, viewer.tenantId, text);
  }
  return where;
}

/** More words than anybody looks for; each is another step for the database. */
const MAX_TEXT = 1_000;

function checkText(text: string): void {
  if (text.length <= MAX_TEXT) return;
  throw new AppError('BAD_USER_INPUT', `text may have up to ${MAX_TEXT} characters.`, {
    field: ['filter', 'text'],
  });
}
