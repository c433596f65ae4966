// Credentials in plain, in the config of an http channel: refused when it is saved, and no reason not to open it.
import { describe, expect, test } from 'vitest';
import { ConnectorKinds } from '../../../src/connectors/kinds.js';
import { openChannel } from '../../../src/connectors/registry.js';
import { DEFAULT_RETRY_POLICY } from '../../../src/domain/retry-policy.js';
import { batchForm, singleForm, type Settings } from './support.js';

const defaults = {
  callTimeoutMs: 1_000,
  retry: DEFAULT_RETRY_POLICY,
  circuit: { toleratedThrottles: 5, openMs: 60_000 },
};
const kinds = new ConnectorKinds(({ kind, config }) => openChannel(kind, config, defaults));
const origin = 'https://api.example';

function faultsOf(config: object): { readonly fields: string[]; readonly message: string } {
  try {
    kinds.check({ id: 'x', kind: 'http', config: config as Record<string, unknown> });
    return { fields: [], message: '' };
  } catch (error) {
    expect(error).toMatchObject({ code: 'INVALID_INPUT' });
    const { message, details } = error as Error & { details: { faults: { field: string[] }[] } };
    return { fields: details.faults.map(({ field }) => field.join('.')), message };
  }
}

type Part = 'url' | 'headers' | 'body';

function single(call: 'write' | 'read', part: Part, value: unknown): Settings {
  const settings = singleForm(origin);
  return { ...settings, [call]: { ...settings[call], [part]: value } };
}

function batchOf(item: object): Settings {
  const settings = batchForm(origin);
  return { ...settings, write: { ...settings.write, batch: { max: 10, item: item as never } } };
}

const refused: readonly [Settings, string][] = [
  ...['Authorization', 'Cookie', 'x-api-key', 'X-Auth-Token', 'X-Shopify-Access-Token', 'Api-Key'].map(
    (name): [Settings, string] => [
      single('write', 'headers', { [name]: 'Bearer abc' }),
      `write.headers.${name}`,
    ],
  ),
  [single('write', 'headers', { Authorization: 'abc {{idempotencyKey}}' }), 'write.headers.Authorization'],
  [single('write', 'url', `${origin}/{{externalId}}?api_key=abc`), 'write.url'],
  [single('read', 'url', `${origin}/{{externalId}}?accessToken=abc`), 'read.url'],
  [single('read', 'url', `${origin}/{{externalId}}?key=abc4567890123456`), 'read.url'],
  [single('write', 'body', { auth: { client_secret: 'abc' } }), 'write.body.auth.client_secret'],
  [single('write', 'body', { list: [{ password: 'abc' }] }), 'write.body.list.0.password'],
  [single('write', 'body', { shopToken: 'abc4567890123456' }), 'write.body.shopToken'],
  [batchOf({ sku: '{{externalId}}', apiKey: 'abc' }), 'write.batch.item.apiKey'],
];

describe('when it is saved', () => {
  test.each(refused)('%j is refused, and the value is not shown', (settings, field) => {
    const { fields, message } = faultsOf(settings);
    expect(fields).toEqual([field]);
    expect(message).not.toContain('abc');
  });

  test.each<[Settings]>([
    [single('write', 'body', { idempotencyKey: '{{idempotencyKey}}', itemKey: '{{externalId}}' })],
    [single('write', 'headers', { 'Idempotency-Key': '{{idempotencyKey}}', 'X-Request-Key': 'prices' })],
    [single('write', 'body', { sortKey: 'updated_at_2026_desc', partitionKey: 'sku', publicKey: 'a' })],
    [single('write', 'body', { pageToken: 'first', signature: 'The pricing team 2026', monkey: 'x' })],
    [single('write', 'body', { token: '{{credentials.token}}', key: 'sku', tokens: 3, secret: '' })],
    [single('write', 'url', `${origin}/{{externalId}}?api_key={{credentials.token}}`)],
    [single('read', 'url', `${origin}/{{credentials.token}}/{{externalId}}?key={{externalId}}`)],
    [batchOf({ itemKey: '{{externalId}}', token: '{{idempotencyKey}}' })],
  ])('%j is taken', (settings) => {
    expect(faultsOf(settings).fields).toEqual([]);
  });
});

test.each(refused)('when it is stored, %j opens', (settings) => {
  expect(() => openChannel('http', settings, defaults)).not.toThrow();
});
