// The gate's state in the channel's row: bucket, circuit and slots, moved by single statements or under the
// row's lock, so that all replicas share one rate, one breaker and one limit of batches. The row is locked
// alone, never together with a run's.

import type { Admission, CircuitState, GateState, Streaks } from '../domain/channel-gate.js';
import type { Connection, Database } from './db.js';
import { appendRunLines } from './ledger.js';

export interface Bucket {
  readonly capacity: number;
  readonly restorePerSecond: number;
}

export interface GateRequest {
  readonly channelId: string;
  /** Names the batch among those under way: the worker's id, `#`, and what tells its batches apart. */
  readonly slot: string;
  readonly leaseMs: number;
  /** The bucket that the channel's policy asks for; null: whatever the channel reports. */
  readonly bucket: Bucket | null;
  readonly limitsBatches: boolean;
}

/** Passes the gate if `admit` lets a batch through; answers what it was let through with. */
export async function enterChannel(
  db: Database,
  request: GateRequest,
  admit: (state: GateState) => Admission | null,
): Promise<Admission | null> {
  const admission = await db.transaction('system', async (connection) => {
    const state = await lockGate(connection, request);
    const admitted = admit(state);
    if (admitted) await writePassage(connection, request, state, admitted);
    return admitted;
  });
  if (admission?.isProbe) await recordCircuit(db, request.channelId, 'HALF_OPEN', 'one batch is let through');
  return admission;
}

async function lockGate(connection: Connection, request: GateRequest): Promise<GateState> {
  const { capacity = null, restorePerSecond = null } = request.bucket ?? {};
  const { rows } = await connection.query<GateState & Record<string, unknown>>(
    `SELECT circuit, coalesce(circuit_open_until <= clock_timestamp(), true) AS "waitIsOver",
       least(coalesce($2, bucket_capacity), coalesce(
         bucket_tokens + coalesce($3, bucket_restore_per_s) * extract(epoch FROM clock_timestamp() - bucket_at)::float8,
         $2)) AS tokens,
       coalesce($2, bucket_capacity) AS capacity,
       (SELECT count(*)::int FROM jsonb_each_text(slots) AS slot
        WHERE slot.value::timestamptz > clock_timestamp()) AS busy
     FROM channel WHERE id = $1 FOR NO KEY UPDATE`,
    [request.channelId, capacity, restorePerSecond],
  );
  return rows[0]!;
}

async function writePassage(
  connection: Connection,
  { channelId, slot, leaseMs, bucket, limitsBatches }: GateRequest,
  { tokens }: GateState,
  { cost, isProbe }: Admission,
): Promise<void> {
  const { capacity = null, restorePerSecond = null } = bucket ?? {};
  await connection.query(
    `UPDATE channel SET
       bucket_capacity = coalesce($2, bucket_capacity), bucket_restore_per_s = coalesce($3, bucket_restore_per_s),
       bucket_tokens = $4, bucket_at = CASE WHEN $4::float8 IS NULL THEN bucket_at ELSE clock_timestamp() END,
       circuit = CASE WHEN $5 THEN 'HALF_OPEN'::circuit_state ELSE circuit END,
       circuit_open_until = CASE WHEN $5 THEN term.ends_at ELSE circuit_open_until END,
       slots = CASE WHEN $6 THEN live.slots || jsonb_build_object($7::text, term.ends_at) ELSE channel.slots END
     FROM (SELECT clock_timestamp() + $8 * interval '1 millisecond' AS ends_at) term,
       (SELECT coalesce(jsonb_object_agg(slot.key, slot.value), '{}') AS slots
        FROM channel, jsonb_each(channel.slots) AS slot
        WHERE channel.id = $1 AND (slot.value #>> '{}')::timestamptz > clock_timestamp()) live
     WHERE id = $1`,
    [
      channelId,
      capacity,
      restorePerSecond,
      tokens === null ? null : tokens - cost,
      isProbe,
      limitsBatches,
      slot,
      leaseMs,
    ],
  );
}

export interface Leaving {
  readonly channelId: string;
  readonly slot: string;
  /** Tokens that were taken and not needed. */
  readonly refund: number;
  /** The budget as the channel has reported it. */
  readonly reported: (Bucket & { readonly available: number }) | null;
  /** A probe that got no answer leaves it to another one. */
  readonly isUnansweredProbe: boolean;
}

/** The batch is over, or was not even begun. */
export async function leaveChannel(db: Database, leaving: Leaving): Promise<void> {
  const { channelId, slot, refund, reported, isUnansweredProbe } = leaving;
  await db.query(
    `UPDATE channel SET slots = slots - $2::text,
       circuit = CASE WHEN $7 AND circuit = 'HALF_OPEN' THEN 'OPEN'::circuit_state ELSE circuit END,
       circuit_open_until = CASE WHEN $7 AND circuit = 'HALF_OPEN' THEN clock_timestamp() ELSE circuit_open_until END,
       bucket_tokens = coalesce($4, bucket_tokens + $3),
       bucket_capacity = coalesce($5, bucket_capacity), bucket_restore_per_s = coalesce($6, bucket_restore_per_s),
       bucket_at = CASE WHEN $4::float8 IS NULL THEN bucket_at ELSE clock_timestamp() END
     WHERE id = $1`,
    [
      channelId,
      slot,
      refund,
      reported?.available ?? null,
      reported?.capacity ?? null,
      reported?.restorePerSecond ?? null,
      isUnansweredProbe,
    ],
  );
}

/** A batch that is still under way keeps its slot. */
export async function keepSlot(
  db: Database,
  channelId: string,
  slot: string,
  leaseMs: number,
): Promise<void> {
  await db.query(
    `UPDATE channel SET slots = slots || jsonb_build_object($2::text, clock_timestamp() + $3 * interval '1 millisecond')
     WHERE id = $1 AND slots ? $2`,
    [channelId, slot, leaseMs],
  );
}

/** Frees the slots of workers that are gone. Locked in order: two processes may find the same workers gone. */
export async function freeSlots(db: Database, workerIds: readonly string[]): Promise<void> {
  const dead = `SELECT key FROM jsonb_object_keys(channel.slots) AS key WHERE split_part(key, '#', 1) = ANY($1)`;
  await db.transaction('system', async (connection) => {
    const { rows } = await connection.query<{ id: string }>(
      `SELECT id FROM channel WHERE EXISTS (${dead}) ORDER BY id FOR NO KEY UPDATE`,
      [workerIds],
    );
    if (rows.length === 0) return;
    await connection.query(`UPDATE channel SET slots = slots - ARRAY(${dead}) WHERE id = ANY($2)`, [
      workerIds,
      rows.map(({ id }) => id),
    ]);
  });
}

export interface CircuitRule {
  readonly toleratedThrottles: number;
  readonly openMs: number;
}

/**
 * Takes note of a batch's answers; answers the circuit as it is then. Answers of batches that were let through
 * before it opened do not close it: only those of the probe do. Every throttled answer counts for the alerts,
 * whatever it does to the circuit.
 */
export async function noteAnswers(
  db: Database,
  channelId: string,
  { leading, trailing, longest, throttled, sawOther }: Streaks,
  { toleratedThrottles, openMs }: CircuitRule,
): Promise<CircuitState> {
  // A transaction is begun again where it lost a race: what a channel has answered must not be lost.
  const [moved] = await db.transaction('system', async (connection) => {
    // A statement of its own: the next one sees the row that was locked. One that locks the newest version and then
    // moves the one it saw waits at that for those who wait for it, while a run of the channel is being made.
    const locked = connection.query('SELECT 1 FROM channel WHERE id = $1 FOR NO KEY UPDATE', [channelId]);
    const moving = connection.query<{ before: CircuitState; after: CircuitState }>(
      `WITH counted AS (
       INSERT INTO channel_throttle (tenant_id, channel_id, count, at)
       SELECT tenant_id, id, $8, clock_timestamp() FROM channel WHERE id = $1 AND $8 > 0
     )
     UPDATE channel SET
       consecutive_429 = next.throttles,
       circuit = CASE WHEN next.opens THEN 'OPEN'::circuit_state WHEN $3 THEN 'CLOSED' ELSE next.circuit END,
       circuit_open_until = CASE
         WHEN next.opens THEN clock_timestamp() + $6 * interval '1 millisecond'
         WHEN $3 THEN NULL
         ELSE channel.circuit_open_until
       END
     FROM (
       SELECT circuit, CASE WHEN $3 THEN $4 ELSE consecutive_429 + $4 END AS throttles,
         ($2 > 0 AND consecutive_429 + $2 > $5) OR $7 > $5 AS opens
       FROM channel WHERE id = $1
     ) next
     WHERE id = $1 AND NOT (next.circuit = 'OPEN' AND channel.circuit_open_until > clock_timestamp())
     RETURNING next.circuit AS before, channel.circuit AS after`,
      [channelId, leading, sawOther, trailing, toleratedThrottles, openMs, longest, throttled],
    );
    const [, { rows }] = await Promise.all([locked, moving]);
    return rows;
  });
  if (!moved) return 'OPEN';
  if (moved.before !== moved.after) {
    const isOpen = moved.after === 'OPEN';
    const message = isOpen
      ? `more than ${toleratedThrottles} throttled answers in a row: no calls for ${openMs} ms`
      : 'the channel answers again';
    await recordCircuit(db, channelId, moved.after, message);
  }
  return moved.after;
}

const CIRCUIT_EVENTS: Readonly<Record<CircuitState, string>> = {
  CLOSED: 'channel.close_circuit',
  OPEN: 'channel.open_circuit',
  HALF_OPEN: 'channel.half_open_circuit',
};

/** Of the runs that wait for a channel, so many are told what becomes of its circuit. */
const MAX_TOLD = 100;

async function recordCircuit(
  db: Database,
  channelId: string,
  circuit: CircuitState,
  message: string,
): Promise<void> {
  const level = circuit === 'CLOSED' ? 'INFO' : 'WARN';
  const line = { type: CIRCUIT_EVENTS[circuit], level, message, payload: { channelId, circuit } } as const;
  const runs = await db.query<{ id: string }>(
    `SELECT id FROM rule_run
     WHERE channel_id = $1 AND (status IN ('QUEUED', 'APPLYING') OR rolling_back) ORDER BY id LIMIT ${MAX_TOLD}`,
    [channelId],
  );
  for (const { id } of runs) {
    await db.transaction('system', (connection) => appendRunLines(connection, 'RULE', id, [line]));
  }
}
