// Rule targets: adding them to a preview and reading them.

import { AppError } from '../errors.js';
import { MAX_LONG_PAGE } from '../domain/page.js';
import {
  checkTargets,
  MAX_TARGETS_PER_CALL,
  type CheckedTargets,
  type RuleTargetStatus,
  type TargetInput,
} from '../domain/rule-target.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { isRowNumber, isUuid } from './id.js';
import { refuseFaults, refuseTooMany } from './input.js';
import { checkFirst, decodeCursor, encodeCursor, toPages, type Page } from './page.js';

export interface RuleTargetRow {
  readonly id: string;
  readonly runId: string;
  readonly externalId: string;
  readonly status: RuleTargetStatus;
  readonly currency: string;
  readonly beforeAmount: number;
  readonly afterAmount: number;
  readonly attempts: number;
  readonly nextAttemptAt: Date | null;
  readonly errorCode: string | null;
  readonly errorMessage: string | null;
  readonly appliedAt: Date | null;
  readonly rolledBackAt: Date | null;
  readonly failedAt: Date | null;
}

// Amounts fit a double: they were checked to be safe integers on the way in.
export const TARGET_COLUMNS = `id::text AS id, run_id AS "runId", external_id AS "externalId", status, currency,
  before_amount::float8 AS "beforeAmount", after_amount::float8 AS "afterAmount", attempts,
  next_attempt_at AS "nextAttemptAt", error_code AS "errorCode", error_message AS "errorMessage",
  applied_at AS "appliedAt", rolled_back_at AS "rolledBackAt", failed_at AS "failedAt"`;

/** Checks targets as clients give them, or refuses with the path of each fault. */
export function requireTargets(inputs: readonly TargetInput[], runCurrency: string | null): CheckedTargets {
  refuseTooMany('targets', inputs.length, MAX_TARGETS_PER_CALL, 'add the rest with addRuleTargets');
  const checked = checkTargets(inputs, runCurrency);
  refuseFaults(checked.faults, 'targets');
  return checked;
}

/** Inserts targets into a run that the caller has locked. */
export async function insertTargets(
  connection: Connection,
  run: { readonly id: string; readonly tenantId: string },
  { targets, currency }: CheckedTargets,
): Promise<void> {
  if (targets.length === 0) return;
  const inserted = await connection.query(
    `INSERT INTO rule_target (run_id, tenant_id, currency, external_id, before_amount, after_amount)
     SELECT $1, $2, $3, new.external_id, new.before_amount, new.after_amount
     FROM unnest($4::text[], $5::bigint[], $6::bigint[]) AS new (external_id, before_amount, after_amount)
     ON CONFLICT (run_id, external_id) DO NOTHING`,
    [
      run.id,
      run.tenantId,
      currency,
      targets.map(({ externalId }) => externalId),
      targets.map(({ beforeAmount }) => beforeAmount),
      targets.map(({ afterAmount }) => afterAmount),
    ],
  );
  if (inserted.rowCount !== targets.length) throw duplicateTargets(targets.length - (inserted.rowCount ?? 0));
}

// Thrown inside the transaction, so that what did go in goes out again.
function duplicateTargets(count: number): AppError {
  const subject = count === 1 ? '1 target is' : `${count} targets are`;
  return new AppError('CONFLICT', `${subject} in the run already: an external id stands once in a run.`, {
    field: ['input', 'targets'],
    details: { duplicates: count },
  });
}

export interface TargetPageRequest {
  readonly first: number;
  readonly after: string | null;
  readonly status: readonly RuleTargetStatus[] | null;
}

/** The same page of many runs' targets in one read, in the order in which they were added. */
export async function listRuleTargets(
  db: Database,
  viewer: Viewer,
  runIds: readonly string[],
  { first, after, status }: TargetPageRequest,
): Promise<Map<string, Page<RuleTargetRow>>> {
  checkFirst(first, MAX_LONG_PAGE);
  // `run_id = run.id` would let the planner walk the primary key for the order, through the targets of every
  // older run, whenever its statistics know of one big run only; ANY leaves it the index on (run_id, id).
  const rows = await db.query<RuleTargetRow>(
    `SELECT target.* FROM rule_run AS run CROSS JOIN LATERAL (
       SELECT ${TARGET_COLUMNS} FROM rule_target AS t
       WHERE t.run_id = ANY(ARRAY[run.id]) AND t.id > $3 AND ($4::text[] IS NULL OR t.status = ANY($4))
       ORDER BY t.run_id, t.id LIMIT $5) AS target
     WHERE run.id = ANY($1::uuid[]) AND run.tenant_id = $2 AND ${hasAny(status)}`,
    [
      runIds.filter(isUuid),
      viewer.tenantId,
      after === null ? '0' : decodeTargetCursor(after),
      status,
      first + 1,
    ],
  );
  return toPages(runIds, rows, first, after);
}

/** No index has the status, which changes too often; but a run knows whether it has any such target at all. */
function hasAny(status: readonly RuleTargetStatus[] | null): string {
  if (status === null) return 'true';
  const counters = status.map((each) => `run.${each.toLowerCase()}_count`);
  return `${['0', ...counters].join(' + ')} > 0`;
}

export function targetCursor(target: RuleTargetRow): string {
  return encodeCursor(target.id);
}

function decodeTargetCursor(cursor: string): string {
  const id = decodeCursor(cursor, 1)[0]!;
  if (!isRowNumber(id))
    throw new AppError('BAD_USER_INPUT', 'The cursor is not one of a target.', { field: ['after'] });
  return id;
}

export async function findRuleTargets(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, RuleTargetRow>> {
  const numbers = ids.filter(isRowNumber);
  if (numbers.length === 0) return new Map();
  const rows = await db.query<RuleTargetRow>(
    `SELECT ${TARGET_COLUMNS} FROM rule_target WHERE id = ANY($1::bigint[]) AND tenant_id = $2`,
    [numbers, viewer.tenantId],
  );
  return new Map(rows.map((row) => [row.id, row]));
}
