// Supplier sources: reading and saving them, and reading how one is reached for whoever reads its feed.

import type { SettingKinds, Settings } from '../domain/settings.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Registration } from './channel.js';
import { translated, type Connection, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import { checkLabel } from './input.js';
import type { Source } from './prisma/client.js';
import { completeSettings, openSettings, sealSettings, type SealedRow } from './sealed-settings.js';
import type { SecretBox } from './secret-box.js';
import { notFound } from './transition.js';

export type SourceRow = Source;

/** A source as it is opened: with its credentials. */
export interface StoredSource {
  readonly id: string;
  readonly kind: string;
  readonly config: Settings;
}

export function listSources(db: Database, viewer: Viewer): Promise<SourceRow[]> {
  return translated(
    db.prisma.source.findMany({ where: { tenantId: viewer.tenantId }, orderBy: { name: 'asc' } }),
  );
}

export async function findSources(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, SourceRow>> {
  const rows = await translated(
    db.prisma.source.findMany({ where: { tenantId: viewer.tenantId, id: { in: ids.filter(isUuid) } } }),
  );
  return new Map(rows.map((row) => [row.id, row]));
}

/** How to reach a source, whoever's it is: for the runner, which serves every tenant. */
export async function readSourceConfig(db: Database, box: SecretBox, id: string): Promise<StoredSource> {
  const row = await translated(db.prisma.source.findUniqueOrThrow({ where: { id } }));
  return { id, kind: row.kind, config: openSettings(box, 'source', row) };
}

export interface SourceInput {
  /** Null for a new one. */
  readonly id: string | null;
  readonly name: string;
  readonly kind: string;
  readonly config: unknown;
}

/** Makes a source, or changes one; where the given config has a mask, the stored credential stays. */
export async function saveSource(
  db: Database,
  box: SecretBox,
  viewer: Viewer,
  kinds: SettingKinds,
  input: SourceInput,
): Promise<SourceRow> {
  checkLabel('name', input.name);
  const id = input.id ?? newId();
  await db.transaction(viewer.actor, async (connection) => {
    const former = input.id === null ? null : await lockSource(connection, viewer, input.id);
    if (former && former.kind !== input.kind) throw kindChanged(former.kind);
    const config = completeSettings(input.config, former && openSettings(box, 'source', former));
    kinds.check(input.kind, config);
    const sealed = sealSettings(box, 'source', id, config, kinds.secretNames(input.kind) ?? []);
    // A name that is taken ends in the unique index, whoever was first.
    await connection.query(
      `INSERT INTO source (id, tenant_id, name, kind, config, secrets, secrets_key_id)
       VALUES ($1, $2, $3, $4, $5, $6, $7)
       ON CONFLICT (id) DO UPDATE SET name = excluded.name, config = excluded.config, secrets = excluded.secrets,
         secrets_key_id = excluded.secrets_key_id, updated_at = clock_timestamp()`,
      [
        id,
        viewer.tenantId,
        input.name,
        input.kind,
        JSON.stringify(sealed.config),
        sealed.secrets,
        sealed.secretsKeyId,
      ],
    );
  });
  return (await findSources(db, viewer, [id])).get(id)!;
}

async function lockSource(
  connection: Connection,
  viewer: Viewer,
  id: string,
): Promise<SealedRow & { readonly kind: string }> {
  const { rows } = await connection.query<SealedRow & { readonly kind: string }>(
    `SELECT id, kind, config, secrets, secrets_key_id AS "secretsKeyId" FROM source
     WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  if (!rows[0]) throw notFound('Source', id, ['input', 'id']);
  return rows[0];
}

// What was planned in the words of one kind cannot be read by another.
function kindChanged(from: string): AppError {
  return new AppError('INVALID_INPUT', `A source keeps its kind, ${from}: save another source instead.`, {
    field: ['input', 'kind'],
  });
}

/** Registers a source under its name, or points the one that has it elsewhere; answers its id. */
export async function registerSource(
  db: Database,
  { tenantId, name, kind, config }: Registration,
): Promise<string> {
  const { id } = await translated(
    db.prisma.source.upsert({
      where: { tenantId_name: { tenantId, name } },
      create: { id: newId(), tenantId, name, kind, config },
      update: { kind, config, secrets: null, secretsKeyId: null, updatedAt: new Date() },
      select: { id: true },
    }),
  );
  return id;
}
