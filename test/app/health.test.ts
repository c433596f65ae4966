// The server as its operator's tools see it: live, ready, and open only to those with a key.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, TestApp } from '../support/app.js';

let app: TestApp;

beforeAll(async () => {
  app = await TestApp.start();
});
afterAll(() => app.stop());

test('is live and ready once it listens', async () => {
  const ready = await fetch(new URL('/readyz', app.url));
  expect(ready.status).toBe(200);
  expect(await ready.json()).toEqual({ ready: true, checks: { database: 'ok', listener: 'ok' } });
  expect((await fetch(new URL('/healthz', app.url))).status).toBe(200);
});

describe('with DATABASE_URL a key is needed, also on this machine', () => {
  const asked = '{ stateMachines { name } }';

  test('none: UNAUTHENTICATED', async () => {
    const { errors } = await app.request(asked, {}, null);
    expect(errors?.[0]?.extensions['code']).toBe('UNAUTHENTICATED');
  });

  test('an unknown one: UNAUTHENTICATED', async () => {
    const { errors } = await app.request(asked, {}, 'rl_unknown');
    expect(errors?.[0]?.extensions['code']).toBe('UNAUTHENTICATED');
  });

  test('the configured one, or one that was made: an answer', async () => {
    expect((await app.request(asked)).data.stateMachines).not.toHaveLength(0);
    const key = await app.createKey('VIEWER', 'other');
    expect((await app.request(asked, {}, key)).data.stateMachines).not.toHaveLength(0);
  });
});

test('a server that others could reach does not start without any key', async () => {
  await app.db.query('UPDATE api_key SET revoked_at = now()');
  const open = { HOST: '0.0.0.0', RUNLEDGER_API_KEY: '' };
  await expect(startApp(app.database.url, open)).rejects.toThrow(/no API key/);
});
