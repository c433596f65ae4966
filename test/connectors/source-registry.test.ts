import { expect, test } from 'vitest';
import { openSource, SOURCE_KINDS } from '../../src/connectors/source-registry.js';
import { DEFAULTS } from './source-support.js';

test('the kinds there are', () => {
  expect(SOURCE_KINDS).toEqual(['csv', 'http-json', 'ndjson', 'nivoda']);
});

const URL = 'https://example.com/feed';

test('pages of 30, up to 30 partitions, 5 deliveries, unless the config says otherwise', () => {
  expect(openSource('ndjson', { url: URL }, DEFAULTS).policy).toEqual({
    pageSize: 30,
    partitions: 30,
    retry: { ...DEFAULTS.retry, maxAttempts: 5 },
  });
  const policy = { pageSize: 100, partitions: 4, retry: { maxAttempts: 2, baseMs: 10 } };
  expect(openSource('ndjson', { url: URL, policy }, DEFAULTS).policy).toMatchObject(policy);
});

test.each([
  ['shopify', {}, 'kind: is one of csv, http-json, ndjson, nivoda'],
  ['toString', {}, 'kind: is one of'],
  ['nivoda', null, 'must be an object'],
  ['nivoda', { endpoint: 'http://example.com' }, 'must be https'],
  ['nivoda', { endpoint: URL, username: 'a' }, 'password'],
  ['nivoda', { endpoint: URL, username: 'a', password: 'b', policy: { pageSize: 0 } }, 'policy.pageSize'],
  ['csv', {}, 'needs a path or a url'],
  ['csv', { path: 'a', url: URL }, 'needs a path or a url, and not both'],
  ['csv', { url: URL, delimiter: '"' }, 'delimiter'],
  ['http-json', { url: URL, paging: { kind: 'page' } }, 'paging'],
  ['http-json', { url: URL, colour: 'red' }, 'colour'],
])('%s %j is refused: %s', (kind, config, message) => {
  expect(() => openSource(kind, config, DEFAULTS)).toThrow(message);
});
