// Sales channels: reading them, and registering the sandbox's.

import type { Viewer } from '../domain/viewer.js';
import { translated, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import type { Channel } from './prisma/client.js';

export type ChannelRow = Channel;

export function listChannels(db: Database, viewer: Viewer): Promise<ChannelRow[]> {
  return translated(
    db.prisma.channel.findMany({ where: { tenantId: viewer.tenantId }, orderBy: { name: 'asc' } }),
  );
}

export async function findChannels(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, ChannelRow>> {
  const rows = await translated(
    db.prisma.channel.findMany({ where: { tenantId: viewer.tenantId, id: { in: ids.filter(isUuid) } } }),
  );
  return new Map(rows.map((row) => [row.id, row]));
}

export interface Registration {
  readonly tenantId: string;
  readonly name: string;
  readonly kind: string;
  readonly config: Readonly<Record<string, string | number | boolean>>;
}

/** Registers a channel under its name, or points the one that has it elsewhere; answers its id. */
export async function registerChannel(
  db: Database,
  { tenantId, name, kind, config }: Registration,
): Promise<string> {
  const { id } = await translated(
    db.prisma.channel.upsert({
      where: { tenantId_name: { tenantId, name } },
      create: { id: newId(), tenantId, name, kind, config },
      update: { kind, config, secrets: null, secretsKeyId: null, updatedAt: new Date() },
      select: { id: true },
    }),
  );
  return id;
}
