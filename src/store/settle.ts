// Settling what a claim holds, or handing it back: fenced by the claim's epoch, targets first and then the run,
// with the run's own next step in the same transaction, and never beside a verb that moves targets of the run
// (`join_claims`), since a settle may hold targets that its worker has lost. A run that was cancelled meanwhile
// keeps every true result; a target that would be tried again is cancelled instead, since nobody will.

import { ruleTargetMachine, type Settlement } from '../domain/rule-target.js';
import type { Claim } from './claim.js';
import { concludeLockedRun, concludeRun, lockRun, type LockedRun } from './conclude.js';
import type { Connection, Database } from './db.js';
import { bind, prepared } from './prepared.js';
import { recordRollBackTrouble, sortResults, type SettledTarget } from './settle-lines.js';
import { isCalledOff } from './sqlstate.js';

export type { SettledTarget };

export interface Settled {
  /** Results of targets that the claim had lost before. */
  readonly late: readonly SettledTarget[];
  /** How long the run took, when this brought it to its end. */
  readonly runMs: number | null;
}

export async function settleIfClaimed(
  db: Database,
  claim: Claim,
  results: readonly SettledTarget[],
): Promise<Settled> {
  const settled = results.toSorted((a, b) => Number(a.targetId) - Number(b.targetId));
  if (claim.leavesMore && (await settleOnTheWay(db, claim, settled))) return { late: [], runMs: null };
  const settle = claim.purpose === 'apply' ? settleApplying : settleRollingBack;
  return db.transaction(claim.workerId, (connection) => settle(connection, claim, settled));
}

// Settles lock targets in the order of their ids, and wait for each other in a queue and not in a ring: two may hold
// the same ones, for a late one has locked by the time it sees that they are not its own. So they are found along
// the index, whatever the statistics say, and joined in the order in which results are given, which is sorted. A
// nested loop would try every pair, for the one target that the planner expects: it knows of no leases.
const JOIN_CLAIMS = prepared(
  'join_claims',
  `SELECT join_claims($1), ${['seqscan', 'bitmapscan', 'nestloop', 'mergejoin']
    .map((way) => `set_config('enable_${way}', 'off', true)`)
    .join(', ')}`,
);

const EXPECT_MORE = prepared(
  'expect_more_of_run',
  `SELECT call_off_unless(EXISTS (
     SELECT 1 FROM rule_run WHERE id = $1 AND status = 'APPLYING' AND queued_count + applying_count > 0))`,
);

/**
 * What mostly happens, in one turn: all leases are held and the run goes on. False, with nothing written, where it
 * is otherwise: somebody must look closer then.
 */
async function settleOnTheWay(
  db: Database,
  claim: Claim,
  settled: readonly SettledTarget[],
): Promise<boolean> {
  try {
    await db.transactionAtOnce(claim.workerId, (connection) =>
      Promise.all([
        connection.query(bind(JOIN_CLAIMS, [claim.runId])),
        writeApplied(connection, claim, settled, true),
        connection.query(bind(EXPECT_MORE, [claim.runId])),
      ]),
    );
    return true;
  } catch (error) {
    if (isCalledOff(error)) return false;
    throw error;
  }
}

/** Writes results, then locks the run, whose counters they have changed. */
async function writeThenLock<Written>(
  connection: Connection,
  claim: Claim,
  write: () => Promise<Written>,
): Promise<[Written, LockedRun]> {
  const joined = connection.query(bind(JOIN_CLAIMS, [claim.runId]));
  const [written, run] = await Promise.all([write(), lockRun(connection, claim.runId), joined]);
  return [written, run];
}

// Targets first, and the run's lock with their ledger lines: so the run is held no longer than its counters
// need, and batches of one run are settled side by side. In one statement, since a claim that waits for the run
// may hold any of these targets: it locks what was queued when it looked, before it sees that they are not.
async function settleApplying(
  connection: Connection,
  claim: Claim,
  settled: readonly SettledTarget[],
): Promise<Settled> {
  const [count, run] = await writeThenLock(connection, claim, () =>
    writeApplied(connection, claim, settled, false),
  );
  const { held, late } = await sortResults(connection, claim, settled, count);
  if (run.status !== 'CANCELLED')
    return { late, runMs: await concludeLockedRun(connection, run, lastError(held)) };
  await followCancelledRun(connection, run, held);
  return { late, runMs: await concludeRun(connection, claim.runId, null) };
}

/** Answers how many the claim still held; fewer than all call the transaction off if it `mustHoldAll`. */
function writeApplied(
  connection: Connection,
  claim: Claim,
  settled: readonly SettledTarget[],
  mustHoldAll: boolean,
): Promise<number> {
  const write = settled.every(({ settlement }) => settlement.event === 'succeed')
    ? writeSuccesses
    : writeResults;
  return write(connection, claim, settled, (update) =>
    mustHoldAll
      ? `WITH written AS (${update} RETURNING 1)
         SELECT call_off_unless(count(*) = cardinality($1::bigint[])) FROM written`
      : update,
  );
}

/** Stamped as the guard would, so that it need not be called. */
async function writeSuccesses(
  connection: Connection,
  claim: Claim,
  settled: readonly SettledTarget[],
  checked: (update: string) => string,
): Promise<number> {
  const { rowCount } = await connection.query(
    checked(`UPDATE rule_target
     SET status = 'APPLIED', status_from = status, applied_at = clock_timestamp(), error_code = NULL,
       error_message = NULL, lease_owner = NULL, lease_until = NULL, lease_epoch = NULL
     WHERE id = ANY($1::bigint[]) AND lease_owner = $2 AND lease_epoch = $3`),
    [idsOf(settled), claim.workerId, claim.epoch],
  );
  return rowCount!;
}

async function writeResults(
  connection: Connection,
  claim: Claim,
  settled: readonly SettledTarget[],
  checked: (update: string) => string,
): Promise<number> {
  const { rowCount } = await connection.query(
    checked(`UPDATE rule_target AS target
     SET status = result.status, error_code = result.code, error_message = result.message,
       next_attempt_at = clock_timestamp() + result.delay_ms * interval '1 millisecond'
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::float8[])
       AS result (id, code, message, status, delay_ms)
     WHERE target.id = ANY($1::bigint[]) AND target.id = result.id
       AND target.lease_owner = $6 AND target.lease_epoch = $7`),
    [
      ...toColumns(settled),
      settled.map(({ settlement }) => ruleTargetMachine.events[settlement.event].to),
      settled.map(delayOf),
      claim.workerId,
      claim.epoch,
    ],
  );
  return rowCount!;
}

// What could not be set back stays APPLIED, with the reason; without a time it is not tried again.
async function settleRollingBack(
  connection: Connection,
  claim: Claim,
  settled: readonly SettledTarget[],
): Promise<Settled> {
  const [count] = await writeThenLock(connection, claim, () => writeRollBacks(connection, claim, settled));
  const { held, late } = await sortResults(connection, claim, settled, count);
  await recordRollBackTrouble(connection, claim, held);
  if (held.some(({ settlement }) => settlement.event === 'retry')) await wakeRun(connection, claim.runId);
  return { late, runMs: await concludeRun(connection, claim.runId, lastError(held)) };
}

async function writeRollBacks(
  connection: Connection,
  claim: Claim,
  settled: readonly SettledTarget[],
): Promise<number> {
  const { rowCount } = await connection.query(
    `UPDATE rule_target AS target
     SET status = CASE WHEN result.is_done THEN 'ROLLED_BACK' ELSE target.status END,
       error_code = result.code, error_message = result.message,
       lease_owner = NULL, lease_until = NULL, lease_epoch = NULL,
       next_attempt_at = clock_timestamp() + result.delay_ms * interval '1 millisecond'
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::boolean[], $5::float8[])
       AS result (id, code, message, is_done, delay_ms)
     WHERE target.id = ANY($1::bigint[]) AND target.id = result.id
       AND target.lease_owner = $6 AND target.lease_epoch = $7`,
    [
      ...toColumns(settled),
      settled.map(({ settlement }) => settlement.event === 'succeed'),
      settled.map(delayOf),
      claim.workerId,
      claim.epoch,
    ],
  );
  return rowCount!;
}

function idsOf(settled: readonly SettledTarget[]): string[] {
  return settled.map(({ targetId }) => targetId);
}

function toColumns(settled: readonly SettledTarget[]): unknown[][] {
  return [
    idsOf(settled),
    settled.map(({ settlement }) => (settlement.event === 'succeed' ? null : settlement.code)),
    settled.map(({ settlement }) => (settlement.event === 'succeed' ? null : settlement.message)),
  ];
}

function delayOf({ settlement }: SettledTarget): number | null {
  return settlement.event === 'retry' ? settlement.delayMs : null;
}

function lastError(settled: readonly SettledTarget[]): string | null {
  const failed = settled.findLast(({ settlement }) => settlement.event === 'exhaust')?.settlement;
  return failed?.event === 'exhaust' ? failed.message : null;
}

/** The run looks when the first of its targets is due. */
async function wakeRun(connection: Connection, runId: string): Promise<void> {
  await connection.query(
    `UPDATE rule_run SET next_claim_at = least(next_claim_at, (
       SELECT min(next_attempt_at) FROM rule_target WHERE run_id = $1 AND next_attempt_at IS NOT NULL))
     WHERE id = $1`,
    [runId],
  );
}

/** The run was cancelled while its targets were in flight: that decides what becomes of them. */
async function followCancelledRun(
  connection: Connection,
  run: LockedRun,
  settled: readonly SettledTarget[],
): Promise<void> {
  const idsWith = (event: Settlement['event']) =>
    idsOf(settled.filter(({ settlement }) => settlement.event === event));
  await cancelReturned(connection, run, idsWith('retry'));
  if (run.rolling_back && run.rollback_all) await markForRollBack(connection, run, idsWith('succeed'));
}

/** Targets that came back to the queue of a run that is cancelled follow it. */
export async function cancelReturned(
  connection: Connection,
  run: LockedRun,
  targetIds: readonly string[],
): Promise<void> {
  if (run.status !== 'CANCELLED' || targetIds.length === 0) return;
  await connection.query(
    `UPDATE rule_target SET status = 'CANCELLED' WHERE id = ANY($1::bigint[]) AND status = 'QUEUED'`,
    [targetIds],
  );
}

async function markForRollBack(
  connection: Connection,
  run: LockedRun,
  targetIds: readonly string[],
): Promise<void> {
  if (targetIds.length === 0) return;
  await connection.query(
    'UPDATE rule_target SET next_attempt_at = clock_timestamp() WHERE id = ANY($1::bigint[])',
    [targetIds],
  );
  await wakeRun(connection, run.id);
}

/** Hands leases back, as on shutdown: what was not tried costs no attempt and may be claimed at once. */
export async function releaseTargets(
  db: Database,
  claim: Claim,
  targetIds: readonly string[],
): Promise<void> {
  if (targetIds.length === 0) return;
  const change =
    claim.purpose === 'apply'
      ? `status = 'QUEUED', attempts = attempts - 1`
      : `rollback_attempts = rollback_attempts - 1, next_attempt_at = clock_timestamp(),
         lease_owner = NULL, lease_until = NULL, lease_epoch = NULL`;
  await db.transaction(claim.workerId, async (connection) => {
    const [{ rows }, run] = await writeThenLock(connection, claim, () =>
      connection.query<{ id: string }>(
        `UPDATE rule_target SET ${change}
         WHERE id = ANY($1::bigint[]) AND lease_owner = $2 AND lease_epoch = $3 RETURNING id::text AS id`,
        [targetIds, claim.workerId, claim.epoch],
      ),
    );
    if (claim.purpose === 'roll_back') await wakeRun(connection, claim.runId);
    await cancelReturned(
      connection,
      run,
      rows.map(({ id }) => id),
    );
    await concludeRun(connection, claim.runId, null);
  });
}
