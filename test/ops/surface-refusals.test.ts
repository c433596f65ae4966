// What the SQL surface refuses, with which SQLSTATE, and that a refusal leaves every row as it was; what is
// the same run or event again; and what a transaction that is rolled back leaves behind.
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
import { countRows } from '../store/rows.js';
import { OpsSurface, picture, refusalOf, surfaceOf, type Row } from './support.js';

let database: TestDatabase;
let client: pg.Client;
let ops: OpsSurface;

beforeAll(async () => {
  database = await createTestDatabase();
  client = await connect(database.url);
  ops = surfaceOf(client);
});
afterAll(async () => {
  await client.end();
  await database.drop();
});

async function expectUnchanged(runId: string, work: () => Promise<void>): Promise<void> {
  const before = await picture(database.db, runId);
  await work();
  expect(await picture(database.db, runId)).toEqual(before);
}

const FINISHED = ['success', 'failed', 'cancelled'];

describe.each(FINISHED)('a run that is %s', (state) => {
  test.each(FINISHED)('is not finished again as %s', async (status) => {
    const runId = await ops.running();
    await ops.finish(runId, state);
    await expectUnchanged(runId, async () => {
      const { code, detail } = await refusalOf(ops.finish(runId, status));
      expect(code).toBe('RL001');
      expect(detail).toMatchObject({ machine: 'ops_run', from: state.toUpperCase(), allowed: [] });
    });
  });

  test('takes no event, from its worker neither', async () => {
    const runId = await ops.running();
    await ops.finish(runId, state);
    await expectUnchanged(runId, async () => {
      expect((await refusalOf(ops.append(runId, 'late'))).code).toBe('RL001');
      expect((await refusalOf(ops.append(runId, 'late', 'info', 'worker-001'))).code).toBe('RL001');
    });
  });
});

test('a queued run neither succeeds nor takes an event', async () => {
  const runId = await ops.queue('nobody');
  await expectUnchanged(runId, async () => {
    expect(await refusalOf(ops.finish(runId, 'success'))).toMatchObject({
      code: 'RL001',
      detail: { event: 'succeed', from: 'QUEUED', allowed: ['cancel', 'claim'] },
    });
    expect((await refusalOf(ops.append(runId, 'hello'))).code).toBe('RL001');
  });
});

test('a worker that names itself must hold the claim', async () => {
  const runId = await ops.running('worker-001');
  await expectUnchanged(runId, async () => {
    expect((await refusalOf(ops.append(runId, 'mine', 'info', 'worker-002'))).code).toBe('RL004');
    expect((await refusalOf(ops.finish(runId, 'success', {}, 'worker-002'))).code).toBe('RL004');
    const heartbeat = ops.rows(`SELECT ops.heartbeat($1, 'worker-002')`, runId);
    expect((await refusalOf(heartbeat)).code).toBe('RL004');
  });
  await ops.append(runId, 'mine', 'info', 'worker-001');
  expect(await ops.finish(runId, 'success', {}, 'worker-001')).toBe('success');
  expect((await ops.events(runId)).at(-1)).toMatchObject({ actor: 'worker-001' });
});

test('an UPDATE by hand cannot take over a claim or skip a state', async () => {
  const runId = await ops.running('worker-001');
  await expectUnchanged(runId, async () => {
    const theft = ops.rows(`UPDATE ops.runs SET claimed_by = 'thief' WHERE run_id = $1`, runId);
    expect((await refusalOf(theft)).code).toBe('RL004');
    const back = ops.rows(`UPDATE ops.runs SET status = 'claimed' WHERE run_id = $1`, runId);
    expect((await refusalOf(back)).code).toBe('RL001');
    expect((await refusalOf(ops.rows('DELETE FROM ops.runs WHERE run_id = $1', runId))).code).toBe('RL003');
    await refusalOf(ops.rows(`UPDATE ops.run_events SET message = '' WHERE run_id = $1`, runId));
    await refusalOf(ops.rows('DELETE FROM ops.run_events WHERE run_id = $1', runId));
  });
});

test.each<[string, string]>([
  ['an unknown level', `SELECT ops.append_event($1, 'fatal', 'x')`],
  ['no level', `SELECT ops.append_event($1, NULL, 'x')`],
  ['no message', `SELECT ops.append_event($1, 'info', NULL)`],
  ['a payload that is no object', `SELECT ops.append_event($1, 'info', 'x', '[1]')`],
  ['an unknown status', `SELECT ops.finish_run($1, 'done')`],
  ['a status that is no end', `SELECT ops.finish_run($1, 'running')`],
  ['metadata that is no object', `SELECT ops.finish_run($1, 'success', '"x"')`],
  ['a worker without a name', `SELECT ops.claim_next_run('') WHERE $1 <> ''`],
  ['a worker that passes for the system', `SELECT ops.claim_next_run('system') WHERE $1 <> ''`],
  ['a worker that passes for a key', `SELECT ops.claim_next_run('key:admin') WHERE $1 <> ''`],
  ['a project without a name', `SELECT ops.queue_run(' ', 'e', NULL, NULL) WHERE $1 <> ''`],
  ['a long env', `SELECT ops.queue_run('p', repeat('x', 256), NULL, NULL) WHERE $1 <> ''`],
  [
    'an unknown way with stale runs',
    `SELECT ops.queue_run('p', 'e', NULL, NULL, p_on_stale := 'x') WHERE $1 <> ''`,
  ],
  ['no attempts', `SELECT ops.queue_run('p', 'e', NULL, NULL, p_max_attempts := 0) WHERE $1 <> ''`],
])('%s is not valid', async (_what, text) => {
  const runId = await ops.running();
  const before = await countRows(database.db);
  await expectUnchanged(runId, async () => {
    expect(await refusalOf(ops.rows(text, runId))).toMatchObject({
      code: 'RL005',
      detail: { field: expect.any(String) },
    });
  });
  expect(await countRows(database.db)).toEqual(before);
});

test.each<[string, string]>([
  ['a message of 1 MB', `SELECT ops.append_event($1, 'info', repeat('x', 1000000))`],
  [
    'a payload of 1 MB',
    `SELECT ops.append_event($1, 'info', 'x', jsonb_build_object('x', repeat('x', 1000000)))`,
  ],
  ['metadata of 1 MB', `SELECT ops.finish_run($1, 'success', jsonb_build_object('x', repeat('x', 1000000)))`],
])('%s is too long, and the answer says how long it may be', async (_what, text) => {
  const runId = await ops.running();
  await expectUnchanged(runId, async () => {
    const { code, detail } = await refusalOf(ops.rows(text, runId));
    expect(code).toBe('RL008');
    expect(Number(detail!['given'])).toBeGreaterThanOrEqual(1_000_000);
    expect(Number(detail!['limit'])).toBeLessThan(1_000_000);
  });
});

test('a message as long as is taken is kept whole', async () => {
  const runId = await ops.running();
  await ops.append(runId, 'ü'.repeat(32_768));
  expect((await ops.events(runId)).at(-1)!['message']).toBe('ü'.repeat(32_768));
});

test.each(['run-00000000-0000-0000-0000-000000000000', 'run-001', 'x', '', "'; DROP TABLE ops_run; --"])(
  'there is no run "%s"',
  async (runId) => {
    const calls = [
      () => ops.append(runId, 'x'),
      () => ops.finish(runId, 'success'),
      () => ops.rows(`SELECT ops.heartbeat($1, 'worker-001')`, runId),
    ];
    for (const call of calls) expect((await refusalOf(call())).code).toBe('RL006');
    expect(await ops.rows('SELECT * FROM ops.runs WHERE run_id = $1', runId)).toEqual([]);
  },
);

test('the same idempotency key is the same run, whatever has become of it', async () => {
  const env = crypto.randomUUID();
  const runId = await ops.queue(env, 'deploy-1');
  expect(await ops.queue(env, 'deploy-1')).toBe(runId);
  await ops.claim('worker-001', env);
  await ops.finish(runId, 'success');
  const before = await picture(database.db, runId);
  const again = await ops.row(
    `SELECT * FROM ops.queue_run('storefront', 'staging', 'abc', 'main', '{}'::jsonb, 'deploy-1')`,
  );
  expect(again).toMatchObject({ run_id: runId, status: 'success' });
  expect(await picture(database.db, runId)).toEqual(before);
});

test('the same level and message within ten seconds is the same event, and a sign of life', async () => {
  const runId = await ops.claimed();
  const first = await ops.append(runId, 'step 1');
  const { heartbeat_at: earlier } = await ops.run(runId);
  expect(await ops.append(runId, 'step 1')).toBe(first);
  expect((await ops.run(runId))['heartbeat_at'] as Date).not.toEqual(earlier);
  expect(await ops.append(runId, 'step 1', 'warn')).not.toBe(first);
  expect(await ops.append(runId, 'step 2')).not.toBe(first);
  expect(await ops.append(runId, 'step 1')).toBe(first);
  expect((await ops.events(runId)).filter(({ type }) => type === 'log')).toHaveLength(3);
});

test('after ten seconds it is another event', async () => {
  const runId = await ops.claimed();
  const first = await ops.append(runId, 'step 1');
  await ageRun(runId, 11);
  expect(await ops.append(runId, 'step 1')).not.toBe(first);
});

test('with a key of its own an event is told by that alone', async () => {
  const runId = await ops.claimed();
  const append = (key: string) =>
    ops.row(`SELECT ops.append_event($1, 'info', '.', p_idempotency_key := $2) AS id`, runId, key);
  const first = await append('chunk-1');
  expect(await append('chunk-2')).not.toEqual(first);
  await ageRun(runId, 600);
  expect(await append('chunk-1')).toEqual(first);
});

/** Lets time pass for a run and its ledger, which nobody can change while its guard is in place. */
async function ageRun(runId: string, seconds: number): Promise<void> {
  await client.query(
    `UPDATE ops.runs SET queued_at = queued_at - $2 * interval '1 second', started_at = started_at - $2 * interval '1 second'
     WHERE run_id = $1`,
    [runId, seconds],
  );
  await client.query('ALTER TABLE run_event DISABLE TRIGGER run_event_append_only');
  await client.query(
    `UPDATE run_event SET created_at = created_at - $2 * interval '1 second' WHERE run_id = substr($1, 5)::uuid`,
    [runId, seconds],
  );
  await client.query('ALTER TABLE run_event ENABLE TRIGGER run_event_append_only');
}

test('what was queued in a transaction that is rolled back never existed', async () => {
  const before = await countRows(database.db);
  await client.query('BEGIN');
  const runId = await ops.queue('rolled-back', 'rolled-back');
  expect(await ops.run(runId)).toMatchObject({ status: 'queued' });
  await client.query('ROLLBACK');
  expect(await countRows(database.db)).toEqual(before);
  expect(await ops.claim('worker-001', 'rolled-back')).toBeNull();
  const again = await ops.queue('rolled-back', 'rolled-back');
  expect(again).not.toBe(runId);
});

test('a claim that is rolled back is free again', async () => {
  const env = crypto.randomUUID();
  const runId = await ops.queue(env);
  await client.query('BEGIN');
  expect(await ops.claim('worker-001', env)).toBe(runId);
  await client.query('ROLLBACK');
  expect(await ops.claim('worker-002', env)).toBe(runId);
  expect((await ops.run(runId)) as Row).toMatchObject({ claimed_by: 'worker-002', attempts: 1 });
});
