// Channels and their credentials in the database: sealed, bound to their row, kept where a mask comes back.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ConnectorKinds } from '../../src/connectors/kinds.js';
import { openChannel } from '../../src/connectors/registry.js';
import { MASK } from '../../src/domain/settings.js';
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';
import { registerChannel } from '../../src/store/channel.js';
import {
  readChannelConfig,
  requireChannelConfig,
  saveChannel,
  type ChannelInput,
} from '../../src/store/channel-config.js';
import { resealSettings } from '../../src/store/sealed-settings.js';
import { SecretBox } from '../../src/store/secret-box.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { seedWorld, type World } from '../support/fixtures.js';

const oldKey = SecretBox.generateKey();
const box = new SecretBox([oldKey]);
const defaults = {
  callTimeoutMs: 1_000,
  retry: DEFAULT_RETRY_POLICY,
  circuit: { toleratedThrottles: 5, openMs: 60_000 },
};
const kinds = new ConnectorKinds(({ kind, config }) => openChannel(kind, config, defaults));
const endpoint = 'https://shop.example/admin/api/2026-10/graphql.json';

let database: TestDatabase;
let world: World;
beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

let count = 0;
function save(overrides: Partial<ChannelInput> = {}, secretBox = box) {
  const config = { endpoint, accessToken: 'shpat_topsecret' };
  const input = { id: null, name: `channel ${(count += 1)}`, kind: 'shopify', config, ...overrides };
  return saveChannel(database.db, secretBox, world.home.viewer, kinds, input);
}

function rowOf(id: string) {
  return database.db
    .query<{ whole: string; config: object; secrets: string | null; key: string | null }>(
      `SELECT row_to_json(channel)::text AS whole, config, secrets, secrets_key_id AS key FROM channel WHERE id = $1`,
      [id],
    )
    .then(([row]) => row!);
}

describe('saving', () => {
  test('seals the credential; the stored row shows it nowhere', async () => {
    const { id } = await save();
    const row = await rowOf(id);
    expect(row.config).toEqual({ endpoint, accessToken: MASK });
    expect(row.whole).not.toContain('topsecret');
    expect(row.key).toBe(box.keyId);
    expect((await readChannelConfig(database.db, box, id)).config).toEqual({
      endpoint,
      accessToken: 'shpat_topsecret',
    });
  });

  test('keeps the credential where the mask comes back, replaces it where another comes', async () => {
    const { id, name } = await save();
    const newer = endpoint.replace('2026-10', '2027-01');
    await save({ id, name, config: { endpoint: newer, accessToken: MASK, policy: { concurrency: 2 } } });
    expect((await readChannelConfig(database.db, box, id)).config).toEqual({
      endpoint: newer,
      accessToken: 'shpat_topsecret',
      policy: { concurrency: 2 },
    });
    await save({ id, name, config: { endpoint, accessToken: 'shpat_new' } });
    expect((await readChannelConfig(database.db, box, id)).config).toEqual({
      endpoint,
      accessToken: 'shpat_new',
    });
  });

  test('takes no stored credential to another host; with a new one it goes there', async () => {
    const { id, name } = await save();
    const elsewhere = endpoint.replace('shop', 'attacker');
    await expect(
      save({ id, name, config: { endpoint: elsewhere, accessToken: MASK } }),
    ).rejects.toMatchObject({
      code: 'INVALID_INPUT',
      field: ['input', 'config'],
      message: expect.stringContaining('another host'),
    });
    const before = { endpoint, accessToken: 'shpat_topsecret' };
    expect((await readChannelConfig(database.db, box, id)).config).toEqual(before);
    const config = { endpoint: elsewhere, accessToken: 'shpat_theirs' };
    await save({ id, name, config });
    expect((await readChannelConfig(database.db, box, id)).config).toEqual(config);
  });

  test.each<[string, Partial<ChannelInput>, object]>([
    ['a fault in the config', { config: { endpoint: 'x' } }, { code: 'INVALID_INPUT' }],
    ['a config that is none', { config: [] }, { code: 'INVALID_INPUT', field: ['input', 'config'] }],
    ['a mask for nothing', { config: { endpoint, accessToken: MASK } }, { code: 'INVALID_INPUT' }],
    ['a kind that is none', { kind: 'amazon' }, { code: 'INVALID_INPUT' }],
    ['a name of blanks', { name: ' ' }, { code: 'INVALID_INPUT', field: ['input', 'name'] }],
    [
      'a name that is taken',
      { name: 'shop' },
      {
        code: 'CONFLICT',
        field: ['input', 'name'],
        message: 'The name is taken: another one has it already.',
      },
    ],
    ['an id of nothing', { id: 'x' }, { code: 'NOT_FOUND', field: ['input', 'id'] }],
  ])('refuses %s and writes nothing', async (_, overrides, refusal) => {
    const before = await database.db.query('SELECT count(*) FROM channel');
    await expect(save(overrides)).rejects.toMatchObject(refusal);
    expect(await database.db.query('SELECT count(*) FROM channel')).toEqual(before);
  });

  test('refuses another kind and another tenant’s channel', async () => {
    const { id, name } = await save();
    await expect(save({ id, name, kind: 'http' })).rejects.toMatchObject({ field: ['input', 'kind'] });
    await expect(save({ id: world.other.channelId })).rejects.toMatchObject({ code: 'NOT_FOUND' });
    const foreign = requireChannelConfig(database.db, box, world.other.viewer, id);
    await expect(foreign).rejects.toMatchObject({ code: 'NOT_FOUND' });
  });

  test('without a key is refused, while a config in plain still works', async () => {
    const keyless = new SecretBox([]);
    await expect(save({}, keyless)).rejects.toMatchObject({
      code: 'INVALID_INPUT',
      field: ['input', 'config'],
    });
    const config = { endpoint, accessToken: 'sandbox' };
    await registerChannel(database.db, { tenantId: 'default', name: 'sandbox', kind: 'shopify', config });
    const [row] = await database.db.query<{ id: string }>(`SELECT id FROM channel WHERE name = 'sandbox'`);
    expect((await readChannelConfig(database.db, keyless, row!.id)).config).toEqual(config);
  });
});

describe('sealed credentials', () => {
  test('that were moved to another channel do not open', async () => {
    const [one, two] = [await save(), await save()];
    await database.db.query(
      'UPDATE channel SET secrets = other.secrets FROM channel other WHERE channel.id = $1 AND other.id = $2',
      [one.id, two.id],
    );
    await expect(readChannelConfig(database.db, box, one.id)).rejects.toThrow(/moved/);
    await database.db.query('UPDATE channel SET secrets = NULL, secrets_key_id = NULL WHERE id = $1', [
      one.id,
    ]);
  });

  test('are sealed anew when the key is replaced', async () => {
    const { id } = await save();
    const newKey = SecretBox.generateKey();
    const both = new SecretBox([newKey, oldKey]);
    expect(await resealSettings(database.db, both)).toBeGreaterThan(0);
    expect(await resealSettings(database.db, both)).toBe(0);
    // Of a process that does not know the new key yet, and may start all the same.
    expect(await resealSettings(database.db, new SecretBox([SecretBox.generateKey(), oldKey]))).toBe(0);
    const newOnly = new SecretBox([newKey]);
    expect((await readChannelConfig(database.db, newOnly, id)).config).toMatchObject({
      accessToken: 'shpat_topsecret',
    });
    await expect(readChannelConfig(database.db, box, id)).rejects.toThrow(/RUNLEDGER_SECRET_KEY/);
    expect(await resealSettings(database.db, new SecretBox([]))).toBe(0);
  });
});
