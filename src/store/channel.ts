// Sales channels and supplier sources: reading them, and registering the sandbox's.

import type { Viewer } from '../domain/viewer.js';
import { translated, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import type { Channel, Source } from './prisma/client.js';

export type ChannelRow = Channel;
export type SourceRow = Source;

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
export async function readSourceConfig(
  db: Database,
  sourceId: string,
): Promise<{ readonly kind: string; readonly name: string; readonly config: unknown }> {
  return translated(
    db.prisma.source.findUniqueOrThrow({
      where: { id: sourceId },
      select: { kind: true, name: true, config: true },
    }),
  );
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

/** Registers a source under its name, or points the one that has it elsewhere; answers its id. */
export async function registerSource(
  db: Database,
  { tenantId, name, kind, config }: Registration,
): Promise<string> {
  const { id } = await translated(
    db.prisma.source.upsert({
      where: { tenantId_name: { tenantId, name } },
      create: { id: newId(), tenantId, name, kind, config },
      update: { kind, config, updatedAt: new Date() },
      select: { id: true },
    }),
  );
  return id;
}
