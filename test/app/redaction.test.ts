// What the log makes of lines and errors that carry secrets, by their names, by their form, or because the
// process knows them.
import { expect, test } from 'vitest';
import { createLog } from '../../src/app/log.js';
import { loadConfig } from '../../src/config.js';
import { keepOwnSecret, keepSecret, redactText } from '../../src/redaction.js';

const ENVIRONMENT = {
  DATABASE_URL: 'postgres://app:p%40ss-word-1@db.internal/app',
  RUNLEDGER_API_KEY: 'admin-key-27182',
  RUNLEDGER_SECRET_KEY: 'ab'.repeat(32),
  RUNLEDGER_WEBHOOK_SECRET: 'webhook-secret-16180',
  RUNLEDGER_LOG_LEVEL: 'trace',
};

/** The line that an entry becomes, and the text of it. */
function write(details: object, message = 'it happened') {
  const texts: string[] = [];
  createLog(loadConfig(ENVIRONMENT), { write: (text) => void texts.push(text) }).debug(details, message);
  return { text: texts.join(''), line: JSON.parse(texts[0]!) as Record<string, unknown> };
}

test.each([
  ['a header', { headers: { authorization: 'Bearer abcdefgh1' } }, 'abcdefgh1'],
  ['a field deep inside', { call: { options: [{ apiKey: 'abcdefgh2' }] } }, 'abcdefgh2'],
  ['what a WebSocket sends first', { connectionParams: { any: 'abcdefgh3' } }, 'abcdefgh3'],
  ['credentials', { config: { credentials: { user: 'abcdefgh4' } } }, 'abcdefgh4'],
  ['a bearer token in a text', { reason: 'refused: Bearer abcdefgh.5' }, 'abcdefgh.5'],
  ['a password in an address', { reason: 'cannot reach https://me:abcdefgh6@host/x' }, 'abcdefgh6'],
  ['a token in a query', { url: 'https://host/x?a=1&access_token=abcdefgh7&b=2' }, 'abcdefgh7'],
  ['an API key of ours', { reason: 'no such key rl_abcdefgh8' }, 'rl_abcdefgh8'],
  ['the password of the database, decoded', { reason: 'login with p@ss-word-1' }, 'p@ss-word-1'],
  ['the bootstrap key', { reason: 'key admin-key-27182' }, 'admin-key-27182'],
  ['the key of keys', { reason: `sealed with ${'ab'.repeat(32)}` }, 'abababab'],
])('%s', (_, details, secret) => {
  const { text, line } = write(details);
  expect(text).not.toContain(secret);
  expect(text).toContain('[redacted]');
  expect(line['msg']).toBe('it happened');
});

test('an error is told by its text, its codes and its causes, without what drivers hang on it', () => {
  keepSecret({ token: 'shop-token "x" 31415' });
  const socket = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', port: 5432 });
  const fetchError = Object.assign(
    new TypeError('fetch failed with shop-token "x" 31415', { cause: socket }),
    {
      config: { headers: { authorization: 'Bearer hidden-token-1' } },
      client: { connectionParameters: { password: 'hidden-2' } },
      request: { body: 'hidden-3' },
    },
  );
  const { text, line } = write({ err: new Error('outer', { cause: fetchError }) });
  for (const secret of ['hidden', 'shop-token', '31415']) expect(text).not.toContain(secret);
  expect(line['err']).toMatchObject({
    type: 'Error',
    message: 'outer',
    stack: expect.stringContaining('redaction.test'),
    cause: {
      message: 'fetch failed with [redacted]',
      cause: { message: 'connect ECONNREFUSED', code: 'ECONNREFUSED', port: 5432 },
    },
  });
});

test('an error that causes itself, many errors in one and what is no error are told as well', () => {
  const loop = new Error('round');
  loop.cause = loop;
  const many = new AggregateError([new Error('one'), { password: 'hidden-4' }], 'some');
  const { text, line } = write({ err: loop, error: many });
  expect(text).not.toContain('hidden');
  expect(line['error']).toMatchObject({ errors: [{ message: 'one' }, { password: '[redacted]' }] });
});

test('a secret of digits alone does not break figures, and a short one is not looked for', () => {
  keepSecret(['271828', 'no']);
  const { line } = write({ at: 1_271_828_000, price: 271828.5, note: 'no pin 271828.' });
  expect(line).toMatchObject({ at: 1_271_828_000, price: 271828.5 });
  expect(redactText('pin 271828, no more')).toBe('pin [redacted], no more');
});

test('of many secrets the newest are known', () => {
  keepSecret('the-oldest-secret');
  for (let index = 0; index < 5_000; index += 1) keepSecret(`secret-number-${index}`);
  expect(redactText('secret-number-4999')).toBe('[redacted]');
  expect(redactText('the-oldest-secret')).toBe('the-oldest-secret');
});

test('what the process was started with is never forgotten, however many secrets it meets with', () => {
  keepOwnSecret('secret-of-the-process');
  keepSecret('secret-met-first');
  keepSecret(Array.from({ length: 2_000 }, (_, n) => `secret-met-later-${n}`));
  expect(redactText('secret-of-the-process')).toBe('[redacted]');
  // Of the others only so many are known.
  expect(redactText('secret-met-first')).toBe('secret-met-first');
  expect(write({ reason: 'key admin-key-27182 of webhook-secret-16180' }).text).not.toMatch(/27182|16180/);
});
