// Lists of ops runs, newest first.

import { MAX_PAGE } from '../domain/page.js';
import type { OpsRunStatus } from '../domain/ops-run.js';
import type { Viewer } from '../domain/viewer.js';
import { Conditions } from './conditions.js';
import type { Database } from './db.js';
import { OPS_RUN_COLUMNS, type OpsRunRow } from './ops-run.js';
import { checkFirst, countUpTo, encodeCursor, toPage, type CappedCount, type Page } from './page.js';

export interface OpsRunFilter {
  readonly status: readonly OpsRunStatus[] | null;
  readonly projectId: string | null;
  readonly env: string | null;
  readonly claimedBy: string | null;
}

export type ListedOpsRun = OpsRunRow & {
  /** `createdAt` with all its digits, for the cursor. */
  readonly createdKey: string;
};

export async function listOpsRuns(
  db: Database,
  viewer: Viewer,
  request: { readonly first: number; readonly after: string | null; readonly filter: OpsRunFilter },
): Promise<Page<ListedOpsRun>> {
  checkFirst(request.first, MAX_PAGE);
  const where = conditionsOf(viewer, request.filter);
  if (request.after !== null) where.addAfterRun(request.after);
  const rows = await db.query<ListedOpsRun & Record<string, unknown>>(
    `SELECT ${OPS_RUN_COLUMNS}, created_at::text AS "createdKey" FROM ops_run WHERE ${where.sql}
     ORDER BY created_at DESC, id DESC LIMIT ${request.first + 1}`,
    where.values,
  );
  return toPage(rows, request.first, request.after);
}

export function countOpsRuns(db: Database, viewer: Viewer, filter: OpsRunFilter): Promise<CappedCount> {
  const where = conditionsOf(viewer, filter);
  return countUpTo(db, `ops_run WHERE ${where.sql}`, where.values);
}

export function opsRunCursor({ createdKey, id }: ListedOpsRun): string {
  return encodeCursor(createdKey, id);
}

function conditionsOf(viewer: Viewer, filter: OpsRunFilter): Conditions {
  const where = new Conditions();
  where.add('tenant_id = ?', viewer.tenantId);
  where.addOneOf('status', filter.status);
  where.addIfGiven('project_id = ?', filter.projectId);
  where.addIfGiven('env = ?', filter.env);
  where.addIfGiven('claimed_by = ?', filter.claimedBy);
  return where;
}
