// Keys whose rights change while they are used: revoked while nobody can hear of it, or another role and back.
import { expect, test } from 'vitest';
import { DEFAULT_LIMITS } from '../../src/server/limits.js';
import { listApiKeys } from '../../src/store/api-key.js';
import { appendLines, cutListeners, ledgerSeqs } from '../events/support.js';
import { RawClient } from '../server/support.js';
import { TestApp } from '../support/app.js';
import { makeRuleRun, seedWorld } from '../support/fixtures.js';

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

/** The events of a stream of one subscription, to its end. */
async function* readStream(
  url: string,
  key: string,
  runId: string,
  lastId: string,
): AsyncGenerator<StreamEvent> {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'text/event-stream',
      authorization: `Bearer ${key}`,
      'last-event-id': lastId,
    },
    body: JSON.stringify({ query: `subscription { runEvents(runId: "${runId}") { seq } }` }),
  });
  let text = '';
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    const events = (text + String(chunk)).split('\n\n');
    text = events.pop()!;
    for (const event of events) {
      const data = /^data: (.+)$/m.exec(event)?.[1];
      if (data !== undefined) yield { id: /^id: (.+)$/m.exec(event)?.[1] ?? null, data };
    }
  }
}

interface StreamEvent {
  readonly id: string | null;
  readonly data: string;
}

test('a role that is taken away ends runEvents before the line that it may not see, and given back goes on with it', async () => {
  const app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
  try {
    const { home } = await seedWorld(app.db);
    const { id: runId } = await makeRuleRun(app.db, home, { targets: [] });
    const key = await app.createKey('VIEWER');
    const setRole = (role: string): Promise<unknown> =>
      app.db.query(`UPDATE api_key SET role = $1 WHERE name = 'default VIEWER'`, [role]);
    const seen: string[] = [];
    let refused = false;
    for await (const { id, data } of readStream(app.url, key, runId, '')) {
      // Nothing comes after the refusal: the stream ends by itself.
      expect(refused).toBe(false);
      refused = data.includes('FORBIDDEN');
      if (id !== null) seen.push(id);
      if (seen.length === 1) await setRole('WORKER');
      if (!refused) await appendLines(app.db, runId, 1);
    }
    expect(refused).toBe(true);
    await setRole('VIEWER');
    const ledger = (await ledgerSeqs(app.db, runId)).map(String);
    expect(seen).toEqual(ledger.slice(0, seen.length));
    for await (const { id } of readStream(app.url, key, runId, seen.at(-1)!)) {
      seen.push(id!);
      if (seen.length === ledger.length) break;
    }
    expect(seen).toEqual(ledger);
  } finally {
    await app.stop();
  }
});
