import { describe, expect, test } from 'vitest';
import { batchForm, parseHttp, singleForm, type Settings } from './support.js';

const origin = 'https://api.example';
const single = singleForm(origin);
const batch = batchForm(origin);

function faultsOf(settings: unknown): string[] {
  try {
    parseHttp(settings);
    return [];
  } catch (error) {
    expect(error).toMatchObject({ code: 'INVALID_INPUT' });
    const { details } = error as { details: { faults: { field: string[] }[] } };
    return details.faults.map(({ field }) => field.join('.'));
  }
}

/** The settings with another value at a path. */
function but(settings: Settings, path: string, value: unknown): unknown {
  const copy = structuredClone(settings) as Record<string, unknown>;
  const keys = path.split('.');
  const last = keys.pop()!;
  let place = copy;
  for (const key of keys) place = (place[key] ??= {}) as Record<string, unknown>;
  if (value === undefined) delete place[last];
  else place[last] = value;
  return copy;
}

describe('the settings of an http channel', () => {
  test('both forms are taken, with defaults', () => {
    expect(parseHttp(single)).toMatchObject({
      idempotencyHeader: 'Idempotency-Key',
      maxAnswerBytes: 1024 ** 2,
    });
    expect(parseHttp(batch)).toMatchObject({ write: { method: 'POST', headers: {} }, credentials: {} });
  });

  test('what is left out is said to be missing', () => {
    expect(() => parseHttp({ write: { url: 'https://api.example/' } })).toThrow(
      'write.body: is missing, or none of what it may be; read: is missing',
    );
  });

  test.each<[string, Settings, string, unknown]>([
    ['http elsewhere', single, 'write.url', 'http://api.example/{{externalId}}'],
    ['a host from a placeholder', single, 'write.url', 'https://{{externalId}}.example/'],
    ['a host that ends in a placeholder', single, 'write.url', 'https://api.example{{externalId}}'],
    ['a user in the address', single, 'write.url', 'https://me:pw@api.example/'],
    ['a credential in the host', single, 'write.url', 'https://{{credentials.token}}.example/'],
    ['a credential that has half a character', single, 'credentials', { token: 'a\ud800' }],
    ['a placeholder that is not known', single, 'write.body', { price: '{{amount}}' }],
    ['a placeholder that is none', single, 'write.body', { price: '{{ unit amount }}' }],
    ['a credential that is not there', single, 'write.body', { key: '{{credentials.other}}' }],
    ['the list of a batch where there is none', single, 'write.body', { items: '{{items}}' }],
    ['an item’s field in the address of a batch', batch, 'write.url', 'https://api.example/{{externalId}}'],
    ['an item’s field in the body of a batch', batch, 'write.body', { i: '{{items}}', p: '{{decimal}}' }],
    ['a credential in every item', batch, 'write.batch.item', { key: '{{credentials.token}}' }],
    ['a batch without its list', batch, 'write.body', { all: true }],
    ['a batch of one', batch, 'write.batch.max', 1],
    ['answers per item without a batch', single, 'write.answer', { items: '/results' }],
    ['an id without a list', single, 'write.answer', { id: '/sku' }],
    ['a pointer that is none', single, 'read.answer.amount', 'price'],
    ['a read of nothing', single, 'read.url', 'https://api.example/prices'],
    ['a read of one and of many', single, 'read.url', 'https://api.example/{{externalId}}/{{externalIds}}'],
    ['a body with GET', single, 'read.body', { id: '{{externalId}}' }],
    ['many prices without a list', batch, 'read.answer', { amount: '/amount', unit: 'minor' }],
    ['no way to read', single, 'read', undefined],
    ['a header that fetch sets itself', single, 'write.headers', { 'Content-Length': '5' }],
    ['a header name with a space', single, 'write.headers', { 'a b': 'x' }],
    ['a header with a line break', single, 'write.headers', { 'x-a': 'a\r\nb: c' }],
    [
      'a signature by a credential that is not there',
      single,
      'signature',
      { header: 'x-s', credential: 'no' },
    ],
    ['an empty credential', single, 'credentials', { token: '' }],
    ['another method', single, 'write.method', 'DELETE'],
    ['a field that is not known', single, 'retries', 3],
  ])('refuses %s', (_, settings, path, value) => {
    const faults = faultsOf(but(settings, path, value));
    expect(faults).not.toEqual([]);
    // Fields that are not known are reported where they stand.
    expect(faults.some((fault) => path.startsWith(fault) || fault.startsWith(path))).toBe(true);
  });

  test('names every fault', () => {
    const wrong = { ...single, write: { ...single.write, url: 'nowhere' }, callTimeoutMs: 0 };
    expect(faultsOf(wrong)).toEqual(['write.url', 'callTimeoutMs']);
  });
});
