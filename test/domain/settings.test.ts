import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  holdsMask,
  leadElsewhere,
  MASK,
  maskSettings,
  unmaskValue,
  type Settings,
} from '../../src/domain/settings.js';

const config = {
  url: 'https://x',
  credentials: { a: 's1', b: { c: 's2' }, d: ['s3'] },
  policy: { concurrency: 2 },
};

describe('masks', () => {
  test('stand in place of every credential, and of nothing else', () => {
    expect(maskSettings(config, ['credentials'])).toEqual({
      url: 'https://x',
      credentials: { a: MASK, b: { c: MASK }, d: MASK },
      policy: { concurrency: 2 },
    });
  });

  test('stand everywhere when nobody knows what is secret', () => {
    expect(maskSettings(config, null)).toEqual({
      url: MASK,
      credentials: { a: MASK, b: { c: MASK }, d: MASK },
      policy: { concurrency: MASK },
    });
  });

  test('that come back mean what is stored; another value replaces it, and what is left out is gone', () => {
    const given = { url: 'https://y', credentials: { a: MASK, b: { c: 'new' } } };
    expect(unmaskValue(given, config)).toEqual({
      url: 'https://y',
      credentials: { a: 's1', b: { c: 'new' } },
    });
  });

  test('that stand for nothing stay, and are found', () => {
    expect(holdsMask(unmaskValue({ credentials: { z: MASK } }, config))).toBe(true);
    expect(holdsMask(unmaskValue({ credentials: { toString: MASK } }, config))).toBe(true);
    expect(holdsMask(unmaskValue({ credentials: MASK }, null))).toBe(true);
    expect(holdsMask(config)).toBe(false);
  });

  test('any config survives being shown and saved again', () => {
    const settings = fc.dictionary(fc.string(), fc.jsonValue()) as fc.Arbitrary<Settings>;
    const property = fc.property(settings, fc.array(fc.string()), (any, others) => {
      const names = [...Object.keys(any).slice(0, 2), ...others];
      expect(unmaskValue(maskSettings(any, names), any)).toEqual(any);
    });
    fc.assert(property);
  });
});

describe('settings lead elsewhere', () => {
  const former = {
    read: { url: 'https://api.example/{{externalId}}', headers: { Accept: 'a/b' } },
    host: 'mail.example',
    to: ['a@mail.example'],
  };
  test.each<[string, Settings, boolean]>([
    ['when nothing changes', former, false],
    ['with another path of the same host', { ...former, read: { url: 'https://API.example/v2?x=1' } }, false],
    ['with less', { host: 'mail.example' }, false],
    ['with another host', { ...former, read: { url: 'https://api.example.evil/' } }, true],
    ['with another port', { ...former, read: { url: 'https://api.example:8443/' } }, true],
    ['with another protocol', { ...former, read: { url: 'http://api.example/' } }, true],
    ['with one more address', { ...former, mirrors: [{ url: 'https://evil.example' }] }, true],
    ['with another host by name', { ...former, host: 'mail.evil' }, true],
    ['with other words', { ...former, to: ['b@mail.example'], title: 'a: b' }, false],
  ])('%s: %#', (_, settings, expected) => {
    expect(leadElsewhere(settings, former)).toBe(expected);
  });
});
