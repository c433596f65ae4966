import { describe, expect, test } from 'vitest';
import { csvLine } from '../../src/server/csv.js';

describe('a line of CSV', () => {
  test.each<[string, string | number | null, string]>([
    ['text', 'abc', 'abc'],
    ['a number', 12, '12'],
    ['nothing', null, ''],
    ['a comma', 'a,b', '"a,b"'],
    ['a quote', 'say "hi"', '"say ""hi"""'],
    ['a line break', 'a\r\nb', '"a\r\nb"'],
  ])('%s', (_, value, cell) => {
    expect(csvLine([value, 'x'])).toBe(`${cell},x\r\n`);
  });

  test.each(['=1+1', '+1', '-1', '@SUM(A1)', '\t=1', '\r=1', '=HYPERLINK("http://x","y")'])(
    '%j is text, not a formula',
    (value) => {
      const line = csvLine([value]);
      expect(line.startsWith(`"'`)).toBe(true);
      expect(line).toBe(`"'${value.replaceAll('"', '""')}"\r\n`);
    },
  );
});
