// How a channel is reached: saving it, and reading it for whoever calls the channel. Credentials are sealed
// before they are stored; the stored config has a mask in their place, so that it may be shown.

import {
  holdsMask,
  isSettings,
  maskSettings,
  pickSecrets,
  unmaskValue,
  type ChannelKinds,
  type Settings,
  type StoredChannel,
} from '../domain/channel.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { findChannels, type ChannelRow } from './channel.js';
import { translated, type Connection, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import { checkLabel } from './input.js';
import type { Sealed, SecretBox } from './secret-box.js';
import { notFound } from './transition.js';

/** How to reach a channel, whoever's it is: for the runner, which serves every tenant. */
export async function readChannelConfig(
  db: Database,
  box: SecretBox,
  channelId: string,
): Promise<StoredChannel> {
  const row = await translated(db.prisma.channel.findUniqueOrThrow({ where: { id: channelId } }));
  return unsealed(box, row);
}

/** The same for a channel of the viewer's. */
export async function requireChannelConfig(
  db: Database,
  box: SecretBox,
  viewer: Viewer,
  channelId: string,
): Promise<StoredChannel> {
  const row = (await findChannels(db, viewer, [channelId])).get(channelId);
  if (!row) throw notFound('Channel', channelId, ['input', 'channelId']);
  return unsealed(box, row);
}

function unsealed(box: SecretBox, row: StoredConfig): StoredChannel {
  return {
    id: row.id,
    kind: row.kind,
    config: { ...(row.config as Settings), ...openSecrets(box, row) },
  };
}

type SealedRow = Pick<ChannelRow, 'id' | 'secrets' | 'secretsKeyId'>;
type StoredConfig = SealedRow & Pick<ChannelRow, 'kind' | 'config'>;

function openSecrets(box: SecretBox, { id, secrets, secretsKeyId }: SealedRow): Settings {
  if (secrets === null || secretsKeyId === null) return {};
  return JSON.parse(box.open({ keyId: secretsKeyId, text: secrets }, boundTo(id))) as Settings;
}

/** Credentials open for the channel that they were sealed for and for no other. */
function boundTo(channelId: string): string {
  return `channel ${channelId}`;
}

export interface ChannelInput {
  /** Null for a new one. */
  readonly id: string | null;
  readonly name: string;
  readonly kind: string;
  readonly config: unknown;
}

/** Makes a channel, or changes one; where the given config has a mask, the stored credential stays. */
export async function saveChannel(
  db: Database,
  box: SecretBox,
  viewer: Viewer,
  kinds: ChannelKinds,
  input: ChannelInput,
): Promise<ChannelRow> {
  checkLabel('name', input.name);
  const id = input.id ?? newId();
  await db.transaction(viewer.actor, async (connection) => {
    const former = input.id === null ? null : await lockChannel(connection, viewer, input.id);
    if (former && former.kind !== input.kind) throw kindChanged(former.kind);
    const config = completeConfig(input.config, former && unsealed(box, former).config);
    kinds.check({ id, kind: input.kind, config });
    const names = kinds.secretNames(input.kind) ?? [];
    const secrets = pickSecrets(config, names);
    const sealed = Object.keys(secrets).length > 0 ? box.seal(JSON.stringify(secrets), boundTo(id)) : null;
    await writeChannel(connection, viewer, { ...input, id, config: maskSettings(config, names), sealed });
  });
  return (await findChannels(db, viewer, [id])).get(id)!;
}

async function lockChannel(connection: Connection, viewer: Viewer, id: string): Promise<StoredConfig> {
  const { rows } = await connection.query<StoredConfig>(
    `SELECT id, kind, config, secrets, secrets_key_id AS "secretsKeyId" FROM channel
     WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  if (!rows[0]) throw notFound('Channel', id, ['input', 'id']);
  return rows[0];
}

function completeConfig(given: unknown, stored: Settings | null): Settings {
  if (!isSettings(given)) {
    throw new AppError('INVALID_INPUT', 'config must be a JSON object.', { field: ['input', 'config'] });
  }
  const config = unmaskValue(given, stored) as Settings;
  if (!holdsMask(config)) return config;
  throw new AppError(
    'INVALID_INPUT',
    'config holds a mask where no credential is stored: give the credential.',
    {
      field: ['input', 'config'],
    },
  );
}

async function writeChannel(
  connection: Connection,
  viewer: Viewer,
  channel: ChannelInput & { readonly id: string; readonly sealed: Sealed | null },
): Promise<void> {
  const { id, name, kind, config, sealed } = channel;
  // A name that is taken ends in the unique index, whoever was first.
  await connection.query(
    `INSERT INTO channel (id, tenant_id, name, kind, config, secrets, secrets_key_id)
     VALUES ($1, $2, $3, $4, $5, $6, $7)
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, config = excluded.config, secrets = excluded.secrets,
       secrets_key_id = excluded.secrets_key_id, updated_at = clock_timestamp()`,
    [id, viewer.tenantId, name, kind, JSON.stringify(config), sealed?.text ?? null, sealed?.keyId ?? null],
  );
}

function kindChanged(from: string): AppError {
  return new AppError('INVALID_INPUT', `A channel keeps its kind, ${from}: save another channel instead.`, {
    field: ['input', 'kind'],
  });
}

/** Seals anew, with the key of today, whatever a former key has sealed; answers how many channels that was. */
export async function resealChannels(db: Database, box: SecretBox): Promise<number> {
  const { keyId } = box;
  if (keyId === null) return 0;
  const rows = await db.query<SealedRow & { readonly secrets: string }>(
    `SELECT id, secrets, secrets_key_id AS "secretsKeyId" FROM channel WHERE secrets_key_id <> $1`,
    [keyId],
  );
  let resealed = 0;
  for (const row of rows) {
    const { text } = box.seal(JSON.stringify(openSecrets(box, row)), boundTo(row.id));
    // Somebody may have saved it in between: what they saved is newer.
    const done = await db.query(
      'UPDATE channel SET secrets = $2, secrets_key_id = $3 WHERE id = $1 AND secrets = $4 RETURNING 1',
      [row.id, text, keyId, row.secrets],
    );
    resealed += done.length;
  }
  return resealed;
}
