// API keys: what is kept of them, whom they stand for, and until when.
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROLES } from '../../src/domain/viewer.js';
import {
  createApiKey,
  ensureTenant,
  findViewerByKey,
  hasUsableKey,
  installBootstrapKey,
  listApiKeys,
  revokeApiKey,
} from '../../src/store/api-key.js';
import { newId } from '../../src/store/id.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { faultOf } from './rows.js';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
  await ensureTenant(database.db, 'acme');
});
afterAll(() => database.drop());

const make = (name: string, tenantId = 'acme') =>
  createApiKey(database.db, { tenantId, name, role: 'OPERATOR' });

/** Every column of every key, as text, as somebody who reads the database sees it. */
async function dump(): Promise<string> {
  const rows = await database.db.query('SELECT * FROM api_key');
  return JSON.stringify(rows);
}

async function setLastUsed(id: string, at: Date): Promise<void> {
  await database.db.query('UPDATE api_key SET last_used_at = $2 WHERE id = $1', [id, at]);
}

async function findKey(id: string, tenantId = 'acme') {
  return (await listApiKeys(database.db, tenantId)).find((key) => key.id === id)!;
}

describe('a new key', () => {
  test('is shown once: the database has its hash and what people recognise it by', async () => {
    const { key, secret } = await make('once');
    expect(secret).toMatch(/^rl_[\w-]{43}$/);
    expect(key).not.toHaveProperty('hash');
    expect(key.prefix).toBe(secret.slice(0, 8));
    const [row] = await database.db.query('SELECT hash FROM api_key WHERE id = $1', [key.id]);
    expect(row).toEqual({ hash: createHash('sha256').update(secret).digest('hex') });
    expect(await dump()).not.toContain(secret);
    expect(JSON.stringify(await listApiKeys(database.db, 'acme'))).not.toContain('hash');
  });

  test('is like no other', async () => {
    const made = await Promise.all(Array.from({ length: 20 }, () => make('many')));
    expect(new Set(made.map(({ secret }) => secret)).size).toBe(20);
    expect(new Set(made.map(({ key }) => key.id)).size).toBe(20);
  });

  test.each(ROLES)('stands for its tenant with the role %s', async (role) => {
    const { key, secret } = await createApiKey(database.db, { tenantId: 'acme', name: 'ci', role });
    expect(await findViewerByKey(database.db, secret)).toEqual({
      tenantId: 'acme',
      role,
      actor: 'key:ci',
      keyId: key.id,
    });
  });

  test.each(['', '   ', 'x'.repeat(101), 'bootstrap', 'nul\0'])('cannot be called %j', async (name) => {
    const before = await dump();
    expect(await faultOf(make(name))).toMatchObject({ code: 'INVALID_INPUT' });
    expect(await dump()).toBe(before);
  });
});

describe('a key that is presented', () => {
  test.each(['', 'rl_', 'rl_unknown', 'nul\0', 'x'.repeat(10_000)])('%j is nobody', async (secret) => {
    expect(await findViewerByKey(database.db, secret)).toBeNull();
  });

  test('is not found by its hash or its prefix', async () => {
    const { key, secret } = await make('guess');
    const hash = createHash('sha256').update(secret).digest('hex');
    expect(await findViewerByKey(database.db, hash)).toBeNull();
    expect(await findViewerByKey(database.db, key.prefix)).toBeNull();
    expect(await findViewerByKey(database.db, `${secret} `)).toBeNull();
  });

  test('leaves the time of its use, by the minute', async () => {
    const { key, secret } = await make('used');
    expect(key.lastUsedAt).toBeNull();
    await findViewerByKey(database.db, secret);
    const first = (await findKey(key.id)).lastUsedAt!;
    expect(Date.now() - first.getTime()).toBeLessThan(60_000);
    const justNow = new Date(Date.now() - 30_000);
    await setLastUsed(key.id, justNow);
    await findViewerByKey(database.db, secret);
    expect((await findKey(key.id)).lastUsedAt).toEqual(justNow);
    await setLastUsed(key.id, new Date(Date.now() - 61_000));
    await findViewerByKey(database.db, secret);
    expect((await findKey(key.id)).lastUsedAt!.getTime()).toBeGreaterThan(justNow.getTime());
  });
});

describe('revoking', () => {
  test('ends a key at once, and once', async () => {
    const { key, secret } = await make('gone');
    const { revokedAt } = await revokeApiKey(database.db, 'acme', key.id);
    expect(revokedAt).toBeInstanceOf(Date);
    expect(await findViewerByKey(database.db, secret)).toBeNull();
    expect((await findKey(key.id)).lastUsedAt).toBeNull();
    expect(await revokeApiKey(database.db, 'acme', key.id)).toMatchObject({ revokedAt });
  });

  test('leaves the others alone', async () => {
    const [gone, kept] = [await make('gone'), await make('kept')];
    await revokeApiKey(database.db, 'acme', gone.key.id);
    expect(await findViewerByKey(database.db, kept.secret)).not.toBeNull();
  });

  test('a key of another tenant, or of none, is not found', async () => {
    const { key, secret } = await make('foreign');
    for (const [tenantId, id] of [
      ['default', key.id],
      ['acme', newId()],
      ['acme', 'garbage'],
    ] as const) {
      expect(await faultOf(revokeApiKey(database.db, tenantId, id))).toMatchObject({ code: 'NOT_FOUND' });
    }
    expect(await findViewerByKey(database.db, secret)).not.toBeNull();
  });
});

describe('tenants', () => {
  test('see their own keys', async () => {
    await ensureTenant(database.db, 'globex');
    const { key } = await make('mine', 'globex');
    expect((await listApiKeys(database.db, 'globex')).map(({ id }) => id)).toEqual([key.id]);
    expect((await listApiKeys(database.db, 'acme')).map(({ id }) => id)).not.toContain(key.id);
  });

  test('are made once, however many ask', async () => {
    await Promise.all(Array.from({ length: 5 }, () => ensureTenant(database.db, 'initech')));
    expect(await database.db.query(`SELECT name FROM tenant WHERE id = 'initech'`)).toEqual([
      { name: 'initech' },
    ]);
  });

  test.each(['', 'Upper', 'a b', '-a', '../x', 'a'.repeat(64), "x'; --"])('%j is no name', async (id) => {
    expect(await faultOf(ensureTenant(database.db, id))).toMatchObject({ code: 'INVALID_INPUT' });
  });
});

describe('the bootstrap key', () => {
  const find = (secret: string) => findViewerByKey(database.db, secret);

  test('is admin of the default tenant, and a new one takes its place', async () => {
    await installBootstrapKey(database.db, 'first-secret');
    expect(await find('first-secret')).toMatchObject({
      tenantId: 'default',
      role: 'ADMIN',
      actor: 'key:bootstrap',
    });
    await installBootstrapKey(database.db, 'second-secret');
    expect(await find('first-secret')).toBeNull();
    expect(await find('second-secret')).toMatchObject({ role: 'ADMIN' });
    await installBootstrapKey(database.db, 'first-secret');
    expect(await find('first-secret')).toMatchObject({ role: 'ADMIN' });
    expect(await find('second-secret')).toBeNull();
  });

  test('stays the same over restarts, and other keys stay', async () => {
    const { secret } = await make('mine', 'default');
    await installBootstrapKey(database.db, 'constant-secret');
    const before = await find('constant-secret');
    await installBootstrapKey(database.db, 'constant-secret');
    expect(await find('constant-secret')).toEqual(before);
    expect(await find(secret)).not.toBeNull();
  });

  test('works again after it was revoked and is configured still', async () => {
    await installBootstrapKey(database.db, 'revoked-secret');
    const { keyId } = (await find('revoked-secret'))!;
    await revokeApiKey(database.db, 'default', keyId!);
    expect(await find('revoked-secret')).toBeNull();
    await installBootstrapKey(database.db, 'revoked-secret');
    expect(await find('revoked-secret')).toMatchObject({ role: 'ADMIN' });
  });

  test('is one key when many servers start at once', async () => {
    await Promise.all(Array.from({ length: 6 }, () => installBootstrapKey(database.db, 'shared-secret')));
    expect(await find('shared-secret')).toMatchObject({ role: 'ADMIN' });
    const usable = (await listApiKeys(database.db, 'default')).filter(
      ({ name, revokedAt }) => name === 'bootstrap' && revokedAt === null,
    );
    expect(usable).toHaveLength(1);
  });

  test('does not stand in the database, however short', async () => {
    await installBootstrapKey(database.db, 'eightchr');
    expect(await dump()).not.toContain('eightchr');
    expect((await listApiKeys(database.db, 'default')).map(({ prefix }) => prefix)).toContain('ei');
  });
});

test('whether anybody could authenticate', async () => {
  const fresh = await createTestDatabase();
  try {
    expect(await hasUsableKey(fresh.db)).toBe(false);
    const { key } = await createApiKey(fresh.db, { tenantId: 'default', name: 'only', role: 'VIEWER' });
    expect(await hasUsableKey(fresh.db)).toBe(true);
    await revokeApiKey(fresh.db, 'default', key.id);
    expect(await hasUsableKey(fresh.db)).toBe(false);
  } finally {
    await fresh.drop();
  }
});
