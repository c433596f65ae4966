// Claims: lease → heartbeat → settle or release → expire. Claims and settles lock targets that are theirs alone
// (picked by SKIP LOCKED, or leased) and then the run; whoever moves other targets locks the run first, with
// claims and settles held off (`hold_claims`). Every lease carries the number of the claim that took it (`epoch`),
// and every settle names it: a worker whose lease was taken back changes nothing, and its late result becomes a
// ledger line.
//
// A claim serves one of two purposes. Targets to apply are QUEUED and become APPLYING. Targets to set back stay
// APPLIED until that is done: those with `next_attempt_at`, which a claim moves to the end of its lease.

import type { OnConflict } from '../domain/rule-run.js';
import type { Connection, Database } from './db.js';
import { bind, prepared } from './prepared.js';
import { isCalledOff } from './sqlstate.js';

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
  readonly correlationId: string;
  readonly channelId: string;
  readonly epoch: number;
  readonly targets: readonly ClaimedTarget[];
  /** Whether, when it was made, the run had more to claim: it will hardly end with these. */
  readonly leavesMore: boolean;
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
  readonly isRollingBack: boolean;
}

/** As the index on active runs has it; whatever else makes a run claimable is looked up in the row. */
const IS_ACTIVE = `(run.status IN ('QUEUED', 'APPLYING') OR run.rolling_back) AND NOT run.paused`;

/**
 * When the next batch of a run may go: not before some target is due, the run may start, its channel's circuit
 * lets one through, a second's worth of the channel's budget is there, or what a target takes, and a slot is free.
 */
const DUE_AT = `greatest(run.next_claim_at, run.start_at,
  CASE WHEN channel.circuit <> 'CLOSED' THEN channel.circuit_open_until END,
  CASE WHEN channel.bucket_restore_per_s > 0 THEN channel.bucket_at + interval '1 second' * (
    least(channel.bucket_capacity, greatest(1 + run.rolling_back::int, channel.bucket_restore_per_s)) - channel.bucket_tokens
  ) / channel.bucket_restore_per_s END,
  CASE WHEN channel.slots <> '{}' THEN (
    SELECT CASE WHEN count(*) >= (channel.config #>> '{policy,concurrency}')::int THEN min(slot.value::timestamptz) END
    FROM jsonb_each_text(channel.slots) AS slot WHERE slot.value::timestamptz > clock_timestamp()) END)`;

const FIND_RUN = prepared(
  'find_claimable_run',
  `SELECT run.id AS "runId", channel.id AS "channelId", channel.updated_at::text AS "channelVersion",
     (channel.circuit <> 'CLOSED' OR channel.consecutive_429 > 0 OR channel.bucket_at IS NOT NULL) AS "isGuarded",
     channel.consecutive_429 AS throttles, run.rolling_back AS "isRollingBack"
   FROM rule_run run JOIN channel ON channel.id = run.channel_id
   WHERE ${IS_ACTIVE} AND run.next_claim_at IS NOT NULL AND ${DUE_AT} <= clock_timestamp()
     AND channel.id <> ALL($1::uuid[])
   ORDER BY run.priority DESC, run.last_served_at NULLS FIRST, run.id LIMIT 1`,
);

/** The run to serve next: priority first, then the one served least recently; none of `passedOver`. */
export async function findClaimableRun(
  db: Database,
  passedOver: readonly string[] = [],
): Promise<ClaimableRun | null> {
  const rows = await db.queryPrepared<ClaimableRun>(FIND_RUN, [passedOver]);
  return rows[0] ?? null;
}

const NEXT_CLAIM = prepared(
  'next_claim',
  `SELECT (extract(epoch FROM min(${DUE_AT}) - clock_timestamp()) * 1000)::float8 AS ms
   FROM rule_run run JOIN channel ON channel.id = run.channel_id
   WHERE ${IS_ACTIVE} AND run.next_claim_at IS NOT NULL AND channel.id <> ALL($1::uuid[])`,
);

/** When the next batch of any run may go, but for those of the channels `passedOver`; null when nothing waits. */
export async function nextClaimDelayMs(
  db: Database,
  passedOver: readonly string[] = [],
): Promise<number | null> {
  const rows = await db.queryPrepared<{ ms: number | null }>(NEXT_CLAIM, [passedOver]);
  return rows[0]?.ms ?? null;
}

interface ClaimRequest {
  readonly runId: string;
  readonly workerId: string;
  readonly limit: number;
  readonly leaseMs: number;
}

/** Leases up to `limit` due targets of a run; null when there are none (any more). */
export async function claimTargets(db: Database, request: ClaimRequest): Promise<Claim | null> {
  const { runId, workerId, limit } = request;
  const run = await readClaimableRun(db, runId);
  if (!run) return null;
  const lease = run.status === 'APPLYING' ? leaseThenServe : serveThenLease;
  try {
    const leased = await lease(db, run, request);
    const rewound = leased.length < limit ? rewindClaim(db, request) : Promise.resolve();
    // A claim that is made is not lost for this: the next one, which finds nothing, does it again.
    await (leased.length > 0 ? rewound.catch(() => {}) : rewound);
    return leased.length > 0 ? toClaim(run, workerId, leased) : null;
  } catch (error) {
    // The run was paused, cancelled or ended meanwhile.
    if (isCalledOff(error)) return null;
    throw error;
  }
}

/** Targets first: several batches of a run are leased side by side, and take turns only at its counters. */
function leaseThenServe(db: Database, run: ClaimingRun, request: ClaimRequest): Promise<ClaimedTarget[]> {
  return db.transactionAtOnce(request.workerId, async (connection) => {
    const [leased] = await Promise.all([
      leaseQueuedTargets(connection, run, request),
      connection.query(bind(SERVE_APPLYING, [run.id])),
    ]);
    return leased;
  });
}

/** The run first: it is started before its first target is, and the targets to set back are few. */
function serveThenLease(db: Database, run: ClaimingRun, request: ClaimRequest): Promise<ClaimedTarget[]> {
  return db.transaction(request.workerId, async (connection) => {
    const { rowCount } = await connection.query(bind(SERVE_CLAIMABLE, [run.id]));
    if (rowCount === 0) return [];
    return run.rolling_back
      ? leaseAppliedTargets(connection, run, request)
      : leaseQueuedTargets(connection, run, request);
  });
}

interface ClaimingRun {
  readonly id: string;
  readonly status: string;
  readonly tenant_id: string;
  readonly correlation_id: string;
  readonly channel_id: string;
  readonly claim_cursor: string;
  readonly queued_count: number;
  readonly rolling_back: boolean;
  readonly rollback_on_conflict: OnConflict | null;
  /** The number of this claim. */
  readonly epoch: number;
}

function toClaim(run: ClaimingRun, workerId: string, targets: readonly ClaimedTarget[]): Claim {
  return {
    purpose: run.rolling_back ? 'roll_back' : 'apply',
    onConflict: run.rollback_on_conflict ?? 'SKIP',
    workerId,
    runId: run.id,
    tenantId: run.tenant_id,
    correlationId: run.correlation_id,
    channelId: run.channel_id,
    epoch: run.epoch,
    targets,
    leavesMore: run.queued_count > targets.length,
  };
}

const IS_CLAIMABLE = `${IS_ACTIVE} AND next_claim_at IS NOT NULL AND greatest(next_claim_at, start_at) <= clock_timestamp()`;

const READ_RUN = prepared(
  'read_claimable_run',
  `SELECT id, status, tenant_id, correlation_id, channel_id, claim_cursor, queued_count, rolling_back,
     rollback_on_conflict, nextval('lease_epoch')::int AS epoch
   FROM rule_run run WHERE id = $1 AND ${IS_CLAIMABLE}`,
);

async function readClaimableRun(db: Database, runId: string): Promise<ClaimingRun | null> {
  const rows = await db.queryPrepared<ClaimingRun>(READ_RUN, [runId]);
  return rows[0] ?? null;
}

/** Takes the run's lock, notes that it was served, and starts it if it was queued. */
const SERVE_CLAIMABLE = prepared(
  'serve_claimable_run',
  `UPDATE rule_run run
   SET status = CASE status WHEN 'QUEUED' THEN 'APPLYING' ELSE status END, last_served_at = clock_timestamp()
   WHERE id = $1 AND ${IS_CLAIMABLE}`,
);

/** The same for a run that is under way; one that was stopped meanwhile calls the claim off. */
const SERVE_APPLYING = prepared(
  'serve_applying_run',
  `WITH served AS (
     UPDATE rule_run SET last_served_at = clock_timestamp()
     WHERE id = $1 AND status = 'APPLYING' AND NOT paused RETURNING 1)
   SELECT call_off_unless(count(*) = 1) FROM served`,
);

const CLAIMED = `id, external_id AS "externalId", before_amount::float8 AS "beforeAmount",
  after_amount::float8 AS "afterAmount", currency`;

async function leaseQueuedTargets(
  connection: Connection,
  run: ClaimingRun,
  { workerId, limit, leaseMs }: ClaimRequest,
): Promise<ClaimedTarget[]> {
  // The choice in a subquery of its own, so that it is made once; the rest as the guard would stamp it, so that
  // it need not be called.
  const { rows } = await connection.query<ClaimedTarget>(
    `UPDATE rule_target
     SET status = 'APPLYING', status_from = status, next_attempt_at = NULL, attempts = attempts + 1,
       lease_owner = $3, lease_epoch = $6, lease_until = clock_timestamp() + $4 * interval '1 millisecond'
     WHERE id = ANY((SELECT lock_queued_targets($1, $2, $5))::bigint[])
     RETURNING ${CLAIMED}, attempts`,
    [run.id, run.claim_cursor, workerId, leaseMs, limit, run.epoch],
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
     SET rollback_attempts = rollback_attempts + 1, lease_owner = $2,
       lease_epoch = $4, lease_until = term.ends_at, next_attempt_at = term.ends_at
     FROM (SELECT clock_timestamp() + $3 * interval '1 millisecond' AS ends_at) term
     WHERE id = ANY(ARRAY(
       SELECT id FROM rule_target WHERE run_id = $1 AND next_attempt_at <= clock_timestamp() AND status = 'APPLIED'
       ORDER BY next_attempt_at LIMIT ${limit} FOR UPDATE SKIP LOCKED))
     RETURNING ${CLAIMED}, rollback_attempts AS attempts`,
    [run.id, workerId, leaseMs, run.epoch],
  );
  return rows;
}

// Fewer than asked for: nothing is due now. Sleep until something is. A row that somebody held locked was
// passed over, so when more are queued than wait, look again soon, from the beginning. Those that wait are found
// without the cursor, which need not walk through the whole run again for them.
async function rewindClaim(db: Database, { runId, workerId }: ClaimRequest): Promise<void> {
  await db.transactionAtOnce(workerId, (connection) =>
    Promise.all([
      // The lock before the figures are read: whoever wakes the run meanwhile would be overruled by older ones.
      // Without a flush of its own: what is forgotten in a crash is found out again.
      connection.query(
        `SELECT set_config('synchronous_commit', 'off', true) FROM rule_run WHERE id = $1 FOR NO KEY UPDATE`,
        [runId],
      ),
      connection.query(
        `UPDATE rule_run SET
           claim_cursor = CASE WHEN queued_count > waiting.count THEN 0 ELSE claim_cursor END,
           next_claim_at = CASE
             WHEN queued_count > waiting.count THEN clock_timestamp() + interval '1 second'
             ELSE waiting.first_at
           END
         FROM (
           SELECT count(*) AS count, min(next_attempt_at) AS first_at
           FROM rule_target WHERE run_id = $1 AND next_attempt_at IS NOT NULL
         ) waiting
         WHERE id = $1`,
        [runId],
      ),
    ]),
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
