// How a channel is reached: saving it, and reading it for whoever calls the channel.

import type { ChannelKinds, StoredChannel } from '../domain/channel.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { findChannels, type ChannelRow } from './channel.js';
import { translated, type Connection, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import { checkLabel } from './input.js';
import type { SecretBox } from './secret-box.js';
import { completeSettings, openSettings, sealSettings, type SealedRow } from './sealed-settings.js';
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

type StoredRow = SealedRow & Pick<ChannelRow, 'kind'>;

function unsealed(box: SecretBox, row: StoredRow): StoredChannel {
  return { id: row.id, kind: row.kind, config: openSettings(box, 'channel', row) };
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
    const config = completeSettings(input.config, former && unsealed(box, former).config);
    kinds.check({ id, kind: input.kind, config });
    const sealed = sealSettings(box, 'channel', id, config, kinds.secretNames(input.kind) ?? []);
    await writeChannel(connection, viewer, { ...input, ...sealed, id });
  });
  return (await findChannels(db, viewer, [id])).get(id)!;
}

async function lockChannel(connection: Connection, viewer: Viewer, id: string): Promise<StoredRow> {
  const { rows } = await connection.query<StoredRow>(
    `SELECT id, kind, config, secrets, secrets_key_id AS "secretsKeyId" FROM channel
     WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  if (!rows[0]) throw notFound('Channel', id, ['input', 'id']);
  return rows[0];
}

async function writeChannel(
  connection: Connection,
  viewer: Viewer,
  channel: ChannelInput & SealedRow,
): Promise<void> {
  const { id, name, kind, config, secrets, secretsKeyId } = channel;
  // A name that is taken ends in the unique index, whoever was first. A bucket is of the rate limit that it was
  // filled under: of another one nothing is known yet.
  await connection.query(
    `INSERT INTO channel (id, tenant_id, name, kind, config, secrets, secrets_key_id)
     VALUES ($1, $2, $3, $4, $5, $6, $7)
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, config = excluded.config, secrets = excluded.secrets,
       secrets_key_id = excluded.secrets_key_id, updated_at = clock_timestamp(),
       (bucket_tokens, bucket_capacity, bucket_restore_per_s, bucket_at) = (
         SELECT kept.bucket_tokens, kept.bucket_capacity, kept.bucket_restore_per_s, kept.bucket_at
         FROM (SELECT channel.*) AS kept
         WHERE kept.config #> '{policy,rateLimit}' IS NOT DISTINCT FROM excluded.config #> '{policy,rateLimit}')`,
    [id, viewer.tenantId, name, kind, JSON.stringify(config), secrets, secretsKeyId],
  );
}

function kindChanged(from: string): AppError {
  return new AppError('INVALID_INPUT', `A channel keeps its kind, ${from}: save another channel instead.`, {
    field: ['input', 'kind'],
  });
}
