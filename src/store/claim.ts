// Claims: lease → heartbeat → settle or release → expire. One lock order everywhere: the run's row, then its
// targets. Every lease carries the number of the claim that took it (`epoch`), and every settle names it:
// a worker whose lease was taken back changes nothing, and its late result becomes a ledger line.

import type { RuleRunStatus } from '../domain/rule-run.js';
import { rollUp } from '../domain/rule-run.js';
import { ruleTargetMachine, type Settlement } from '../domain/rule-target.js';
import type { Connection, Database } from './db.js';
import { appendRunLines } from './ledger.js';

export interface ClaimedTarget {
  readonly id: string;
  readonly externalId: string;
  readonly afterAmount: number;
  readonly currency: string;
  readonly attempts: number;
}

export interface Claim {
  readonly workerId: string;
  readonly runId: string;
  readonly tenantId: string;
  readonly channelId: string;
  readonly epoch: number;
  readonly targets: readonly ClaimedTarget[];
}

export interface SettledTarget {
  readonly targetId: string;
  readonly settlement: Settlement;
}

export interface ClaimableRun {
  readonly runId: string;
  readonly channelId: string;
  /** Changes with the channel's configuration. */
  readonly channelVersion: string;
}

/** The run to serve next: priority first, then the one served least recently. */
export async function findClaimableRun(db: Database): Promise<ClaimableRun | null> {
  const rows = await db.query<ClaimableRun>(
    `SELECT run.id AS "runId", channel.id AS "channelId", channel.updated_at::text AS "channelVersion"
     FROM rule_run run JOIN channel ON channel.id = run.channel_id
     WHERE run.status IN ('QUEUED', 'APPLYING') AND NOT run.paused AND run.next_claim_at <= clock_timestamp()
     ORDER BY run.priority DESC, run.last_served_at NULLS FIRST, run.id LIMIT 1`,
  );
  return rows[0] ?? null;
}

/** When the next target of any run falls due; null when nothing waits. */
export async function nextClaimDelayMs(db: Database): Promise<number | null> {
  const rows = await db.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM min(next_claim_at) - clock_timestamp()) * 1000)::float8 AS ms FROM rule_run
     WHERE status IN ('QUEUED', 'APPLYING') AND NOT paused`,
  );
  return rows[0]?.ms ?? null;
}

/** Leases up to `limit` due targets of a run; null when there are none (any more). */
export function claimTargets(
  db: Database,
  request: {
    readonly runId: string;
    readonly workerId: string;
    readonly limit: number;
    readonly leaseMs: number;
  },
): Promise<Claim | null> {
  const { runId, workerId, limit, leaseMs } = request;
  return db.transaction(workerId, async (connection) => {
    const run = await openClaim(connection, runId);
    if (!run) return null;
    const targets = await leaseTargets(connection, run, { workerId, limit, leaseMs });
    if (targets.length < limit) await rewindClaim(connection, runId);
    else await moveCursor(connection, runId, targets);
    if (targets.length === 0) return null;
    const { tenant_id: tenantId, channel_id: channelId, claim_epoch: epoch } = run;
    return { workerId, runId, tenantId, channelId, epoch, targets };
  });
}

interface ClaimingRun {
  readonly id: string;
  readonly tenant_id: string;
  readonly channel_id: string;
  readonly claim_epoch: number;
  readonly claim_cursor: string;
}

// Takes the run's lock, and starts a queued run. What was true when the run was found may not be any more.
async function openClaim(connection: Connection, runId: string): Promise<ClaimingRun | null> {
  const { rows } = await connection.query<ClaimingRun>(
    `UPDATE rule_run
     SET status = 'APPLYING', claim_epoch = claim_epoch + 1, last_served_at = clock_timestamp()
     WHERE id = $1 AND status IN ('QUEUED', 'APPLYING') AND NOT paused AND next_claim_at <= clock_timestamp()
     RETURNING id, tenant_id, channel_id, claim_epoch, claim_cursor`,
    [runId],
  );
  return rows[0] ?? null;
}

async function leaseTargets(
  connection: Connection,
  run: ClaimingRun,
  { workerId, limit, leaseMs }: { workerId: string; limit: number; leaseMs: number },
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
           SELECT id FROM rule_target WHERE run_id = $1 AND next_attempt_at <= clock_timestamp()
           ORDER BY next_attempt_at LIMIT ${limit} FOR UPDATE SKIP LOCKED) waiting
         UNION ALL
         SELECT id FROM (
           SELECT id FROM rule_target
           WHERE run_id = $1 AND id > $2 AND status = 'QUEUED' AND next_attempt_at IS NULL
           ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED) fresh
       ) due LIMIT ${limit}
     ))
     RETURNING id::text AS id, external_id AS "externalId", after_amount::float8 AS "afterAmount", currency, attempts`,
    [run.id, run.claim_cursor, workerId, run.claim_epoch, leaseMs],
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
    `UPDATE rule_target SET lease_until = clock_timestamp() + $4 * interval '1 millisecond'
     WHERE id = ANY(ARRAY(
       SELECT id FROM rule_target WHERE id = ANY($1::bigint[]) AND lease_owner = $2 AND lease_epoch = $3
       ORDER BY id FOR UPDATE SKIP LOCKED))`,
    [targetIds, claim.workerId, claim.epoch, leaseMs],
  );
}

export interface Settled {
  /** How many of the targets this claim still held. */
  readonly held: number;
  /** How long the run took, when this brought it to its end. */
  readonly runMs: number | null;
}

/** Settles what this claim still holds. The run rolls up in the same transaction. */
export function settleIfClaimed(
  db: Database,
  claim: Claim,
  settled: readonly SettledTarget[],
): Promise<Settled> {
  return db.transaction(claim.workerId, async (connection) => {
    await lockRun(connection, claim.runId);
    const { rows } = await connection.query<{ id: string }>(
      `UPDATE rule_target AS target
       SET status = result.status, error_code = result.code, error_message = result.message,
         next_attempt_at = clock_timestamp() + result.delay_ms * interval '1 millisecond'
       FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::float8[])
         AS result (id, status, code, message, delay_ms)
       WHERE target.id = result.id AND target.lease_owner = $6 AND target.lease_epoch = $7
       RETURNING target.id::text AS id`,
      [...toColumns(settled), claim.workerId, claim.epoch],
    );
    const held = new Set(rows.map(({ id }) => id));
    await recordLateResults(
      connection,
      claim,
      settled.filter(({ targetId }) => !held.has(targetId)),
    );
    return { held: held.size, runMs: await rollUpRun(connection, claim.runId) };
  });
}

function toColumns(settled: readonly SettledTarget[]): unknown[][] {
  return [
    settled.map(({ targetId }) => targetId),
    settled.map(({ settlement }) => ruleTargetMachine.events[settlement.event].to),
    settled.map(({ settlement }) => (settlement.event === 'succeed' ? null : settlement.code)),
    settled.map(({ settlement }) => (settlement.event === 'succeed' ? null : settlement.message)),
    settled.map(({ settlement }) => (settlement.event === 'retry' ? settlement.delayMs : null)),
  ];
}

async function recordLateResults(
  connection: Connection,
  claim: Claim,
  late: readonly SettledTarget[],
): Promise<void> {
  await appendRunLines(
    connection,
    'RULE',
    claim.runId,
    late.map(({ targetId, settlement }) => ({
      type: 'rule_target.late_result',
      level: 'WARN',
      message: `${claim.workerId} lost its claim before it could report ${settlement.event}`,
      payload: { targetId, epoch: claim.epoch, result: settlement },
      targetId,
    })),
  );
}

/** Hands leases back, as on shutdown: what was not tried costs no attempt and may be claimed at once. */
export async function releaseTargets(
  db: Database,
  claim: Claim,
  targetIds: readonly string[],
): Promise<void> {
  if (targetIds.length === 0) return;
  await db.transaction(claim.workerId, async (connection) => {
    await lockRun(connection, claim.runId);
    await connection.query(
      `UPDATE rule_target SET status = 'QUEUED', attempts = attempts - 1
       WHERE id = ANY($1::bigint[]) AND lease_owner = $2 AND lease_epoch = $3`,
      [targetIds, claim.workerId, claim.epoch],
    );
  });
}

export async function lockRun(connection: Connection, runId: string): Promise<void> {
  await connection.query('SELECT 1 FROM rule_run WHERE id = $1 FOR NO KEY UPDATE', [runId]);
}

/**
 * Ends a run that has nothing left to do; answers how long it took then, else null. The counters are the
 * database's own: they already include what this transaction changed.
 */
export async function rollUpRun(connection: Connection, runId: string): Promise<number | null> {
  const { rows } = await connection.query<{
    status: RuleRunStatus;
    total: number;
    preview: number;
    queued: number;
    applying: number;
    applied: number;
    failed: number;
    rolledBack: number;
    cancelled: number;
  }>(
    `SELECT status, total_count AS total, preview_count AS preview, queued_count AS queued,
       applying_count AS applying, applied_count AS applied, failed_count AS failed,
       rolled_back_count AS "rolledBack", cancelled_count AS cancelled
     FROM rule_run WHERE id = $1`,
    [runId],
  );
  const run = rows[0];
  const event = run?.status === 'APPLYING' ? rollUp(run) : null;
  if (!event) return null;
  const ended = await connection.query<{ ms: number }>(
    `UPDATE rule_run SET status = $2 WHERE id = $1
     RETURNING (extract(epoch FROM finished_at - started_at) * 1000)::float8 AS ms`,
    [runId, TO[event]],
  );
  return ended.rows[0]!.ms;
}

const TO = { complete: 'APPLIED', complete_partially: 'PARTIAL', fail: 'FAILED' } as const;
