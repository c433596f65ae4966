// Claims: lease → heartbeat → settle or release → expire. One lock order everywhere: the run's row, then its
// targets. Every lease carries the number of the claim that took it (`epoch`), and every settle names it:
// a worker whose lease was taken back changes nothing, and its late result becomes a ledger line.
//
// A claim serves one of two purposes. Targets to apply are QUEUED and become APPLYING. Targets to set back are
// APPLIED and stay so until that is done; they are those with `next_attempt_at`, which the claim moves to the
// end of its lease, so that one that nobody settles comes up again by itself.

import type { OnConflict } from '../domain/rule-run.js';
import type { Connection, Database } from './db.js';

export interface ClaimedTarget {
  readonly id: string;
  readonly externalId: string;
  readonly beforeAmount: number;
  readonly afterAmount: number;
  readonly currency: string;
  /** Calls for this purpose, with the one that the claim is for. */
  readonly attempts: number;
}

export interface Claim {
  readonly purpose: 'apply' | 'roll_back';
  readonly onConflict: OnConflict;
  readonly workerId: string;
  readonly runId: string;
  readonly tenantId: string;
  readonly channelId: string;
  readonly epoch: number;
  readonly targets: readonly ClaimedTarget[];
}

export interface ClaimableRun {
  readonly runId: string;
  readonly channelId: string;
  /** Changes with the channel's configuration. */
  readonly channelVersion: string;
  /** Whether the channel's row has limits of its own to keep: a budget, or throttled answers. */
  readonly isGuarded: boolean;
  /** Throttled answers of the channel in a row. */
  readonly throttles: number;
}

/** As the index on active runs has it; whatever else makes a run claimable is looked up in the row. */
const IS_ACTIVE = `(run.status IN ('QUEUED', 'APPLYING') OR run.rolling_back) AND NOT run.paused`;

/**
 * When the next batch of a run may go: not before some target is due, the run may start, its channel's circuit
 * lets one through, a second's worth of the channel's budget is there, and one of its slots is free.
 */
const DUE_AT = `greatest(run.next_claim_at, run.start_at,
  CASE WHEN channel.circuit <> 'CLOSED' THEN channel.circuit_open_until END,
  CASE WHEN channel.bucket_restore_per_s > 0 THEN channel.bucket_at + interval '1 second' * (
    least(channel.bucket_capacity, greatest(1, channel.bucket_restore_per_s)) - channel.bucket_tokens
  ) / channel.bucket_restore_per_s END,
  CASE WHEN channel.slots <> '{}' THEN (
    SELECT CASE WHEN count(*) >= (channel.config #>> '{policy,concurrency}')::int THEN min(slot.value::timestamptz) END
    FROM jsonb_each_text(channel.slots) AS slot WHERE slot.value::timestamptz > clock_timestamp()) END)`;

/** The run to serve next: priority first, then the one served least recently. */
export async function findClaimableRun(db: Database): Promise<ClaimableRun | null> {
  const rows = await db.query<ClaimableRun>(
    `SELECT run.id AS "runId", channel.id AS "channelId", channel.updated_at::text AS "channelVersion",
       (channel.circuit <> 'CLOSED' OR channel.consecutive_429 > 0 OR channel.bucket_at IS NOT NULL) AS "isGuarded",
       channel.consecutive_429 AS throttles
     FROM rule_run run JOIN channel ON channel.id = run.channel_id
     WHERE ${IS_ACTIVE} AND run.next_claim_at IS NOT NULL AND ${DUE_AT} <= clock_timestamp()
     ORDER BY run.priority DESC, run.last_served_at NULLS FIRST, run.id LIMIT 1`,
  );
  return rows[0] ?? null;
}

/** When the next batch of any run may go; null when nothing waits. */
export async function nextClaimDelayMs(db: Database): Promise<number | null> {
  const rows = await db.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM min(${DUE_AT}) - clock_timestamp()) * 1000)::float8 AS ms
     FROM rule_run run JOIN channel ON channel.id = run.channel_id
     WHERE ${IS_ACTIVE} AND run.next_claim_at IS NOT NULL`,
  );
  return rows[0]?.ms ?? null;
}

interface ClaimRequest {
  readonly runId: string;
  readonly workerId: string;
  readonly limit: number;
  readonly leaseMs: number;
}

/** Leases up to `limit` due targets of a run; null when there are none (any more). */
export function claimTargets(db: Database, request: ClaimRequest): Promise<Claim | null> {
  const { runId, workerId, limit } = request;
  return db.transaction(workerId, async (connection) => {
    const run = await openClaim(connection, runId);
    if (!run) return null;
    const lease = run.rolling_back ? leaseAppliedTargets : leaseQueuedTargets;
    const targets = await lease(connection, run, request);
    if (targets.length < limit) await rewindClaim(connection, runId);
    else if (!run.rolling_back) await moveCursor(connection, runId, targets);
    return targets.length === 0 ? null : toClaim(run, workerId, targets);
  });
}

interface ClaimingRun {
  readonly id: string;
  readonly tenant_id: string;
  readonly channel_id: string;
  readonly claim_epoch: number;
  readonly claim_cursor: string;
  readonly rolling_back: boolean;
  readonly rollback_on_conflict: OnConflict | null;
}

function toClaim(run: ClaimingRun, workerId: string, targets: readonly ClaimedTarget[]): Claim {
  return {
    purpose: run.rolling_back ? 'roll_back' : 'apply',
    onConflict: run.rollback_on_conflict ?? 'SKIP',
    workerId,
    runId: run.id,
    tenantId: run.tenant_id,
    channelId: run.channel_id,
    epoch: run.claim_epoch,
    targets,
  };
}

// Takes the run's lock, and starts a queued run. What was true when the run was found may not be any more.
async function openClaim(connection: Connection, runId: string): Promise<ClaimingRun | null> {
  const { rows } = await connection.query<ClaimingRun>(
    `UPDATE rule_run run
     SET status = CASE status WHEN 'QUEUED' THEN 'APPLYING' ELSE status END,
       claim_epoch = claim_epoch + 1, last_served_at = clock_timestamp()
     WHERE id = $1 AND ${IS_ACTIVE} AND greatest(next_claim_at, start_at) <= clock_timestamp()
       AND next_claim_at IS NOT NULL
     RETURNING id, tenant_id, channel_id, claim_epoch, claim_cursor, rolling_back, rollback_on_conflict`,
    [runId],
  );
  return rows[0] ?? null;
}

const CLAIMED = `id::text AS id, external_id AS "externalId", before_amount::float8 AS "beforeAmount",
  after_amount::float8 AS "afterAmount", currency`;

async function leaseQueuedTargets(
  connection: Connection,
  run: ClaimingRun,
  { workerId, limit, leaseMs }: ClaimRequest,
): Promise<ClaimedTarget[]> {
  // First what waits and is due, then what was never claimed, by the remembered position. ARRAY(…) makes
  // the choice once; the limit stands in the text because a generic plan would not see a parameter's value.
  const { rows } = await connection.query<ClaimedTarget>(
    `UPDATE rule_target
     SET status = 'APPLYING', attempts = attempts + 1, lease_owner = $3, lease_epoch = $4,
       lease_until = clock_timestamp() + $5 * interval '1 millisecond'
     WHERE id = ANY(ARRAY(
       SELECT id FROM (
         SELECT id FROM (
           SELECT id FROM rule_target WHERE run_id = $1 AND next_attempt_at <= clock_timestamp() AND status = 'QUEUED'
           ORDER BY next_attempt_at LIMIT ${limit} FOR UPDATE SKIP LOCKED) waiting
         UNION ALL
         SELECT id FROM (
           SELECT id FROM rule_target
           WHERE run_id = $1 AND id > $2 AND status = 'QUEUED' AND next_attempt_at IS NULL
           ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED) fresh
       ) due LIMIT ${limit}
     ))
     RETURNING ${CLAIMED}, attempts`,
    [run.id, run.claim_cursor, workerId, run.claim_epoch, leaseMs],
  );
  return rows;
}

async function leaseAppliedTargets(
  connection: Connection,
  run: ClaimingRun,
  { workerId, limit, leaseMs }: ClaimRequest,
): Promise<ClaimedTarget[]> {
  const { rows } = await connection.query<ClaimedTarget>(
    `UPDATE rule_target
     SET rollback_attempts = rollback_attempts + 1, lease_owner = $2, lease_epoch = $3,
       lease_until = term.ends_at, next_attempt_at = term.ends_at
     FROM (SELECT clock_timestamp() + $4 * interval '1 millisecond' AS ends_at) term
     WHERE id = ANY(ARRAY(
       SELECT id FROM rule_target WHERE run_id = $1 AND next_attempt_at <= clock_timestamp() AND status = 'APPLIED'
       ORDER BY next_attempt_at LIMIT ${limit} FOR UPDATE SKIP LOCKED))
     RETURNING ${CLAIMED}, rollback_attempts AS attempts`,
    [run.id, workerId, run.claim_epoch, leaseMs],
  );
  return rows;
}

async function moveCursor(
  connection: Connection,
  runId: string,
  targets: readonly ClaimedTarget[],
): Promise<void> {
  // Only a first attempt moves it: a target that came back lies behind.
  const fresh = targets.filter(({ attempts }) => attempts === 1).map(({ id }) => BigInt(id));
  if (fresh.length === 0) return;
  const furthest = fresh.reduce((a, b) => (a > b ? a : b));
  await connection.query('UPDATE rule_run SET claim_cursor = greatest(claim_cursor, $2) WHERE id = $1', [
    runId,
    furthest,
  ]);
}

// Fewer than asked for: nothing is due now. Sleep until something is. A row that somebody held locked was
// passed over, so when more are queued than wait, look again soon, from the beginning.
async function rewindClaim(connection: Connection, runId: string): Promise<void> {
  await connection.query(
    `UPDATE rule_run SET claim_cursor = 0, next_claim_at = CASE
       WHEN queued_count > waiting.count THEN clock_timestamp() + interval '1 second'
       ELSE waiting.first_at
     END
     FROM (
       SELECT count(*) AS count, min(next_attempt_at) AS first_at
       FROM rule_target WHERE run_id = $1 AND next_attempt_at IS NOT NULL
     ) waiting
     WHERE id = $1`,
    [runId],
  );
}

/**
 * Keeps the leases of a claim that is still being worked on. Without the run's lock, so it waits for no
 * row: whoever holds one is settling it or taking it back.
 */
export async function extendLeases(
  db: Database,
  claim: Claim,
  targetIds: readonly string[],
  leaseMs: number,
): Promise<void> {
  await db.query(
    `UPDATE rule_target
     SET lease_until = term.ends_at, next_attempt_at = CASE WHEN next_attempt_at IS NOT NULL THEN term.ends_at END
     FROM (SELECT clock_timestamp() + $4 * interval '1 millisecond' AS ends_at) term
     WHERE id = ANY(ARRAY(
       SELECT id FROM rule_target WHERE id = ANY($1::bigint[]) AND lease_owner = $2 AND lease_epoch = $3
       ORDER BY id FOR UPDATE SKIP LOCKED))`,
    [targetIds, claim.workerId, claim.epoch, leaseMs],
  );
}
