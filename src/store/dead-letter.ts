// Dead letters: targets that failed for good, over all runs of a tenant. Reading, counting and summing up;
// newest run first. What a person does about them (retry, roll back) is the run's affair.

import { UNKNOWN_ERROR, type DeadLetterCount } from '../domain/dead-letter.js';
import { MAX_LONG_PAGE } from '../domain/page.js';
import { RETRYABLE_STATUSES } from '../domain/rule-run.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Database } from './db.js';
import { isRowNumber, isUuid } from './id.js';
import { checkFirst, decodeCursor, encodeCursor, toPage, type Page } from './page.js';
import { TARGET_COLUMNS, type RuleTargetRow } from './rule-target.js';

export interface DeadLetterFilter {
  readonly projectId: string | null;
  readonly runId: string | null;
  readonly errorCode: string | null;
}

interface Position {
  readonly runId: string;
  readonly id: string;
}

export async function listDeadLetters(
  db: Database,
  viewer: Viewer,
  request: { readonly first: number; readonly after: string | null; readonly filter: DeadLetterFilter },
): Promise<Page<RuleTargetRow>> {
  const { first, after, filter } = request;
  checkFirst(first, MAX_LONG_PAGE);
  const rows = await readPage(db, viewer, filter, after === null ? null : decodePosition(after), first + 1);
  return toPage(rows, first, after);
}

/** All of them, page by page: nothing is read ahead of who asks, and no transaction stays open meanwhile. */
export async function* readDeadLetters(
  db: Database,
  viewer: Viewer,
  filter: DeadLetterFilter,
): AsyncGenerator<readonly RuleTargetRow[], void, undefined> {
  let after: Position | null = null;
  for (;;) {
    const rows: RuleTargetRow[] = await readPage(db, viewer, filter, after, MAX_LONG_PAGE);
    if (rows.length > 0) yield rows;
    if (rows.length < MAX_LONG_PAGE) return;
    after = rows.at(-1)!;
  }
}

async function readPage(
  db: Database,
  viewer: Viewer,
  filter: DeadLetterFilter,
  after: Position | null,
  limit: number,
): Promise<RuleTargetRow[]> {
  const { conditions, values } = toConditions(viewer, filter);
  if (after) {
    conditions.push(`(run_id, id) < ($${values.length + 1}::uuid, $${values.length + 2}::bigint)`);
    values.push(after.runId, after.id);
  }
  return db.query<RuleTargetRow>(
    `SELECT ${TARGET_COLUMNS} FROM rule_target WHERE ${conditions.join(' AND ')}
     ORDER BY rule_target.run_id DESC, rule_target.id DESC LIMIT ${limit}`,
    values,
  );
}

export async function countDeadLetters(
  db: Database,
  viewer: Viewer,
  filter: DeadLetterFilter,
): Promise<number> {
  if (filter.errorCode === null) return countByRuns(db, viewer, filter);
  const { conditions, values } = toConditions(viewer, filter);
  const rows = await db.query<{ count: number }>(
    `SELECT count(*)::integer AS count FROM rule_target WHERE ${conditions.join(' AND ')}`,
    values,
  );
  return rows[0]!.count;
}

/** The runs know how many of their targets failed; those of a pruned run are gone. */
async function countByRuns(db: Database, viewer: Viewer, filter: DeadLetterFilter): Promise<number> {
  const rows = await db.query<{ count: number }>(
    `SELECT coalesce(sum(failed_count), 0)::float8 AS count FROM rule_run
     WHERE tenant_id = $1 AND failed_count > 0 AND pruned_at IS NULL
       AND ($2::text IS NULL OR project_id = $2) AND ($3::uuid IS NULL OR id = $3)`,
    [viewer.tenantId, filter.projectId, runIdOf(filter)],
  );
  return rows[0]!.count;
}

/** How many of a project's targets failed for which reason. */
export async function countDeadLettersByCode(
  db: Database,
  viewer: Viewer,
  projectId: string,
): Promise<DeadLetterCount[]> {
  const { conditions, values } = toConditions(viewer, { projectId, runId: null, errorCode: null });
  const isRetryable = `run.status = ANY($${values.length + 1}) AND NOT run.rolling_back
    AND coalesce(run.auto_revert_at > statement_timestamp(), true)`;
  return db.query<DeadLetterCount>(
    `SELECT coalesce(error_code, '${UNKNOWN_ERROR}') AS code, count(*)::integer AS count,
       (count(*) FILTER (WHERE NOT EXISTS (
         SELECT 1 FROM rule_run run WHERE run.id = rule_target.run_id AND run.tenant_id = $1 AND ${isRetryable}
       )))::integer AS "beyondRetry"
     FROM rule_target WHERE ${conditions.join(' AND ')} GROUP BY 1 ORDER BY count DESC, code`,
    [...values, RETRYABLE_STATUSES],
  );
}

function toConditions(
  viewer: Viewer,
  filter: DeadLetterFilter,
): { readonly conditions: string[]; readonly values: unknown[] } {
  const conditions = ['tenant_id = $1', 'failed_at IS NOT NULL'];
  const values: unknown[] = [viewer.tenantId];
  const add = (value: unknown, condition: (parameter: string) => string): void => {
    values.push(value);
    conditions.push(condition(`$${values.length}`));
  };
  const { projectId, runId, errorCode } = filter;
  if (runId !== null) add(runIdOf(filter), (id) => `run_id = ${id}`);
  if (errorCode !== null) add(errorCode, (code) => `error_code = ${code}`);
  if (projectId !== null) add(projectId, (project) => `run_id = ANY(${runsWithFailures(project)})`);
  return { conditions, values };
}

// The runs first, as an array: few of them have any, and the targets are then found run by run.
function runsWithFailures(project: string): string {
  return `ARRAY(SELECT id FROM rule_run
    WHERE tenant_id = $1 AND project_id = ${project} AND failed_count > 0 AND pruned_at IS NULL)`;
}

/** An id that can be nobody's stands for no run, not for all of them. */
function runIdOf({ runId }: DeadLetterFilter): string | null {
  return runId === null || isUuid(runId) ? runId : NO_RUN;
}

const NO_RUN = '00000000-0000-0000-0000-000000000000';

export function deadLetterCursor({ runId, id }: Position): string {
  return encodeCursor(runId, id);
}

function decodePosition(cursor: string): Position {
  const [runId, id] = decodeCursor(cursor, 2) as [string, string];
  if (isUuid(runId) && isRowNumber(id)) return { runId, id };
  throw new AppError('BAD_USER_INPUT', 'The cursor is not one of a dead letter.', { field: ['after'] });
}
