// The SQL surface as the document prints it: names, parameters by name and by position, defaults, result
// columns, and what each call does.
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
import { OpsSurface, surfaceOf } from './support.js';

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

const RUN_ID = /^run-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

async function columnsOf(text: string): Promise<string[]> {
  return (await client.query(text)).fields.map(({ name }) => name);
}

test('a run goes from queue_run to finish_run, each call with the result that the document prints', async () => {
  const queued = await client.query(
    `SELECT * FROM ops.queue_run(p_project_id := 'proj-123', p_env := 'staging', p_git_sha := 'abc123def456',
       p_git_ref := 'main', p_metadata := '{"trigger": "webhook", "author": "john@example.com"}'::jsonb)`,
  );
  expect(queued.fields.map(({ name }) => name)).toEqual(['run_id', 'status', 'queued_at']);
  const { run_id: runId } = queued.rows[0] as { run_id: string };
  expect(queued.rows[0]).toMatchObject({ run_id: expect.stringMatching(RUN_ID), status: 'queued' });
  expect(await ops.run(runId)).toMatchObject({
    project_id: 'proj-123',
    env_id: 'staging',
    claimed_by: null,
    started_at: null,
    finished_at: null,
  });

  const claimed = await client.query(`SELECT * FROM ops.claim_next_run(p_worker_id := 'worker-001')`);
  expect(claimed.fields.map(({ name }) => name)).toEqual([
    'run_id',
    'project_id',
    'env_id',
    'git_sha',
    'git_ref',
    'metadata',
  ]);
  expect(claimed.rows).toEqual([
    {
      run_id: runId,
      project_id: 'proj-123',
      env_id: 'staging',
      git_sha: 'abc123def456',
      git_ref: 'main',
      metadata: { trigger: 'webhook', author: 'john@example.com' },
    },
  ]);
  expect(await ops.run(runId)).toMatchObject({
    status: 'claimed',
    claimed_by: 'worker-001',
    started_at: expect.any(Date),
  });

  const { id } = await ops.row(
    `SELECT ops.append_event(p_run_id := $1, p_level := 'info', p_message := 'Starting',
       p_payload := '{"step": "build"}'::jsonb) AS id`,
    runId,
  );
  expect(await ops.run(runId)).toMatchObject({ status: 'running' });
  await client.query(
    `SELECT ops.finish_run(p_run_id := '${runId}', p_status := 'success', p_metadata := '{
       "exit_code": 0, "artifacts": [{"type": "image", "url": "ghcr.io/org/odoo-ce:abc123"}]}'::jsonb)`,
  );
  const [finished] = await ops.rows(
    `SELECT status, finished_at, metadata->'exit_code' AS exit_code, metadata->'artifacts' AS artifacts,
       metadata->>'author' AS author
     FROM ops.runs WHERE run_id = $1`,
    runId,
  );
  expect(finished).toEqual({
    status: 'success',
    finished_at: expect.any(Date),
    exit_code: 0,
    artifacts: [{ type: 'image', url: 'ghcr.io/org/odoo-ce:abc123' }],
    author: 'john@example.com',
  });

  const events = await ops.events(runId);
  expect(events.map(({ seq, type, level, actor }) => [seq, type, level, actor])).toEqual([
    [1, 'ops_run.create', 'info', expect.stringMatching(/^sql:/)],
    [2, 'ops_run.claim', 'info', 'worker-001'],
    [3, 'ops_run.start', 'info', expect.stringMatching(/^sql:/)],
    [4, 'log', 'info', expect.stringMatching(/^sql:/)],
    [5, 'ops_run.succeed', 'info', expect.stringMatching(/^sql:/)],
  ]);
  expect(events[1]!['payload']).toMatchObject({ worker_id: 'worker-001', from: 'queued', to: 'claimed' });
  expect(events[3]).toMatchObject({ event_id: id, message: 'Starting', payload: { step: 'build' } });
});

test('the worker script of the document: claim as JSON, finish without an event', async () => {
  const runId = await ops.queue();
  const [claim] = await ops.rows(
    `SELECT row_to_json(r) AS json FROM (SELECT * FROM ops.claim_next_run('worker-host')) r`,
  );
  expect(claim!['json']).toMatchObject({ run_id: runId, git_sha: 'abc123' });
  await ops.rows(`SELECT ops.finish_run($1, 'success')`, runId);
  const events = await ops.events(runId);
  expect(events.map(({ type }) => type)).toEqual([
    'ops_run.create',
    'ops_run.claim',
    'ops_run.start',
    'ops_run.succeed',
  ]);
});

test('a failure keeps its reason, in the metadata and in the ledger', async () => {
  const runId = await ops.running();
  await ops.finish(runId, 'failed', { error: 'Max retries exceeded', retry_count: 3 });
  const [run] = await ops.rows(
    `SELECT status, metadata->>'error' AS error, metadata->'retry_count' AS retries FROM ops.runs WHERE run_id = $1`,
    runId,
  );
  expect(run).toEqual({ status: 'failed', error: 'Max retries exceeded', retries: 3 });
  expect((await ops.events(runId)).at(-1)).toMatchObject({
    type: 'ops_run.fail',
    level: 'error',
    message: 'Max retries exceeded',
    payload: { from: 'running', to: 'failed', error: 'Max retries exceeded' },
  });
});

test.each(['queued', 'claimed', 'running'])(
  'a %s run is cancelled by hand with finish_run',
  async (state) => {
    const runId = await {
      queued: () => ops.queue('x'),
      claimed: () => ops.claimed(),
      running: () => ops.running(),
    }[state]!();
    expect(await ops.finish(runId, 'cancelled', { cancelled_by: 'user-456', reason: 'enough' })).toBe(
      'cancelled',
    );
    expect(await ops.run(runId)).toMatchObject({ status: 'cancelled', finished_at: expect.any(Date) });
    expect((await ops.events(runId)).at(-1)).toMatchObject({
      type: 'ops_run.cancel',
      message: 'enough',
      payload: { from: state, to: 'cancelled' },
    });
  },
);

test('the stale UPDATE of the document cancels what was claimed too long ago, and nothing else', async () => {
  const [stale, fresh, running] = [await ops.claimed(), await ops.claimed(), await ops.running()];
  await ops.rows(
    `UPDATE ops.runs SET queued_at = now() - interval '7 minutes', started_at = now() - interval '6 minutes'
     WHERE run_id = ANY($1)`,
    [stale, running],
  );
  const { rowCount } = await client.query(`
    UPDATE ops.runs
    SET status = 'cancelled',
        finished_at = NOW(),
        metadata = metadata || '{
            "cancelled_by": "system",
            "reason": "no event in five minutes"
        }'::jsonb
    WHERE status = 'claimed'
      AND started_at < NOW() - INTERVAL '5 minutes'`);
  expect(rowCount).toBe(1);
  expect(await ops.run(stale)).toMatchObject({
    status: 'cancelled',
    finished_at: expect.any(Date),
    metadata: { cancelled_by: 'system' },
  });
  expect((await ops.events(stale)).at(-1)).toMatchObject({ type: 'ops_run.cancel' });
  expect(await ops.run(fresh)).toMatchObject({ status: 'claimed' });
  expect(await ops.run(running)).toMatchObject({ status: 'running' });
});

test('the simplified claim of the document works by hand', async () => {
  const env = crypto.randomUUID();
  const runId = await ops.queue(env);
  await client.query('BEGIN');
  const [found] = await ops.rows(
    `SELECT run_id FROM ops.runs WHERE status = 'queued' AND env_id = $1 ORDER BY queued_at LIMIT 1
     FOR UPDATE SKIP LOCKED`,
    env,
  );
  expect(found).toEqual({ run_id: runId });
  await ops.rows(
    `UPDATE ops.runs SET status = 'claimed', claimed_by = 'worker-7', started_at = NOW() WHERE run_id = $1`,
    runId,
  );
  await client.query('COMMIT');
  expect(await ops.run(runId)).toMatchObject({ status: 'claimed', claimed_by: 'worker-7', attempts: 1 });
});

test('rows may be inserted into the views, by the rules of the functions', async () => {
  const given = `run-${crypto.randomUUID()}`;
  const inserted = await ops.row(
    `INSERT INTO ops.runs (run_id, project_id, env_id, git_sha, git_ref, status, idempotency_key, metadata)
     VALUES ($1, 'p', 'by-hand', 'abc', 'main', 'queued', 'insert-key', '{"a": 1}') RETURNING run_id, status`,
    given,
  );
  expect(inserted).toEqual({ run_id: given, status: 'queued' });
  expect(await ops.claim('worker-001', 'by-hand')).toBe(given);
  const event = await ops.row(
    `INSERT INTO ops.run_events (run_id, level, message, payload) VALUES ($1, 'warn', 'by hand', '{"b": 2}')
     RETURNING event_id, seq`,
    given,
  );
  expect((await ops.events(given)).at(-1)).toMatchObject({
    ...event,
    level: 'warn',
    message: 'by hand',
    payload: { b: 2 },
  });
  expect(await ops.run(given)).toMatchObject({ status: 'running' });
});

test('the monitoring queries of the document run unchanged', async () => {
  const [depth] = await ops.rows(`SELECT COUNT(*) AS queued_count FROM ops.runs WHERE status = 'queued'`);
  expect(Number(depth!['queued_count'])).toBeGreaterThanOrEqual(0);
  await ops.claimed('busy-worker');
  const active = await ops.rows(`
    SELECT claimed_by, COUNT(*) AS active_runs
    FROM ops.runs
    WHERE status IN ('claimed', 'running')
    GROUP BY claimed_by`);
  expect(active).toContainEqual({ claimed_by: 'busy-worker', active_runs: '1' });
  const [rate] = await ops.rows(`
    SELECT
        COUNT(*) FILTER (WHERE status = 'success') AS success_count,
        COUNT(*) FILTER (WHERE status = 'failed') AS failed_count,
        ROUND(100.0 * COUNT(*) FILTER (WHERE status = 'success') / NULLIF(COUNT(*), 0), 2) AS success_rate
    FROM ops.runs
    WHERE created_at > NOW() - INTERVAL '24 hours'
      AND status IN ('success', 'failed')`);
  expect(rate).toMatchObject({ success_count: '2', failed_count: '1', success_rate: '66.67' });
  const durations = await ops.rows(`
    SELECT
        status,
        AVG(EXTRACT(EPOCH FROM (finished_at - started_at))) AS avg_duration_seconds
    FROM ops.runs
    WHERE finished_at IS NOT NULL
      AND created_at > NOW() - INTERVAL '7 days'
    GROUP BY status`);
  expect(durations.map(({ status }) => status).sort()).toEqual(['cancelled', 'failed', 'success']);
});

test('the views have the columns of the document first', async () => {
  expect(await columnsOf('SELECT * FROM ops.runs')).toEqual(
    expect.arrayContaining([
      'run_id',
      'project_id',
      'env_id',
      'git_sha',
      'git_ref',
      'status',
      'claimed_by',
      'idempotency_key',
      'metadata',
      'queued_at',
      'started_at',
      'finished_at',
      'created_at',
      'updated_at',
    ]),
  );
  expect((await columnsOf('SELECT * FROM ops.run_events')).slice(0, 6)).toEqual([
    'event_id',
    'run_id',
    'level',
    'message',
    'payload',
    'created_at',
  ]);
});
