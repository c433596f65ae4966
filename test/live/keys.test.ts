// A key that is revoked while nobody can hear of it.
import { expect, test } from 'vitest';
import { DEFAULT_LIMITS } from '../../src/server/limits.js';
import { listApiKeys } from '../../src/store/api-key.js';
import { cutListeners } from '../events/support.js';
import { RawClient } from '../server/support.js';
import { TestApp } from '../support/app.js';

test('all keys are looked up again as soon as the listener is back', { timeout: 20_000 }, async () => {
  // The look that comes by the clock would be too late.
  expect(DEFAULT_LIMITS.reauthenticateMs).toBeGreaterThan(20_000);
  const app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
  try {
    const keys = [await app.createKey('VIEWER'), await app.createKey('OPERATOR')];
    const [revoked, kept] = await Promise.all(
      keys.map((authorization) => RawClient.connect(app, { authorization })),
    );
    const viewer = (await listApiKeys(app.db, 'default')).find(({ role }) => role === 'VIEWER')!;
    await app.db.transaction('test', async (connection) => {
      // No trigger, and so no bell.
      await connection.query('SET LOCAL session_replication_role = replica');
      await connection.query('UPDATE api_key SET revoked_at = clock_timestamp() WHERE id = $1', [viewer.id]);
    });
    await cutListeners(app.db);
    expect((await revoked!.closed).code).toBe(4401);
    expect(kept!.socket.readyState).toBe(kept!.socket.OPEN);
    kept!.socket.close();
  } finally {
    await app.stop();
  }
});
