// API keys. Only a hash is kept: a key that is made here has 256 random bits, so a plain SHA-256 of it cannot
// be searched (a configured one is as strong as its owner made it). The key itself is shown once.

import { createHash, randomBytes } from 'node:crypto';
import { AppError } from '../errors.js';
import type { Role, Viewer } from '../domain/viewer.js';
import { translated, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import type { ApiKey } from './prisma/client.js';
import { notFound } from './transition.js';

export type ApiKeyRow = Omit<ApiKey, 'hash'>;

export interface NewApiKey {
  readonly tenantId: string;
  readonly name: string;
  readonly role: Role;
}

const BOOTSTRAP_NAME = 'bootstrap';
const MAX_PREFIX_LENGTH = 8;
const MAX_NAME_LENGTH = 100;
/** How stale `last used` may be: a write per request would cost more than the request. */
const LAST_USED_GRAIN_MS = 60_000;

export async function createApiKey(
  db: Database,
  input: NewApiKey,
): Promise<{ key: ApiKeyRow; secret: string }> {
  if (input.name.trim() === '' || input.name.length > MAX_NAME_LENGTH) {
    throw new AppError('INVALID_INPUT', `name must have 1 to ${MAX_NAME_LENGTH} characters.`, {
      field: ['input', 'name'],
    });
  }
  if (input.name === BOOTSTRAP_NAME) {
    throw new AppError(
      'INVALID_INPUT',
      `${BOOTSTRAP_NAME} is the name of the configured key; choose another.`,
      {
        field: ['input', 'name'],
      },
    );
  }
  const secret = `rl_${randomBytes(32).toString('base64url')}`;
  const key = await insertKey(db, input, secret);
  return { key, secret };
}

/** A tenant comes into being with its first key. */
export async function ensureTenant(db: Database, tenantId: string): Promise<void> {
  if (!/^[a-z0-9][a-z0-9_-]{0,62}$/.test(tenantId)) {
    throw new AppError(
      'INVALID_INPUT',
      `A tenant is named by up to 63 of a-z, 0-9, - and _, not "${tenantId}".`,
    );
  }
  await translated(
    db.prisma.tenant.createMany({ data: [{ id: tenantId, name: tenantId }], skipDuplicates: true }),
  );
}

/** Makes the configured key the one bootstrap key of the default tenant; a former one stops working. */
export async function installBootstrapKey(db: Database, secret: string): Promise<void> {
  const hash = hashKey(secret);
  await translated(
    db.prisma.apiKey.updateMany({
      where: { tenantId: 'default', name: BOOTSTRAP_NAME, hash: { not: hash }, revokedAt: null },
      data: { revokedAt: new Date() },
    }),
  );
  const values = { tenantId: 'default', name: BOOTSTRAP_NAME, role: 'ADMIN' as const };
  await translated(
    db.prisma.apiKey.upsert({
      where: { hash },
      create: { id: newId(), ...values, prefix: prefixOf(secret), hash },
      update: { ...values, revokedAt: null },
    }),
  );
}

/** Who a key stands for; null when it is unknown or revoked. */
export async function findViewerByKey(db: Database, secret: string): Promise<Viewer | null> {
  const key = await translated(db.prisma.apiKey.findUnique({ where: { hash: hashKey(secret) } }));
  if (!key || key.revokedAt) return null;
  const now = new Date();
  if (!key.lastUsedAt || now.getTime() - key.lastUsedAt.getTime() > LAST_USED_GRAIN_MS) {
    await translated(db.prisma.apiKey.update({ where: { id: key.id }, data: { lastUsedAt: now } }));
  }
  return { tenantId: key.tenantId, role: key.role, actor: `key:${key.name}`, keyId: key.id };
}

export function listApiKeys(db: Database, tenantId: string): Promise<ApiKeyRow[]> {
  return translated(
    db.prisma.apiKey.findMany({ where: { tenantId }, orderBy: { id: 'asc' }, omit: { hash: true } }),
  );
}

/** Revoking twice is revoking once: the first time stands. */
export async function revokeApiKey(db: Database, tenantId: string, id: string): Promise<ApiKeyRow> {
  if (!isUuid(id)) throw notFound('API key', id, ['input', 'id']);
  const where = { id, tenantId };
  await translated(
    db.prisma.apiKey.updateMany({ where: { ...where, revokedAt: null }, data: { revokedAt: new Date() } }),
  );
  const key = await translated(db.prisma.apiKey.findFirst({ where, omit: { hash: true } }));
  if (!key) throw notFound('API key', id, ['input', 'id']);
  return key;
}

/** Whether anybody could authenticate at all. */
export async function hasUsableKey(db: Database): Promise<boolean> {
  return (await translated(db.prisma.apiKey.count({ where: { revokedAt: null }, take: 1 }))) > 0;
}

function insertKey(db: Database, input: NewApiKey, secret: string): Promise<ApiKeyRow> {
  const { tenantId, name, role } = input;
  return translated(
    db.prisma.apiKey.create({
      data: {
        id: newId(),
        tenantId,
        name,
        role,
        prefix: prefixOf(secret),
        hash: hashKey(secret),
      },
      omit: { hash: true },
    }),
  );
}

/** What people recognise a key by. Of a short one little is shown: the prefix is kept in the clear. */
function prefixOf(secret: string): string {
  return secret.slice(0, Math.min(MAX_PREFIX_LENGTH, Math.floor(secret.length / 4)));
}

function hashKey(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
