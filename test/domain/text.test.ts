import { describe, expect, test } from 'vitest';
import { isStorable, storableText } from '../../src/domain/text.js';

describe('storableText', () => {
  test('leaves alone what can be stored', () => {
    expect(storableText('HTTP 500: 💎 zu spät', 100)).toBe('HTTP 500: 💎 zu spät');
    expect(storableText('12345', 5)).toBe('12345');
  });

  test('replaces what cannot be', () => {
    expect(storableText('a\0b\ud83dc\udc8e', 100)).toBe('a\ufffdb\ufffdc\ufffd');
  });

  test('cuts a long text without parting a pair, and shows that it did', () => {
    expect(storableText('123456', 5)).toBe('1234…');
    expect(storableText('123💎6', 5)).toBe('123…');
    expect(storableText('12💎56', 5)).toBe('12💎…');
  });

  test('is never longer than asked, and always storable', () => {
    for (const text of ['', 'a', '💎💎', 'a\0', '\ud83d\ud83d\udc8e']) {
      for (let length = 0; length < 6; length += 1) {
        const kept = storableText(text, length);
        expect(kept.length).toBeLessThanOrEqual(length);
        expect(isStorable(kept)).toBe(true);
      }
    }
  });
});
