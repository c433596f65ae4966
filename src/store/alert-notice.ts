// What sinks are still to be told. A sink is told one thing at a time, in order, and what is critical beside the
// rest; a sink that does not take it holds back nobody but itself. Whoever claims a notice has a minute for it, and settles under the number of
// the try: a deliverer that was too slow changes nothing.

import {
  MAX_NOTICE_REFUSALS,
  MIN_NOTICE_TRIES,
  NOTICE_LIFETIME_SECONDS,
  noticeDelaySeconds,
  type AlertEvent,
  type AlertPolicyName,
  type AlertSeverity,
} from '../domain/alert.js';
import type { Settings } from '../domain/settings.js';
import { redactText } from '../redaction.js';
import type { Database } from './db.js';
import { openSettings, type SealedRow } from './sealed-settings.js';
import type { SecretBox } from './secret-box.js';

export interface ClaimedNotice {
  readonly id: string;
  readonly attempts: number;
  readonly event: AlertEvent;
  readonly tenantId: string;
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
       sink.id AS "sinkId", sink.kind, sink.name, sink.config, sink.secrets, sink.secrets_key_id AS "secretsKeyId",
       alert.id AS "alertId", alert.policy, alert.severity, alert.message, alert.value, alert.threshold,
       alert.fired_at AS "firedAt", alert.resolved_at AS "resolvedAt"
     FROM claimed JOIN alert_sink sink ON sink.id = claimed.sink_id LEFT JOIN alert ON alert.id = claimed.alert_id`,
  );
  return rows.map(toClaimed);
}

type ClaimedRow = Pick<ClaimedNotice, 'id' | 'attempts' | 'event' | 'tenantId'> &
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
  return { id, attempts, event, tenantId, sink, alert: alertId === null ? null : { id: alertId, ...alert } };
}

/** The sink's settings, with their credentials. */
export function openSinkSettings(box: SecretBox, { sink }: ClaimedNotice): Settings {
  return openSettings(box, 'alert_sink', sink.row);
}

export async function settleDelivered(db: Database, { id, attempts }: ClaimedNotice): Promise<void> {
  await db.query(
    `UPDATE alert_notice SET delivered_at = clock_timestamp(), next_attempt_at = NULL, error = NULL
     WHERE id = $1 AND attempts = $2`,
    [id, attempts],
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
}

/** It is tried again later, unless that is of no use or has gone on for days; answers whether it was given up. */
export async function settleUndelivered(
  db: Database,
  { id, attempts }: ClaimedNotice,
  { reason, isFinal }: NoticeFailure,
): Promise<boolean> {
  const rows = await db.query<{ gaveUp: boolean }>(
    `UPDATE alert_notice SET error = $3, next_attempt_at = CASE
       WHEN NOT $5 AND (attempts < ${MIN_NOTICE_TRIES}
         OR created_at > clock_timestamp() - ${NOTICE_LIFETIME_SECONDS} * interval '1 second')
       THEN clock_timestamp() + $4 * interval '1 second'
     END
     WHERE id = $1 AND attempts = $2 RETURNING next_attempt_at IS NULL AS "gaveUp"`,
    // It is kept and shown: whoever refuses may repeat the credentials that he was sent.
    [
      id,
      attempts,
      redactText(reason),
      noticeDelaySeconds(attempts),
      isFinal && attempts >= MAX_NOTICE_REFUSALS,
    ],
  );
  return rows[0]?.gaveUp ?? false;
}
