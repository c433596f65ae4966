// Endpoints for webhooks: who is sent a tenant's run events, and how they fare. Saving one gives it its place in
// every open run, in the same transaction: a new one begins with what comes, and one that is changed goes on.

import type { RunKind } from '../domain/run.js';
import { MASK, type SettingKinds, type Settings } from '../domain/settings.js';
import type { Viewer } from '../domain/viewer.js';
import {
  FORMER_SECRET_HOURS,
  MAX_WEBHOOK_ENDPOINTS,
  findChoiceFaults,
  type WebhookChoice,
} from '../domain/webhook-endpoint.js';
import { AppError } from '../errors.js';
import type { Connection, Database } from './db.js';
import { isUuid, newId } from './id.js';
import { checkLabel, refuseFaults } from './input.js';
import type { WebhookEndpoint } from './prisma/client.js';
import { openSettings, sealSettings, type SealedRow } from './sealed-settings.js';
import type { SecretBox } from './secret-box.js';
import { notFound } from './transition.js';

/** An endpoint and how it fares; no secret is in it. */
export type WebhookEndpointRow = Omit<
  WebhookEndpoint,
  'secrets' | 'secretsKeyId' | 'config' | 'kinds' | 'pingAt'
> & {
  /** Whose address it is; what follows is masked. */
  readonly url: string;
  readonly kinds: readonly RunKind[];
  /** Runs of which it is still to be sent something, the lines of those, and since when the first waits. */
  readonly waitingRuns: number;
  readonly waitingEvents: number;
  readonly waitingSince: Date | null;
};

export interface WebhookEndpointInput extends WebhookChoice {
  /** Null for a new one. */
  readonly id: string | null;
  readonly name: string;
  readonly url: string;
  /** Null keeps the one that is stored. */
  readonly secret: string | null;
  /** Null for as it is; a new one is on. */
  readonly enabled: boolean | null;
}

const COLUMNS = `endpoint.id, endpoint.tenant_id AS "tenantId", name, config ->> 'url' AS url, kinds,
  event_types AS "eventTypes", endpoint.project_id AS "projectId", batch_size AS "batchSize", enabled,
  disabled_at AS "disabledAt", disabled_reason AS "disabledReason", dead_after_hours AS "deadAfterHours",
  dead_after_failures AS "deadAfterFailures", failures, failing_since AS "failingSince",
  next_attempt_at AS "nextAttemptAt", last_delivered_at AS "lastDeliveredAt", last_error AS "lastError",
  last_error_at AS "lastErrorAt", pinged_at AS "pingedAt", ping_error AS "pingError", created_at AS "createdAt",
  updated_at AS "updatedAt", waiting.*`;

const SHOWN = `SELECT ${COLUMNS} FROM webhook_endpoint endpoint CROSS JOIN LATERAL (
    SELECT count(*)::int AS "waitingRuns", coalesce(sum(run.last_seq - delivered_seq), 0)::float8 AS "waitingEvents",
      min(waiting_since) AS "waitingSince"
    FROM webhook_cursor JOIN webhook_run run ON run.id = run_id
    WHERE endpoint_id = endpoint.id AND webhook_cursor.next_attempt_at IS NOT NULL) waiting`;

export function listWebhookEndpoints(db: Database, { tenantId }: Viewer): Promise<WebhookEndpointRow[]> {
  return readEndpoints(db, 'endpoint.tenant_id = $1 ORDER BY name', [tenantId]);
}

/** Masked once more: an address that was saved before addresses were sealed stands there whole. */
async function readEndpoints(
  db: Database,
  condition: string,
  values: readonly unknown[],
): Promise<WebhookEndpointRow[]> {
  const rows = await db.query<WebhookEndpointRow>(`${SHOWN} WHERE ${condition}`, values);
  return rows.map((row) => ({ ...row, url: shownUrl(row.url) }));
}

/** Makes an endpoint, or changes one. */
export async function saveWebhookEndpoint(
  db: Database,
  box: SecretBox,
  viewer: Viewer,
  kinds: SettingKinds,
  input: WebhookEndpointInput,
): Promise<WebhookEndpointRow> {
  checkLabel('name', input.name);
  if (input.projectId !== null) checkLabel('projectId', input.projectId);
  refuseFaults(findChoiceFaults(input));
  const id = input.id ?? newId();
  await db.transaction(viewer.actor, async (connection) => {
    const former = input.id === null ? null : await lockEndpoint(connection, viewer, input.id);
    if (former === null) await refuseTooManyEndpoints(connection, viewer);
    const stored = former && openSettings(box, 'webhook_endpoint', former);
    const settings = nextSettings(input, stored);
    kinds.check('WEBHOOK', settings);
    const sealed = sealSettings(box, 'webhook_endpoint', id, settings, kinds.secretNames('WEBHOOK') ?? []);
    const config = { ...sealed.config, url: shownUrl(String(settings['url'])) };
    await writeEndpoint(connection, viewer, { ...input, ...sealed, config, id });
    await placeCursors(connection, viewer, id, input, former);
    const wasEnabled = former?.enabled ?? true;
    const enabled = input.enabled ?? wasEnabled;
    // Its failures are those of the address and the secret that it had.
    const begins = enabled && stored !== null && isElsewhere(settings, stored);
    if (begins || enabled !== wasEnabled) await switchLocked(connection, id, enabled, viewer.actor);
  });
  return requireEndpoint(db, viewer, id);
}

/** On: it goes on from where it was. Off: its place is kept. */
export async function switchWebhookEndpoint(
  db: Database,
  viewer: Viewer,
  id: string,
  enabled: boolean,
): Promise<WebhookEndpointRow> {
  await db.transaction(viewer.actor, async (connection) => {
    await lockEndpoint(connection, viewer, id);
    await switchLocked(connection, id, enabled, viewer.actor);
  });
  return requireEndpoint(db, viewer, id);
}

/** Its cursors are swept away later: there may be very many. */
export async function deleteWebhookEndpoint(db: Database, { tenantId }: Viewer, id: string): Promise<void> {
  const deleted = await db.query(
    'DELETE FROM webhook_endpoint WHERE id = $1 AND tenant_id = $2 RETURNING 1',
    [isUuid(id) ? id : null, tenantId],
  );
  if (deleted.length === 0) throw notFound('Webhook endpoint', id, ['input', 'id']);
}

/** Has a ping sent to it, on or off; how that went is seen on the endpoint. */
export async function testWebhookEndpoint(
  db: Database,
  viewer: Viewer,
  id: string,
): Promise<WebhookEndpointRow> {
  await db.query(
    `UPDATE webhook_endpoint SET ping_at = clock_timestamp(), updated_at = clock_timestamp()
     WHERE id = $1 AND tenant_id = $2`,
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  return requireEndpoint(db, viewer, id);
}

export async function requireEndpoint(
  db: Database,
  viewer: Viewer,
  id: string,
  field = 'id',
): Promise<WebhookEndpointRow> {
  const condition = 'endpoint.id = $1 AND endpoint.tenant_id = $2';
  const [row] = await readEndpoints(db, condition, [isUuid(id) ? id : null, viewer.tenantId]);
  if (!row) throw notFound('Webhook endpoint', id, ['input', field]);
  return row;
}

type StoredEndpoint = SealedRow & Pick<WebhookEndpoint, 'enabled' | 'kinds' | 'projectId'>;

async function lockEndpoint(connection: Connection, viewer: Viewer, id: string): Promise<StoredEndpoint> {
  const { rows } = await connection.query<StoredEndpoint>(
    `SELECT id, enabled, kinds, project_id AS "projectId", config, secrets, secrets_key_id AS "secretsKeyId"
     FROM webhook_endpoint WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  if (!rows[0]) throw notFound('Webhook endpoint', id, ['input', 'id']);
  return rows[0];
}

async function refuseTooManyEndpoints(connection: Connection, { tenantId }: Viewer): Promise<void> {
  const { rows } = await connection.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM webhook_endpoint WHERE tenant_id = $1',
    [tenantId],
  );
  if (rows[0]!.count < MAX_WEBHOOK_ENDPOINTS) return;
  throw new AppError('LIMIT_EXCEEDED', `A tenant has at most ${MAX_WEBHOOK_ENDPOINTS} webhook endpoints.`);
}

/** An address as it may be shown: whose it is, and not what lets anybody post to it. */
function shownUrl(url: string): string {
  return `${new URL(url).origin}/${MASK}`;
}

/** The address given, or the stored one where it was left as it is shown. */
function nextUrl(url: string, former: Settings | null): string {
  const stored = former?.['url'];
  if (typeof stored === 'string' && url === shownUrl(stored)) return stored;
  if (!url.includes(MASK)) return url;
  throw new AppError('INVALID_INPUT', 'url holds a mask where no such address is stored: give the address.', {
    field: ['input', 'url'],
  });
}

function isElsewhere(settings: Settings, stored: Settings): boolean {
  return settings['url'] !== stored['url'] || settings['secret'] !== stored['secret'];
}

/** A new secret takes over, and the one before signs too for a while. */
function nextSettings(input: WebhookEndpointInput, former: Settings | null): Settings {
  const { secret } = input;
  const url = nextUrl(input.url, former);
  if (former === null) {
    if (secret !== null) return { url, secret };
    throw new AppError('INVALID_INPUT', 'A new endpoint needs a secret.', { field: ['input', 'secret'] });
  }
  if (secret === null || secret === former['secret']) return { ...former, url };
  const until = new Date(Date.now() + FORMER_SECRET_HOURS * 3_600_000).toISOString();
  return { url, secret, formerSecret: former['secret'], formerSecretUntil: until };
}

async function writeEndpoint(
  connection: Connection,
  { tenantId }: Viewer,
  endpoint: WebhookEndpointInput & SealedRow,
): Promise<void> {
  const { id, name, config, secrets, secretsKeyId, kinds, eventTypes, projectId } = endpoint;
  const { batchSize, deadAfterHours, deadAfterFailures } = endpoint;
  await connection.query(
    `INSERT INTO webhook_endpoint (id, tenant_id, name, config, secrets, secrets_key_id, kinds, event_types, project_id,
       batch_size, dead_after_hours, dead_after_failures)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, config = excluded.config, secrets = excluded.secrets,
       secrets_key_id = excluded.secrets_key_id, kinds = excluded.kinds, event_types = excluded.event_types,
       project_id = excluded.project_id, batch_size = excluded.batch_size,
       dead_after_hours = excluded.dead_after_hours, dead_after_failures = excluded.dead_after_failures,
       updated_at = clock_timestamp()`,
    [
      id,
      tenantId,
      name,
      JSON.stringify(config),
      secrets,
      secretsKeyId,
      [...new Set(kinds)],
      eventTypes,
      projectId,
      batchSize,
      deadAfterHours,
      deadAfterFailures,
    ],
  );
}

/**
 * In the open runs that it is to be sent from now on, it begins with the next line. Those that it was to be sent
 * already and has no cursor in are new: there it begins with the first. One statement, so that every run is one
 * or the other; a run that it does not see yet comes later, and is new.
 */
async function placeCursors(
  connection: Connection,
  { tenantId }: Viewer,
  id: string,
  choice: WebhookChoice,
  former: Pick<WebhookEndpoint, 'kinds' | 'projectId'> | null,
): Promise<void> {
  await connection.query(
    `INSERT INTO webhook_cursor (endpoint_id, run_id, delivered_seq)
     SELECT $1, run.id,
       CASE WHEN run.kind = ANY($5::text[]) AND ($6::text IS NULL OR run.project_id = $6) THEN 0 ELSE run.last_seq END
     FROM webhook_run run
     WHERE run.tenant_id = $2 AND run.finished_at IS NULL
       AND run.kind = ANY($3::text[]) AND ($4::text IS NULL OR run.project_id = $4)
     ON CONFLICT (run_id, endpoint_id) DO NOTHING`,
    [id, tenantId, choice.kinds, choice.projectId, former?.kinds ?? [], former?.projectId ?? null],
  );
}

async function switchLocked(
  connection: Connection,
  id: string,
  enabled: boolean,
  actor: string,
): Promise<void> {
  await connection.query(
    `UPDATE webhook_endpoint SET enabled = $2, updated_at = clock_timestamp(),
       disabled_at = CASE WHEN NOT $2 THEN coalesce(disabled_at, clock_timestamp()) END,
       disabled_reason = CASE WHEN NOT $2 THEN coalesce(disabled_reason, 'switched off by ' || $3::text) END,
       failures = CASE WHEN $2 THEN 0 ELSE failures END,
       failing_since = CASE WHEN NOT $2 THEN failing_since END,
       next_attempt_at = CASE WHEN NOT $2 THEN next_attempt_at END
     WHERE id = $1`,
    [id, enabled, actor],
  );
  if (!enabled) return;
  // What had failed is tried at once.
  await connection.query(
    `UPDATE webhook_cursor SET next_attempt_at = clock_timestamp()
     WHERE endpoint_id = $1 AND next_attempt_at > clock_timestamp()`,
    [id],
  );
}
