import { describe, expect, test } from 'vitest';
import { AppError } from '../../src/errors.js';
import { credentialsFromConnection, credentialsFromRequest, type Caller } from '../../src/server/auth.js';

function caller(headers: Caller['headers'], remoteAddress: string | undefined = '127.0.0.1'): Caller {
  return { remoteAddress, headers: { host: '127.0.0.1:4000', ...headers } };
}

function codeOf(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    return error instanceof AppError ? error.code : 'not an AppError';
  }
  return 'accepted';
}

describe('the token', () => {
  test('is read from the Authorization header', () => {
    expect(credentialsFromRequest(caller({ authorization: 'Bearer rl_abc' })).token).toBe('rl_abc');
    expect(credentialsFromRequest(caller({ authorization: 'bearer   rl_abc ' })).token).toBe('rl_abc');
    expect(credentialsFromRequest(caller({})).token).toBeNull();
  });

  test.each([
    '',
    'Bearer',
    'Bearer ',
    'Basic abc',
    'rl_abc',
    'Bearer a b',
    'Bearer é',
    `Bearer ${'x'.repeat(513)}`,
  ])('is refused in a malformed header: %j', (authorization) => {
    expect(codeOf(() => credentialsFromRequest(caller({ authorization })))).toBe('UNAUTHENTICATED');
  });

  test('is read from connectionParams, bare or as bearer, in any case of the name', () => {
    expect(credentialsFromConnection(caller({}), { authorization: 'Bearer rl_abc' }).token).toBe('rl_abc');
    expect(credentialsFromConnection(caller({}), { Authorization: 'rl_abc' }).token).toBe('rl_abc');
    expect(credentialsFromConnection(caller({}), undefined).token).toBeNull();
    expect(credentialsFromConnection(caller({}), { authorization: null }).token).toBeNull();
  });

  test.each([7, '', {}, ['Bearer a'], 'Basic a b'])(
    'is refused in malformed connectionParams: %j',
    (value) => {
      expect(codeOf(() => credentialsFromConnection(caller({}), { authorization: value }))).toBe(
        'UNAUTHENTICATED',
      );
    },
  );
});

describe('a caller is local', () => {
  test.each(['127.0.0.1', '127.8.9.1', '::1', '::ffff:127.0.0.1'])('from %s', (address) => {
    expect(credentialsFromRequest(caller({}, address)).local).toBe(true);
  });

  test.each(['127.0.0.1', '127.0.0.1:4000', 'localhost:4000', 'LOCALHOST', '[::1]:4000'])(
    'with Host: %s',
    (host) => {
      expect(credentialsFromRequest(caller({ host })).local).toBe(true);
    },
  );

  test.each(['http://localhost:5173', 'http://127.0.0.1', 'https://[::1]:1'])('with Origin: %s', (origin) => {
    expect(credentialsFromRequest(caller({ origin })).local).toBe(true);
  });
});

describe('a caller is not local', () => {
  test.each(['10.0.0.7', '192.168.1.1', '::ffff:10.0.0.7', 'fe80::1', '128.0.0.1'])('from %s', (address) => {
    expect(credentialsFromRequest(caller({}, address)).local).toBe(false);
  });

  test('from an address that is not known', () => {
    expect(credentialsFromRequest({ remoteAddress: undefined, headers: { host: 'localhost' } }).local).toBe(
      false,
    );
  });

  test.each([
    'evil.example',
    'localhost.evil.example:4000',
    '127.0.0.1.evil.example',
    'localhost@evil.example',
    'evil.example@localhost',
    '',
    'a b',
    '0.0.0.0',
  ])('with Host: %j', (host) => {
    expect(credentialsFromRequest(caller({ host })).local).toBe(false);
  });

  test.each(['https://evil.example', 'null', 'file://', '', 'http://localhost.evil.example'])(
    'with Origin: %j',
    (origin) => {
      expect(credentialsFromRequest(caller({ origin })).local).toBe(false);
    },
  );

  test('behind a proxy on this machine', () => {
    expect(credentialsFromRequest(caller({ 'x-forwarded-for': '10.0.0.7' })).local).toBe(false);
    expect(credentialsFromRequest(caller({ forwarded: 'for=10.0.0.7' })).local).toBe(false);
  });
});
