// Alert sinks: who is told of a tenant's alerts, and how they are reached.

import type { AlertSeverity } from '../domain/alert.js';
import type { SettingKinds, Settings } from '../domain/settings.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { hurryNotices } from './alert-notice.js';
import type { Connection, Database } from './db.js';
import { isUuid, newId } from './id.js';
import { checkLabel } from './input.js';
import type { AlertSink } from './prisma/client.js';
import { completeSettings, openSettings, sealSettings, type SealedRow } from './sealed-settings.js';
import type { SecretBox } from './secret-box.js';
import { notFound } from './transition.js';

/** How a sink fares, by the last notice that it was tried with. */
export type AlertSinkRow = Omit<AlertSink, 'secrets' | 'secretsKeyId' | 'config'> & {
  readonly config: Settings;
  readonly lastDeliveredAt: Date | null;
  readonly lastError: string | null;
  readonly waiting: number;
};

export interface AlertSinkInput {
  /** Null for a new one. */
  readonly id: string | null;
  readonly name: string;
  readonly kind: string;
  readonly config: unknown;
  readonly severities: readonly AlertSeverity[];
  readonly enabled: boolean;
}

const COLUMNS = `sink.id, sink.tenant_id AS "tenantId", sink.name, sink.kind, sink.config, sink.severities, sink.enabled,
  sink.created_at AS "createdAt", sink.updated_at AS "updatedAt",
  (SELECT max(delivered_at) FROM alert_notice WHERE sink_id = sink.id) AS "lastDeliveredAt",
  (SELECT error FROM alert_notice WHERE sink_id = sink.id AND attempts > 0 ORDER BY id DESC LIMIT 1) AS "lastError",
  (SELECT count(*)::int FROM alert_notice WHERE sink_id = sink.id AND next_attempt_at IS NOT NULL) AS waiting`;

export function listAlertSinks(db: Database, { tenantId }: Viewer): Promise<AlertSinkRow[]> {
  return db.query<AlertSinkRow>(`SELECT ${COLUMNS} FROM alert_sink sink WHERE tenant_id = $1 ORDER BY name`, [
    tenantId,
  ]);
}

/**
 * Makes a sink, or changes one; where the given config has a mask, the stored credential stays. What waits is tried
 * with the new settings soon.
 */
export async function saveAlertSink(
  db: Database,
  box: SecretBox,
  viewer: Viewer,
  kinds: SettingKinds,
  input: AlertSinkInput,
): Promise<AlertSinkRow> {
  checkLabel('name', input.name);
  const id = input.id ?? newId();
  await db.transaction(viewer.actor, async (connection) => {
    const former = input.id === null ? null : await lockSink(connection, viewer, input.id);
    if (former && former.kind !== input.kind) {
      throw new AppError(
        'INVALID_INPUT',
        `A sink keeps its kind, ${former.kind}: save another sink instead.`,
        {
          field: ['input', 'kind'],
        },
      );
    }
    const config = completeSettings(input.config, former && openSettings(box, 'alert_sink', former));
    kinds.check(input.kind, config);
    const sealed = sealSettings(box, 'alert_sink', id, config, kinds.secretNames(input.kind) ?? []);
    await writeSink(connection, viewer, { ...input, ...sealed, id });
    await hurryNotices(connection, id);
  });
  return requireSink(db, viewer, id);
}

export async function deleteAlertSink(db: Database, { tenantId }: Viewer, id: string): Promise<void> {
  const deleted = await db.query('DELETE FROM alert_sink WHERE id = $1 AND tenant_id = $2 RETURNING 1', [
    isUuid(id) ? id : null,
    tenantId,
  ]);
  if (deleted.length === 0) throw notFound('Alert sink', id, ['input', 'id']);
}

/** Has the sink told that this is a test; how that went is seen on the sink. */
export async function testAlertSink(db: Database, viewer: Viewer, id: string): Promise<AlertSinkRow> {
  await db.query(
    `INSERT INTO alert_notice (tenant_id, sink_id, event)
     SELECT tenant_id, id, 'TEST' FROM alert_sink WHERE id = $1 AND tenant_id = $2 AND enabled`,
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  const sink = await requireSink(db, viewer, id);
  if (sink.enabled) return sink;
  throw new AppError('INVALID_INPUT', `The sink ${sink.name} is disabled: enable it to try it.`, {
    field: ['input', 'id'],
  });
}

async function requireSink(db: Database, viewer: Viewer, id: string): Promise<AlertSinkRow> {
  const [row] = await db.query<AlertSinkRow>(
    `SELECT ${COLUMNS} FROM alert_sink sink WHERE id = $1 AND tenant_id = $2`,
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  if (!row) throw notFound('Alert sink', id, ['input', 'id']);
  return row;
}

type StoredSink = SealedRow & Pick<AlertSink, 'kind'>;

async function lockSink(connection: Connection, viewer: Viewer, id: string): Promise<StoredSink> {
  const { rows } = await connection.query<StoredSink>(
    `SELECT id, kind, config, secrets, secrets_key_id AS "secretsKeyId" FROM alert_sink
     WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  if (!rows[0]) throw notFound('Alert sink', id, ['input', 'id']);
  return rows[0];
}

async function writeSink(
  connection: Connection,
  { tenantId }: Viewer,
  sink: AlertSinkInput & SealedRow,
): Promise<void> {
  const { id, name, kind, config, secrets, secretsKeyId, severities, enabled } = sink;
  await connection.query(
    `INSERT INTO alert_sink (id, tenant_id, name, kind, config, secrets, secrets_key_id, severities, enabled)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, config = excluded.config, secrets = excluded.secrets,
       secrets_key_id = excluded.secrets_key_id, severities = excluded.severities, enabled = excluded.enabled,
       updated_at = clock_timestamp()`,
    [id, tenantId, name, kind, JSON.stringify(config), secrets, secretsKeyId, severities, enabled],
  );
}
