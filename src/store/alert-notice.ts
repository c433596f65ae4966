// What sinks are still to be told. A sink is told one thing at a time, in order, and what is critical beside the
// rest; a sink that does not take it holds back nobody but itself. Whoever claims a notice has a minute for it, and settles under the number of
// the try: a deliverer that was too slow changes nothing.

import {
  MIN_NOTICE_TRIES,
  MIN_REFUSED_NOTICE_TRIES,
  NOTICE_LIFETIME_SECONDS,
  noticeDelaySeconds,
  REFUSED_NOTICE_LIFETIME_SECONDS,
  type AlertEvent,
  type AlertPolicyName,
  type AlertSeverity,
} from '../domain/alert.js';
import type { Settings } from '../domain/settings.js';
import { redactText } from '../redaction.js';
import type { Connection, Database } from './db.js';
import { openSettings, type SealedRow } from './sealed-settings.js';
import type { SecretBox } from './secret-box.js';

export interface ClaimedNotice {
  readonly id: string;
  readonly attempts: number;
  readonly event: AlertEvent;
  readonly tenantId: string;
  /** Of several addresses, those that have it. */
  readonly takenBy: readonly string[];
  readonly sink: {
    readonly id: string;
    readonly kind: string;
    readonly name: string;
    readonly row: SealedRow;
  };
  /** Null for a test. */
  readonly alert: NoticedAlert | null;
}

export interface NoticedAlert {
  readonly id: string;
  readonly policy: AlertPolicyName;
  readonly severity: AlertSeverity;
  readonly message: string;
  readonly value: number;
  readonly threshold: number;
  readonly firedAt: Date;
  readonly resolvedAt: Date | null;
}

const LEASE = '1 minute';

/** Nobody sets a next try so late: what has one was written by a clock that ran ahead, and is due. */
const isDue = (column: string): string =>
  `(${column} <= clock_timestamp() OR ${column} > clock_timestamp() + interval '1 hour')`;

/** The next notices of every sink that are due: one that is critical, and one that is not. */
export async function claimNotices(db: Database, limit: number): Promise<ClaimedNotice[]> {
  const rows = await db.query<ClaimedRow>(
    `WITH claimed AS (
       UPDATE alert_notice
       SET attempts = attempts + 1, next_attempt_at = clock_timestamp() + interval '${LEASE}'
       WHERE ${isDue('next_attempt_at')} AND id = ANY(ARRAY(
         SELECT head.id FROM alert_sink sink CROSS JOIN (VALUES (true), (false)) lane (urgent) CROSS JOIN LATERAL (
           SELECT id, next_attempt_at FROM alert_notice
           WHERE sink_id = sink.id AND urgent = lane.urgent AND next_attempt_at IS NOT NULL ORDER BY id LIMIT 1
         ) head
         WHERE sink.enabled AND ${isDue('head.next_attempt_at')} ORDER BY lane.urgent DESC LIMIT ${limit}))
       RETURNING *
     )
     SELECT claimed.id::text, claimed.attempts, claimed.event, claimed.tenant_id AS "tenantId",
       claimed.taken_by AS "takenBy", sink.id AS "sinkId", sink.kind, sink.name, sink.config, sink.secrets, sink.secrets_key_id AS "secretsKeyId",
       alert.id AS "alertId", alert.policy, alert.severity, alert.message, alert.value, alert.threshold,
       alert.fired_at AS "firedAt", alert.resolved_at AS "resolvedAt"
     FROM claimed JOIN alert_sink sink ON sink.id = claimed.sink_id LEFT JOIN alert ON alert.id = claimed.alert_id`,
  );
  return rows.map(toClaimed);
}

type ClaimedRow = Pick<ClaimedNotice, 'id' | 'attempts' | 'event' | 'tenantId' | 'takenBy'> &
  Omit<SealedRow, 'id'> &
  Omit<NoticedAlert, 'id'> & {
    readonly sinkId: string;
    readonly kind: string;
    readonly name: string;
    readonly alertId: string | null;
  };

function toClaimed(row: ClaimedRow): ClaimedNotice {
  const {
    id,
    attempts,
    event,
    tenantId,
    takenBy,
    sinkId,
    kind,
    name,
    config,
    secrets,
    secretsKeyId,
    alertId,
    ...alert
  } = row;
  const sink = { id: sinkId, kind, name, row: { id: sinkId, config, secrets, secretsKeyId } };
  const told = alertId === null ? null : { id: alertId, ...alert };
  return { id, attempts, event, tenantId, takenBy, sink, alert: told };
}

/** The sink's settings, with their credentials. */
export function openSinkSettings(box: SecretBox, { sink }: ClaimedNotice): Settings {
  return openSettings(box, 'alert_sink', sink.row);
}

/** `flaw` is what is to be known although it was taken. */
export async function settleDelivered(
  db: Database,
  { id, attempts }: ClaimedNotice,
  flaw: string | null,
): Promise<void> {
  await db.query(
    `UPDATE alert_notice SET delivered_at = clock_timestamp(), next_attempt_at = NULL, error = $3
     WHERE id = $1 AND attempts = $2`,
    [id, attempts, flaw === null ? null : redactText(flaw)],
  );
}

/** Cut short by a stop: it was not tried. */
export async function releaseNotice(db: Database, { id, attempts }: ClaimedNotice): Promise<void> {
  await db.query(
    `UPDATE alert_notice SET attempts = attempts - 1, next_attempt_at = clock_timestamp()
     WHERE id = $1 AND attempts = $2 AND next_attempt_at IS NOT NULL`,
    [id, attempts],
  );
}

export interface NoticeFailure {
  readonly reason: string;
  /** The sink said that it will never take it. */
  readonly isFinal: boolean;
  /** The patience that it asked for. */
  readonly retryAfterMs: number | null;
  /** The addresses that have taken it now. */
  readonly takenBy: readonly string[];
}

/** It is tried again later, unless that is of no use or has gone on for days; answers whether it was given up. */
export async function settleUndelivered(
  db: Database,
  { id, attempts }: ClaimedNotice,
  { reason, isFinal, retryAfterMs, takenBy }: NoticeFailure,
): Promise<boolean> {
  const rows = await db.query<{ gaveUp: boolean }>(
    `UPDATE alert_notice SET error = $3, taken_by = taken_by || $5::text[], next_attempt_at = CASE
       WHEN attempts < $6 OR created_at > clock_timestamp() - $7 * interval '1 second'
       THEN clock_timestamp() + $4 * interval '1 second'
     END
     WHERE id = $1 AND attempts = $2 RETURNING next_attempt_at IS NULL AS "gaveUp"`,
    [
      id,
      attempts,
      // It is kept and shown: whoever refuses may repeat the credentials that he was sent.
      redactText(reason),
      noticeDelaySeconds(attempts, retryAfterMs),
      takenBy,
      isFinal ? MIN_REFUSED_NOTICE_TRIES : MIN_NOTICE_TRIES,
      isFinal ? REFUSED_NOTICE_LIFETIME_SECONDS : NOTICE_LIFETIME_SECONDS,
    ],
  );
  return rows[0]?.gaveUp ?? false;
}

/** What waits for a sink that was saved again is tried soon; what somebody has in hand stays his. */
export async function hurryNotices(connection: Connection, sinkId: string): Promise<void> {
  await connection.query(
    `UPDATE alert_notice SET next_attempt_at = clock_timestamp() + interval '${LEASE}'
     WHERE sink_id = $1 AND next_attempt_at > clock_timestamp() + interval '${LEASE}'`,
    [sinkId],
  );
}
