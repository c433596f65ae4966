// The configuration: defaults, every fault named at once, secrets kept, and no environment that breaks it.
import { resolve } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isLoopbackHost, loadConfig } from '../src/config.js';
import { AppError } from '../src/errors.js';

function faultsOf(env: Record<string, string | undefined>): string[] {
  try {
    loadConfig(env);
    return [];
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    expect(error.code).toBe('INVALID_INPUT');
    const faults = error.details?.['faults'] as string[];
    for (const fault of faults) expect(error.message).toContain(fault);
    return faults;
  }
}

const INTEGERS = [
  'RUNLEDGER_RETRY_BASE_MS',
  'RUNLEDGER_RETRY_MAX_MS',
  'RUNLEDGER_THROTTLE_BASE_MS',
  'RUNLEDGER_CALL_TIMEOUT_MS',
  'RUNLEDGER_LEASE_MS',
  'RUNLEDGER_PROGRESS_INTERVAL_MS',
  'RUNLEDGER_STALE_CLAIM_MS',
  'RUNLEDGER_STALE_RUN_MS',
  'RUNLEDGER_CIRCUIT_OPEN_MS',
  'RUNLEDGER_STUCK_MS',
  'RUNLEDGER_WORKERS',
];

const HEX_KEY = 'ab'.repeat(32);
const BASE64_KEY = Buffer.alloc(32, 7).toString('base64');

describe('defaults', () => {
  test('an empty environment gives the documented configuration', () => {
    expect(loadConfig({})).toEqual({
      http: { host: '127.0.0.1', port: 4000 },
      database: { kind: 'embedded', dataDir: resolve('.runledger') },
      role: 'all',
      apiKey: null,
      secretKeys: [],
      webhookSecret: null,
      sandbox: { enabled: true, restorePerSecond: null },
      retry: { baseMs: 2000, maxMs: 64000, throttleBaseMs: 16000 },
      callTimeoutMs: 60000,
      leaseMs: 120000,
      progressIntervalMs: 100,
      staleClaimMs: 300000,
      staleRunMs: 1800000,
      circuitOpenMs: 60000,
      stuckMs: 600000,
      filesDir: null,
      workers: 4,
      logLevel: 'info',
      tracing: null,
    });
  });

  test('an empty string is the same as no variable', () => {
    const empty = {
      PORT: '',
      DATABASE_URL: '',
      RUNLEDGER_ROLE: '',
      RUNLEDGER_API_KEY: '',
      RUNLEDGER_TYPO: '',
    };
    expect(loadConfig(empty)).toEqual(loadConfig({}));
  });

  test('the sandbox is on by default only with the embedded database', () => {
    const DATABASE_URL = 'postgres://db.example/runledger';
    expect(loadConfig({ DATABASE_URL }).sandbox.enabled).toBe(false);
    expect(loadConfig({ DATABASE_URL, RUNLEDGER_SANDBOX: 'on' }).sandbox.enabled).toBe(true);
    expect(loadConfig({ RUNLEDGER_SANDBOX: 'off' }).sandbox.enabled).toBe(false);
  });

  test('nothing in it can be changed', () => {
    const config = loadConfig({});
    const parts = [config, config.http, config.database, config.sandbox, config.retry, config.secretKeys];
    for (const part of parts) expect(Object.isFrozen(part)).toBe(true);
  });
});

test('every variable reaches its place', () => {
  const config = loadConfig({
    HOST: '0.0.0.0',
    PORT: '0',
    DATABASE_URL: 'postgresql://user:secret@db.example:5433/runledger?sslmode=require',
    RUNLEDGER_ROLE: 'runner',
    RUNLEDGER_API_KEY: 'long-enough-key',
    RUNLEDGER_SECRET_KEY: `${HEX_KEY},${BASE64_KEY}`,
    RUNLEDGER_WEBHOOK_SECRET: 'long-enough-secret',
    RUNLEDGER_SANDBOX: 'on',
    RUNLEDGER_SANDBOX_RESTORE_PER_S: '12.5',
    RUNLEDGER_RETRY_BASE_MS: '1',
    RUNLEDGER_RETRY_MAX_MS: '2',
    RUNLEDGER_THROTTLE_BASE_MS: '3',
    RUNLEDGER_CALL_TIMEOUT_MS: '4',
    RUNLEDGER_LEASE_MS: '5',
    RUNLEDGER_PROGRESS_INTERVAL_MS: '7',
    RUNLEDGER_STALE_CLAIM_MS: '6',
    RUNLEDGER_STALE_RUN_MS: '9',
    RUNLEDGER_CIRCUIT_OPEN_MS: '7',
    RUNLEDGER_STUCK_MS: '10',
    RUNLEDGER_FILES_DIR: '/srv/feeds',
    RUNLEDGER_WORKERS: '8',
    RUNLEDGER_LOG_LEVEL: 'silent',
  });
  expect(config).toEqual({
    http: { host: '0.0.0.0', port: 0 },
    database: {
      kind: 'external',
      url: 'postgresql://user:secret@db.example:5433/runledger?sslmode=require',
    },
    role: 'runner',
    apiKey: 'long-enough-key',
    secretKeys: [HEX_KEY, BASE64_KEY],
    webhookSecret: 'long-enough-secret',
    sandbox: { enabled: true, restorePerSecond: 12.5 },
    retry: { baseMs: 1, maxMs: 2, throttleBaseMs: 3 },
    callTimeoutMs: 4,
    leaseMs: 5,
    progressIntervalMs: 7,
    staleClaimMs: 6,
    staleRunMs: 9,
    circuitOpenMs: 7,
    stuckMs: 10,
    filesDir: '/srv/feeds',
    workers: 8,
    logLevel: 'silent',
    tracing: null,
  });
});

describe('faults', () => {
  test('one error names every fault with the variable, the value and what is allowed', () => {
    const faults = faultsOf({ PORT: '70000', RUNLEDGER_ROLE: 'boss', RUNLEDGER_LEASE_MS: '1.5' });
    expect(faults).toEqual([
      'PORT: expected an integer from 0 to 65535, not "70000"',
      'RUNLEDGER_ROLE: expected one of all, api, runner, not "boss"',
      'RUNLEDGER_LEASE_MS: expected an integer from 1 to 86400000, not "1.5"',
    ]);
  });

  test.each(['abc', '-1', '0', '1e3', '0x10', ' 5', '5 ', '1.0', '9999999999999999999', 'NaN', 'Infinity'])(
    '%j is no positive integer',
    (value) => {
      for (const name of INTEGERS) {
        expect(faultsOf({ [name]: value })).toEqual([
          expect.stringContaining(`${name}: expected an integer`),
        ]);
      }
    },
  );

  test.each([
    ['HOST', '127.0.0.1:80'],
    ['HOST', 'http://localhost'],
    ['HOST', 'two hosts'],
    ['HOST', '999.1.1.1'],
    ['PORT', '65536'],
    ['RUNLEDGER_ROLE', 'API'],
    ['RUNLEDGER_SANDBOX', 'true'],
    ['RUNLEDGER_SANDBOX_RESTORE_PER_S', '0'],
    ['RUNLEDGER_SANDBOX_RESTORE_PER_S', '-2'],
    ['RUNLEDGER_WORKERS', '65'],
    ['RUNLEDGER_LOG_LEVEL', 'verbose'],
    ['RUNLEDGER_DATA_DIR', ' data'],
  ])('%s=%j is refused with its value', (name, value) => {
    expect(faultsOf({ [name]: value })).toEqual([expect.stringContaining(JSON.stringify(value))]);
  });

  test.each([
    ['DATABASE_URL', 'mysql://root:hunter2@db/x'],
    ['DATABASE_URL', 'postgres://user:hunter2@db:port/x'],
    ['RUNLEDGER_API_KEY', 'hunter2'],
    ['RUNLEDGER_API_KEY', 'hunter2 hunter2'],
    ['RUNLEDGER_SECRET_KEY', 'hunter2'],
    ['RUNLEDGER_SECRET_KEY', `${HEX_KEY}hunter2`],
    ['RUNLEDGER_SECRET_KEY', `${HEX_KEY},hunter2`],
    ['RUNLEDGER_SECRET_KEY', `hunter2,`],
  ])('a wrong %s does not show its value', (name, value) => {
    const faults = faultsOf({ [name]: value });
    expect(faults).toHaveLength(1);
    expect(faults[0]).toContain(name);
    expect(faults[0]).not.toContain('hunter2');
  });

  test('the retry delay may not start above its ceiling, also where one of the two is a default', () => {
    expect(faultsOf({ RUNLEDGER_RETRY_BASE_MS: '10', RUNLEDGER_RETRY_MAX_MS: '9' })).toHaveLength(1);
    expect(faultsOf({ RUNLEDGER_RETRY_MAX_MS: '1999' })).toHaveLength(1);
    expect(faultsOf({ RUNLEDGER_RETRY_BASE_MS: '9', RUNLEDGER_RETRY_MAX_MS: '9' })).toEqual([]);
  });

  test('an unknown RUNLEDGER_ variable is refused, with the nearest name if one is near', () => {
    expect(faultsOf({ RUNLEDGER_RETRY_BASE_SM: '5' })).toEqual([
      'RUNLEDGER_RETRY_BASE_SM: there is no such variable; did you mean RUNLEDGER_RETRY_BASE_MS?',
    ]);
    expect(faultsOf({ RUNLEDGER_FAVOURITE_COLOUR: 'red' })).toEqual([
      'RUNLEDGER_FAVOURITE_COLOUR: there is no such variable',
    ]);
    expect(faultsOf({ RUNLEDGER_TEST_DATABASE_URL: 'x', PATH: '/bin', RUN: '1' })).toEqual([]);
  });
});

describe('a host that others can reach', () => {
  test('needs a key in embedded mode', () => {
    expect(faultsOf({ HOST: '0.0.0.0' })).toEqual([expect.stringContaining('RUNLEDGER_API_KEY')]);
    expect(faultsOf({ HOST: '0.0.0.0', RUNLEDGER_API_KEY: 'long-enough-key' })).toEqual([]);
    expect(faultsOf({ HOST: '0.0.0.0', DATABASE_URL: 'postgres://db/x' })).toEqual([]);
  });

  test('is not reported on top of a fault of the variables it depends on', () => {
    expect(faultsOf({ HOST: '0.0.0.0', RUNLEDGER_API_KEY: 'short' })).toHaveLength(1);
    expect(faultsOf({ HOST: '0.0.0.0', DATABASE_URL: 'nonsense' })).toHaveLength(1);
  });

  test.each([
    '127.0.0.1',
    '127.9.9.9',
    'localhost',
    'LOCALHOST',
    '::1',
    '[::1]',
    '0:0:0:0:0:0:0:1',
    '::ffff:127.0.0.1',
  ])('%s is loopback', (host) => {
    expect(isLoopbackHost(host)).toBe(true);
  });

  test.each([
    '0.0.0.0',
    '::',
    '10.0.0.1',
    '128.0.0.1',
    'localhost.example',
    '127.0.0.1.example',
    '::2',
    'fe80::1%lo',
    '',
  ])('%j is not loopback', (host) => {
    expect(isLoopbackHost(host)).toBe(false);
  });
});

describe('any environment', () => {
  const names = fc.constantFrom(
    'HOST',
    'PORT',
    'DATABASE_URL',
    'RUNLEDGER_DATA_DIR',
    'RUNLEDGER_ROLE',
    'RUNLEDGER_API_KEY',
    'RUNLEDGER_SECRET_KEY',
    'RUNLEDGER_SANDBOX',
    'RUNLEDGER_SANDBOX_RESTORE_PER_S',
    'RUNLEDGER_LOG_LEVEL',
    ...INTEGERS,
  );
  const values = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.integer().map(String),
    fc.double().map(String),
  );

  test('gives a configuration or an AppError, never anything else', () => {
    const environments = fc.dictionary(
      fc.oneof(
        names,
        fc.string(),
        fc.string().map((tail) => `RUNLEDGER_${tail}`),
      ),
      values,
    );
    fc.assert(fc.property(environments, (env) => void faultsOf(env)));
  });

  test('has at most one fault per variable, and blames only what is set or contradicts a default', () => {
    fc.assert(
      fc.property(fc.dictionary(names, values), (env) => {
        const blamed = faultsOf(env).map((fault) => fault.slice(0, fault.indexOf(':')));
        expect(new Set(blamed).size).toBe(blamed.length);
        for (const name of blamed) expect([...Object.keys(env), 'RUNLEDGER_RETRY_BASE_MS']).toContain(name);
      }),
    );
  });

  test('accepts exactly the integers of the range', () => {
    fc.assert(
      fc.property(fc.integer({ min: -10, max: 70_000 }), (port) => {
        const accepted = faultsOf({ PORT: String(port) }).length === 0;
        expect(accepted).toBe(port >= 0 && port <= 65_535);
        if (accepted) expect(loadConfig({ PORT: String(port) }).http.port).toBe(port);
      }),
    );
  });
});
