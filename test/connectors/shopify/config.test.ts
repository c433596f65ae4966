import { describe, expect, test } from 'vitest';
import { parseSettings } from '../../../src/connectors/settings.js';
import { SHOPIFY_SETTINGS, type ShopifyConfig } from '../../../src/connectors/shopify/config.js';

const sound = {
  endpoint: 'https://shop.example/admin/api/2026-10/graphql.json',
  accessToken: 'shpat_1',
  callTimeoutMs: 30_000,
};

const parse = (json: unknown): ShopifyConfig => parseSettings('Shopify channel', SHOPIFY_SETTINGS, json);

describe('the settings of a Shopify channel', () => {
  test('takes a sound config as it is', () => {
    expect(parse(sound)).toEqual(sound);
  });

  test.each(['127.0.0.1:4010', 'localhost:4010', '[::1]:4010'])('takes http on %s', (host) => {
    const endpoint = `http://${host}/admin/api/2026-10/graphql.json`;
    expect(parse({ ...sound, endpoint }).endpoint).toBe(endpoint);
  });

  test.each([
    ['http elsewhere', { endpoint: 'http://shop.example/admin/api/2026-10/graphql.json' }],
    ['another protocol', { endpoint: 'ftp://shop.example/admin/api/2026-10/graphql.json' }],
    ['another path', { endpoint: 'https://shop.example/graphql' }],
    ['no address', { endpoint: 'shop' }],
    ['a token with a line break', { accessToken: 'a\nb' }],
    ['an empty token', { accessToken: '' }],
    ['a timeout of zero', { callTimeoutMs: 0 }],
    ['a timeout that no timer holds', { callTimeoutMs: 2 ** 31 }],
    ['a field that is not known', { retries: 3 }],
  ])('refuses %s', (_, fault) => {
    expect(() => parse({ ...sound, ...fault })).toThrow(expect.objectContaining({ code: 'INVALID_INPUT' }));
  });

  test.each([null, 'text', []])('refuses %j', (json) => {
    expect(() => parse(json)).toThrow(expect.objectContaining({ code: 'INVALID_INPUT' }));
  });

  test('names every fault, and never the token', () => {
    const wrong = { endpoint: 'shop', accessToken: 'secret token', callTimeoutMs: -1 };
    expect(() => parse(wrong)).toThrow(/endpoint.*accessToken.*callTimeoutMs/);
    expect(() => parse(wrong)).not.toThrow(/secret/);
  });
});
