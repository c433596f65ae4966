// Retry-After in each form that HTTP has for it, wherever the server stands.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parseRetryAfter } from '../../src/connectors/failures.js';

const NOW = Date.UTC(1994, 10, 6, 8, 49, 0);
const HERE = process.env['TZ'];

beforeAll(() => {
  process.env['TZ'] = 'America/New_York';
});
afterAll(() => {
  if (HERE === undefined) delete process.env['TZ'];
  else process.env['TZ'] = HERE;
});

test('the clock of this test is not GMT', () => {
  expect(new Date(NOW).getTimezoneOffset()).toBe(300);
});

test.each<[string | null, number | null]>([
  ['37', 37_000],
  ['0', 0],
  ['2.5', 2_500],
  [' 37 ', 37_000],
  ['Sun, 06 Nov 1994 08:49:37 GMT', 37_000],
  ['Sunday, 06-Nov-94 08:49:37 GMT', 37_000],
  ['Sun Nov  6 08:49:37 1994', 37_000],
  ['Sun, 06 Nov 1994 08:48:37 GMT', 0],
  ['-5', null],
  ['soon', null],
  ['1994', 1_994_000],
  ['', null],
  [null, null],
])('%j is %j ms from now', (header, expected) => {
  expect(parseRetryAfter(header, NOW)).toBe(expected);
});
