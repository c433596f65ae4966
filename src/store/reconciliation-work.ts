// Reconciliations under way: lease → page of targets → result → lease again, until no target is left; then the
// report. Here the leases, and what a worker reads; its results are in reconciliation-result. One lock order: the
// run's row, then the reconciliation's.

import type { AppliedPrice, Mismatch, ReconciliationTrigger } from '../domain/reconciliation.js';
import type { Connection, Database } from './db.js';

export interface ReconciliationClaim {
  readonly id: string;
  readonly runId: string;
  readonly correlationId: string;
  readonly tenantId: string;
  readonly trigger: ReconciliationTrigger;
  readonly actor: string;
  readonly repair: boolean;
  readonly channelId: string;
  /** Changes with the channel's configuration. */
  readonly channelVersion: string;
  /** Whether the channel's row has limits of its own to keep: a budget, or throttled answers. */
  readonly isGuarded: boolean;
  /** Throttled answers of the channel in a row. */
  readonly throttles: number;
  readonly currency: string;
  readonly position: string;
  /** Targets to read once more when there is no other. */
  readonly again: readonly string[];
  readonly checked: number;
  /** Since it was asked for. */
  readonly ageMs: number;
  /** Claims since the last progress, this one included. */
  readonly attempts: number;
  readonly workerId: string;
  readonly epoch: number;
}

/** Prices that a target has and nobody is about to change: one that waits to be set back is not among them. */
export const IS_SETTLED = `status = 'APPLIED' AND next_attempt_at IS NULL AND lease_owner IS NULL`;

/** When the next of any may be claimed, but for those of the channels `passedOver`; null when nothing waits. */
export async function nextReconciliationDelayMs(
  db: Database,
  passedOver: readonly string[] = [],
): Promise<number | null> {
  const rows = await db.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM min(work.next_attempt_at) - clock_timestamp()) * 1000)::float8 AS ms
     FROM reconciliation AS work JOIN rule_run AS run ON run.id = work.run_id
     WHERE work.lease_owner IS NULL AND run.channel_id <> ALL($1::uuid[])`,
    [passedOver],
  );
  return rows[0]?.ms ?? null;
}

interface ReconciliationRequest {
  readonly workerId: string;
  readonly leaseMs: number;
  readonly passedOver?: readonly string[];
}

/**
 * Somebody waits for what was asked for by hand; the rest in the order in which it waits. None of
 * the channels `passedOver`.
 */
export async function claimReconciliation(
  db: Database,
  { workerId, leaseMs, passedOver = [] }: ReconciliationRequest,
): Promise<ReconciliationClaim | null> {
  const rows = await db.query<ReconciliationClaim>(
    `UPDATE reconciliation AS work SET attempts = work.attempts + 1, lease_owner = $1,
       lease_epoch = work.lease_epoch + 1, lease_until = clock_timestamp() + $2 * interval '1 millisecond'
     FROM rule_run AS run JOIN channel ON channel.id = run.channel_id
     WHERE run.id = work.run_id AND work.id = ANY(ARRAY(
       SELECT next.id FROM reconciliation AS next JOIN rule_run AS its ON its.id = next.run_id
       WHERE next.lease_owner IS NULL AND next.next_attempt_at <= clock_timestamp() AND its.channel_id <> ALL($3::uuid[])
       ORDER BY next.trigger = 'manual' DESC, next.next_attempt_at LIMIT 1 FOR UPDATE OF next SKIP LOCKED))
     RETURNING work.id, work.run_id AS "runId", work.tenant_id AS "tenantId", work.trigger, work.actor, work.repair,
       channel.id AS "channelId", channel.updated_at::text AS "channelVersion",
       (channel.circuit <> 'CLOSED' OR channel.consecutive_429 > 0 OR channel.bucket_at IS NOT NULL) AS "isGuarded",
       channel.consecutive_429 AS throttles, run.currency, run.correlation_id AS "correlationId",
       work.position::text AS position, work.again::text[] AS again, work.checked, work.attempts,
       (extract(epoch FROM clock_timestamp() - work.created_at) * 1000)::float8 AS "ageMs", work.lease_owner AS "workerId", work.lease_epoch AS epoch`,
    [workerId, leaseMs, passedOver],
  );
  return rows[0] ?? null;
}

export async function extendReconciliation(
  db: Database,
  { id, workerId, epoch }: ReconciliationClaim,
  leaseMs: number,
): Promise<void> {
  await db.query(
    `UPDATE reconciliation SET lease_until = clock_timestamp() + $4 * interval '1 millisecond'
     WHERE id = $1 AND lease_owner = $2 AND lease_epoch = $3`,
    [id, workerId, epoch, leaseMs],
  );
}

export async function recoverReconciliations(
  db: Database,
  deadWorkerIds: readonly string[],
): Promise<number> {
  const rows = await db.query(
    `UPDATE reconciliation SET lease_owner = NULL, lease_until = NULL
     WHERE lease_until <= clock_timestamp() OR lease_owner = ANY($1) RETURNING 1`,
    [deadWorkerIds],
  );
  return rows.length;
}

const PRICE = `id::text AS "targetId", external_id AS "externalId", after_amount::float8 AS expected`;

/** The next targets to compare, by id. */
export async function readAppliedPrices(
  db: Database,
  { runId, position }: ReconciliationClaim,
  limit: number,
): Promise<AppliedPrice[]> {
  // ANY keeps the planner on the index of (run_id, id), whatever its statistics.
  return db.query<AppliedPrice>(
    `SELECT ${PRICE} FROM rule_target WHERE run_id = ANY(ARRAY[$1::uuid]) AND id > $2 AND ${IS_SETTLED}
     ORDER BY run_id, id LIMIT ${limit}`,
    [runId, position],
  );
}

/** Of those to read once more, the next. */
export async function readPricesAgain(
  db: Database,
  { again }: ReconciliationClaim,
  limit: number,
): Promise<AppliedPrice[]> {
  if (again.length === 0) return [];
  return db.query<AppliedPrice>(
    `SELECT ${PRICE} FROM rule_target WHERE id = ANY($1::bigint[]) AND ${IS_SETTLED} ORDER BY id LIMIT ${limit}`,
    [again],
  );
}

/**
 * Of the items, those whose price a later run has set, or is about to: what this run set is no longer what
 * ought to stand there.
 */
export async function findSuperseded(
  db: Database,
  { runId, channelId }: ReconciliationClaim,
  externalIds: readonly string[],
): Promise<Set<string>> {
  if (externalIds.length === 0) return new Set();
  const rows = await db.query<{ externalId: string }>(
    `SELECT DISTINCT mine.external_id AS "externalId"
     FROM rule_target AS mine
       JOIN rule_run AS later ON later.channel_id = $2 AND later.id <> mine.run_id
         AND later.started_at IS NOT NULL AND coalesce(later.finished_at, 'infinity') >= mine.applied_at
       JOIN rule_target AS theirs ON theirs.run_id = later.id AND theirs.external_id = mine.external_id
     WHERE mine.run_id = $1 AND mine.external_id = ANY($3)
       AND (theirs.status = 'APPLYING' OR (theirs.status = 'APPLIED' AND theirs.applied_at > mine.applied_at))`,
    [runId, channelId, externalIds],
  );
  return new Set(rows.map(({ externalId }) => externalId));
}

export interface FoundMismatches {
  readonly projectId: string;
  readonly correlationId: string;
  readonly mismatches: readonly Mismatch[];
}

/** What has been found so far, for a repair. */
export async function readFoundMismatches(
  db: Database,
  { id }: ReconciliationClaim,
): Promise<FoundMismatches> {
  const rows = await db.query<FoundMismatches>(
    `SELECT run.project_id AS "projectId", run.correlation_id AS "correlationId",
       jsonb_path_query_array(work.details, '$[*] ? (exists (@.expected))') AS mismatches
     FROM reconciliation AS work JOIN rule_run AS run ON run.id = work.run_id WHERE work.id = $1`,
    [id],
  );
  return rows[0] ?? { projectId: '', correlationId: '', mismatches: [] };
}

/** Hands the lease back: to be tried again after the delay, or at once and at no cost when it was not tried. */
export async function returnReconciliation(
  db: Database,
  { id, workerId, epoch }: ReconciliationClaim,
  { delayMs, wasTried }: { readonly delayMs: number; readonly wasTried: boolean },
): Promise<void> {
  await db.query(
    `UPDATE reconciliation SET lease_owner = NULL, lease_until = NULL, attempts = attempts - $5,
       next_attempt_at = clock_timestamp() + $4 * interval '1 millisecond'
     WHERE id = $1 AND lease_owner = $2 AND lease_epoch = $3`,
    [id, workerId, epoch, delayMs, wasTried ? 0 : 1],
  );
}

/** The run's lock, then the claim's; false when the claim is not held any more. */
export async function lockClaim(
  connection: Connection,
  { id, runId, workerId, epoch }: ReconciliationClaim,
): Promise<boolean> {
  await connection.query('SELECT 1 FROM rule_run WHERE id = $1 FOR NO KEY UPDATE', [runId]);
  const { rowCount } = await connection.query(
    'SELECT 1 FROM reconciliation WHERE id = $1 AND lease_owner = $2 AND lease_epoch = $3 FOR UPDATE',
    [id, workerId, epoch],
  );
  return rowCount === 1;
}
