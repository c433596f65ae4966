// What a worker has found of a claimed reconciliation: a page of it, or its end. Every result names its claim by
// owner and epoch, and changes nothing when that was taken back.

import { MAX_FINDINGS_LISTED, reasonOf, type Mismatch, type Unread } from '../domain/reconciliation.js';
import { errorMessageOf } from '../domain/rule-target.js';
import type { Connection, Database } from './db.js';
import { appendRunLines, type Line } from './ledger.js';
import { IS_SETTLED, lockClaim, type ReconciliationClaim } from './reconciliation-work.js';

/** Beyond any target: nothing comes after it. */
const END_OF_TARGETS = '9223372036854775807';

export interface ComparedPage {
  /** The last target of the page. */
  readonly position: string;
  readonly checked: number;
  readonly mismatches: readonly Mismatch[];
  readonly unread: readonly Unread[];
  /** All that are to be read once more, of whichever page. */
  readonly again: readonly string[];
  /** Claims since the last progress. */
  readonly attempts: number;
  /** Until the next page is to be read. */
  readonly delayMs: number;
}

/** Notes a compared page, with a ledger line for each mismatch; false when the claim was lost. */
export function recordComparison(
  db: Database,
  claim: ReconciliationClaim,
  page: ComparedPage,
): Promise<boolean> {
  return db.transaction(claim.workerId, async (connection) => {
    if (!(await lockClaim(connection, claim))) return false;
    const mismatches = await keepSettled(connection, page.mismatches);
    const unread = await keepSettled(connection, page.unread);
    await connection.query(
      `UPDATE reconciliation SET position = $2, checked = checked + $3, mismatches = mismatches + $4,
         unread = unread + $5, again = $6,
         details = CASE WHEN jsonb_array_length(details) + $4 + $5 <= ${MAX_FINDINGS_LISTED} THEN details || $7 ELSE details END,
         attempts = $9, lease_owner = NULL, lease_until = NULL,
         next_attempt_at = clock_timestamp() + $8 * interval '1 millisecond'
       WHERE id = $1`,
      [
        claim.id,
        page.position,
        page.checked,
        mismatches.length,
        unread.length,
        page.again,
        JSON.stringify([...mismatches, ...unread]),
        page.delayMs,
        page.attempts,
      ],
    );
    const lines = mismatches.map((mismatch) => toLine(claim, mismatch));
    await appendRunLines(connection, 'RULE', claim.runId, lines);
    return true;
  });
}

/** So many of the rest are named in the report; all of them have the same reason. */
const ABANDONED_LISTED = 1_000;

/** Notes that what is left cannot be read, so that the report of the others can be made. */
export async function abandonRest(
  db: Database,
  claim: ReconciliationClaim,
  failure: { readonly code: string; readonly message: string },
): Promise<void> {
  // Before anything is locked: it may be most of a large run.
  const rest = await readRest(db, claim);
  const reason = { code: failure.code, message: reasonOf(failure.message) };
  await db.transaction(claim.workerId, async (connection) => {
    if (!(await lockClaim(connection, claim))) return;
    const first = await keepSettled(connection, rest.first);
    const { rows } = await connection.query<{ listed: number }>(
      'SELECT jsonb_array_length(details) AS listed FROM reconciliation WHERE id = $1',
      [claim.id],
    );
    const room = Math.max(0, MAX_FINDINGS_LISTED - rows[0]!.listed);
    await connection.query(
      `UPDATE reconciliation SET position = ${END_OF_TARGETS}, again = '{}', unread = unread + $2, details = details || $3,
         attempts = 0, lease_owner = NULL, lease_until = NULL, next_attempt_at = clock_timestamp()
       WHERE id = $1`,
      [
        claim.id,
        rest.count - (rest.first.length - first.length),
        JSON.stringify(first.slice(0, room).map((item) => ({ ...item, ...reason }))),
      ],
    );
  });
}

interface RestOfTargets {
  readonly count: number;
  /** The first of them, by id. */
  readonly first: readonly Pick<Unread, 'targetId' | 'externalId'>[];
}

/** Those to be read once more, which are all behind the position, and those beyond it. */
async function readRest(
  db: Database,
  { runId, position, again }: ReconciliationClaim,
): Promise<RestOfTargets> {
  const rest = (columns: string, limit = ''): string =>
    `(SELECT ${columns} FROM rule_target
      WHERE run_id = ANY(ARRAY[$1::uuid]) AND id > $2 AND ${IS_SETTLED} ${limit})
     UNION ALL
     (SELECT ${columns} FROM rule_target WHERE id = ANY($3::bigint[]) AND id <= $2 AND ${IS_SETTLED} ${limit})`;
  const values = [runId, position, again];
  const [counted] = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM (${rest('id')}) AS rest`,
    values,
  );
  const first = await db.query<RestOfTargets['first'][number]>(
    `SELECT id::text AS "targetId", external_id AS "externalId"
     FROM (${rest('run_id, id, external_id', `ORDER BY run_id, id LIMIT ${ABANDONED_LISTED}`)}) AS rest
     ORDER BY rest.id LIMIT ${ABANDONED_LISTED}`,
    values,
  );
  return { count: counted!.count, first };
}

/** Between the reading and now a target may have been set back: then nothing is wrong with it. */
async function keepSettled<Found extends { readonly targetId: string }>(
  connection: Connection,
  found: readonly Found[],
): Promise<readonly Found[]> {
  if (found.length === 0) return found;
  const { rows } = await connection.query<{ id: string }>(
    `SELECT id::text FROM rule_target WHERE id = ANY($1::bigint[]) AND ${IS_SETTLED}`,
    [found.map(({ targetId }) => targetId)],
  );
  const settled = new Set(rows.map(({ id }) => id));
  return found.filter(({ targetId }) => settled.has(targetId));
}

function toLine({ id, trigger }: ReconciliationClaim, mismatch: Mismatch): Line {
  const { externalId, expected, actual } = mismatch;
  const shown = actual === null ? 'has no such item' : `shows ${actual}`;
  return {
    type: 'automation.reconciliation.mismatch',
    level: 'WARN',
    message: `${externalId}: the channel ${shown} instead of ${expected}`,
    payload: { ...mismatch, reconciliationId: id, trigger },
    targetId: mismatch.targetId,
  };
}

/** Ends it with its report; false when the claim was lost. */
export function finishReconciliation(
  db: Database,
  claim: ReconciliationClaim,
  repairRunId: string | null,
): Promise<boolean> {
  return db.transaction(claim.workerId, async (connection) => {
    if (!(await lockClaim(connection, claim))) return false;
    const { rows } = await connection.query<{ checked: number; mismatches: number; unread: number }>(
      `WITH done AS (DELETE FROM reconciliation WHERE id = $1 RETURNING *)
       INSERT INTO reconciliation_report
         (id, tenant_id, run_id, trigger, total_checked, mismatches, unread, details, repair_run_id, created_at)
       SELECT id, tenant_id, run_id, trigger, checked, mismatches, unread, details, $2, clock_timestamp() FROM done
       RETURNING total_checked AS checked, mismatches, unread`,
      [claim.id, repairRunId],
    );
    const { checked, mismatches, unread } = rows[0]!;
    const rest = unread === 0 ? '' : `; ${unread} more could not be read`;
    await appendEnd(connection, claim, {
      type: 'automation.reconciliation.complete',
      level: unread === 0 ? 'INFO' : 'WARN',
      message: `${checked} compared with the channel, ${mismatches} of them differ${rest}`,
      payload: { totalChecked: checked, mismatches, unread, repairRunId },
    });
    return true;
  });
}

/** Ends it without a report: the channel's prices could not be read. */
export async function failReconciliation(
  db: Database,
  claim: ReconciliationClaim,
  failure: { readonly code: string; readonly message: string },
): Promise<void> {
  await db.transaction(claim.workerId, async (connection) => {
    if (!(await lockClaim(connection, claim))) return;
    await connection.query('DELETE FROM reconciliation WHERE id = $1', [claim.id]);
    const type = 'automation.reconciliation.fail';
    const message = errorMessageOf(failure.message);
    await appendEnd(connection, claim, { type, level: 'WARN', message, payload: { code: failure.code } });
  });
}

async function appendEnd(connection: Connection, claim: ReconciliationClaim, line: Line): Promise<void> {
  const payload = { reconciliationId: claim.id, trigger: claim.trigger, ...line.payload };
  await appendRunLines(connection, 'RULE', claim.runId, [{ ...line, payload }]);
}
