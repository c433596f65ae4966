// Lists of rule runs, newest first, by any of the filters.

import { AppError } from '../errors.js';
import { MAX_PAGE } from '../domain/page.js';
import type { RuleRunStatus } from '../domain/rule-run.js';
import type { Viewer } from '../domain/viewer.js';
import { translated, type Database } from './db.js';
import { isUuid } from './id.js';
import { checkFirst, decodeCursor, encodeCursor, toPage, type Page } from './page.js';
import type { Prisma } from './prisma/client.js';
import { toRow, type RuleRunRow } from './rule-run-row.js';

export interface RuleRunFilter {
  readonly status?: readonly RuleRunStatus[] | null;
  readonly projectId?: string | null;
  readonly channelId?: string | null;
  readonly createdAfter?: Date | null;
  readonly createdBefore?: Date | null;
  readonly correlationId?: string | null;
}

export async function listRuleRuns(
  db: Database,
  viewer: Viewer,
  request: { readonly first: number; readonly after: string | null; readonly filter: RuleRunFilter },
): Promise<Page<RuleRunRow>> {
  checkFirst(request.first, MAX_PAGE);
  const where = toWhere(viewer, request.filter);
  if (request.after !== null) where.id = { lt: decodeRunCursor(request.after) };
  const rows = await translated(
    // Ids grow with time: newest first.
    db.prisma.ruleRun.findMany({ where, orderBy: { id: 'desc' }, take: request.first + 1 }),
  );
  return toPage(rows.map(toRow), request.first, request.after);
}

export function countRuleRuns(db: Database, viewer: Viewer, filter: RuleRunFilter): Promise<number> {
  return translated(db.prisma.ruleRun.count({ where: toWhere(viewer, filter) }));
}

export function runCursor(run: { readonly id: string }): string {
  return encodeCursor(run.id);
}

function toWhere(viewer: Viewer, filter: RuleRunFilter): Prisma.RuleRunWhereInput {
  const { status, projectId, channelId, correlationId, createdAfter, createdBefore } = filter;
  const where: Prisma.RuleRunWhereInput = { tenantId: viewer.tenantId };
  if (status) where.status = { in: [...status] };
  if (isGiven(projectId)) where.projectId = projectId;
  if (isGiven(channelId)) where.channelId = isUuid(channelId) ? channelId : { in: [] };
  if (isGiven(correlationId)) where.correlationId = correlationId;
  if (createdAfter || createdBefore) {
    where.createdAt = {
      // Rows have microseconds, clients see milliseconds: a run is not after the time that it shows.
      ...(createdAfter ? { gte: new Date(createdAfter.getTime() + 1) } : {}),
      ...(createdBefore ? { lt: createdBefore } : {}),
    };
  }
  return where;
}

function isGiven<T>(value: T | null | undefined): value is T {
  return value !== null && value !== undefined;
}

function decodeRunCursor(cursor: string): string {
  const id = decodeCursor(cursor, 1)[0]!;
  if (!isUuid(id))
    throw new AppError('BAD_USER_INPUT', 'The cursor is not one of a run.', { field: ['after'] });
  return id;
}
