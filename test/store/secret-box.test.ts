import { describe, expect, test } from 'vitest';
import { SecretBox } from '../../src/store/secret-box.js';

const first = SecretBox.generateKey();
const second = SecretBox.generateKey();

describe('a secret box', () => {
  test('gives back what it sealed, and never seals it the same way twice', () => {
    const box = new SecretBox([first]);
    const [one, two] = [box.seal('päss', 'row 1'), box.seal('päss', 'row 1')];
    expect(box.open(one, 'row 1')).toBe('päss');
    expect(one.text).not.toBe(two.text);
    expect(Buffer.from(one.text, 'base64').includes('päss')).toBe(false);
    expect(one.keyId).toBe(box.keyId);
  });

  test('takes a key in hexadecimal and in base64 for the same key', () => {
    const hex = Buffer.from(first, 'base64').toString('hex');
    expect(new SecretBox([hex]).keyId).toBe(new SecretBox([first]).keyId);
    expect(new SecretBox([hex.toUpperCase()]).keyId).toBe(new SecretBox([first]).keyId);
  });

  test('opens nothing for another row', () => {
    const box = new SecretBox([first]);
    expect(() => box.open(box.seal('x', 'row 1'), 'row 2')).toThrow(
      expect.objectContaining({ code: 'INVALID_INPUT' }),
    );
  });

  test('opens nothing that was changed, wherever', () => {
    const box = new SecretBox([first]);
    const sealed = box.seal('secret', 'row');
    const bytes = Buffer.from(sealed.text, 'base64');
    for (let i = 0; i < bytes.length; i += 1) {
      const changed = Buffer.from(bytes);
      changed[i]! ^= 1;
      expect(() => box.open({ ...sealed, text: changed.toString('base64') }, 'row')).toThrow(/changed/);
    }
    expect(() => box.open({ ...sealed, text: bytes.subarray(0, 20).toString('base64') }, 'row')).toThrow();
  });

  test('seals with the first key and opens with any: a key can be replaced', () => {
    const old = new SecretBox([second]).seal('x', 'row');
    const box = new SecretBox([first, second]);
    expect(box.open(old, 'row')).toBe('x');
    expect(box.seal('x', 'row').keyId).toBe(new SecretBox([first]).keyId);
    expect(() => new SecretBox([first]).open(old, 'row')).toThrow(
      new RegExp(`${old.keyId}.*RUNLEDGER_SECRET_KEY`),
    );
  });

  test('without a key seals nothing, and says what to do', () => {
    const box = new SecretBox([]);
    expect(box.keyId).toBeNull();
    expect(() => box.seal('x', 'row')).toThrow(/RUNLEDGER_SECRET_KEY/);
  });

  test('refuses a key of another length', () => {
    expect(() => new SecretBox(['c2hvcnQ='])).toThrow(/32 bytes/);
  });
});
