// The SQL surface as a worker with psql meets it: names, parameters by name and by position, defaults, result
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

test('a run goes from queue_run to finish_run, each call with its result', async () => {
  const queued = await client.query(
    `SELECT * FROM ops.queue_run(p_git_ref := 'release', p_git_sha := '7c0ffee', p_project_id := 'storefront',
       p_metadata := '{"asked_by": "mira", "ticket": 88}'::jsonb, p_env := 'canary')`,
  );
  expect(queued.fields.map(({ name }) => name)).toEqual(['run_id', 'status', 'queued_at']);
  const { run_id: runId } = queued.rows[0] as { run_id: string };
  expect(queued.rows[0]).toMatchObject({ run_id: expect.stringMatching(RUN_ID), status: 'queued' });
  expect(await ops.run(runId)).toMatchObject({
    project_id: 'storefront',
    env_id: 'canary',
    claimed_by: null,
    started_at: null,
    finished_at: null,
  });

  const claimed = await client.query(`SELECT * FROM ops.claim_next_run(p_worker_id := 'builder-9')`);
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
      project_id: 'storefront',
      env_id: 'canary',
      git_sha: '7c0ffee',
      git_ref: 'release',
      metadata: { asked_by: 'mira', ticket: 88 },
    },
  ]);
  expect(await ops.run(runId)).toMatchObject({
    status: 'claimed',
    claimed_by: 'builder-9',
    started_at: expect.any(Date),
  });

  const { id } = await ops.row(
    `SELECT ops.append_event(p_payload := '{"stage": "pack"}'::jsonb, p_message := 'packing', p_level := 'info',
       p_run_id := $1) AS id`,
    runId,
  );
  expect(await ops.run(runId)).toMatchObject({ status: 'running' });
  await client.query(
    `SELECT ops.finish_run(p_metadata := '{"bundles": [{"path": "out/shop.tgz", "bytes": 512}], "warnings": 0}'::jsonb,
       p_status := 'success', p_run_id := '${runId}')`,
  );
  const [finished] = await ops.rows(
    `SELECT r.metadata->>'asked_by' AS asked_by, r.metadata->'warnings' AS warnings, r.metadata->'bundles' AS bundles,
       r.finished_at, r.status
     FROM ops.runs AS r WHERE r.run_id = $1`,
    runId,
  );
  expect(finished).toEqual({
    status: 'success',
    finished_at: expect.any(Date),
    warnings: 0,
    bundles: [{ path: 'out/shop.tgz', bytes: 512 }],
    asked_by: 'mira',
  });

  const events = await ops.events(runId);
  expect(events.map(({ seq, type, level, actor }) => [seq, type, level, actor])).toEqual([
    [1, 'ops_run.create', 'info', expect.stringMatching(/^sql:/)],
    [2, 'ops_run.claim', 'info', 'builder-9'],
    [3, 'ops_run.start', 'info', expect.stringMatching(/^sql:/)],
    [4, 'log', 'info', expect.stringMatching(/^sql:/)],
    [5, 'ops_run.succeed', 'info', expect.stringMatching(/^sql:/)],
  ]);
  expect(events[1]!['payload']).toMatchObject({ worker_id: 'builder-9', from: 'queued', to: 'claimed' });
  expect(events[3]).toMatchObject({ event_id: id, message: 'packing', payload: { stage: 'pack' } });
});

test('a worker in a shell: claim as JSON, finish without an event', async () => {
  const runId = await ops.queue();
  const [claim] = await ops.rows(
    `SELECT row_to_json(mine) AS json FROM (SELECT * FROM ops.claim_next_run('laptop')) AS mine`,
  );
  expect(claim!['json']).toMatchObject({ run_id: runId, git_sha: '0ddba11' });
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
  await ops.finish(runId, 'failed', { error: 'the disk is full', tries: 4 });
  const [run] = await ops.rows(
    `SELECT metadata->'tries' AS tries, metadata->>'error' AS error, status FROM ops.runs WHERE run_id = $1`,
    runId,
  );
  expect(run).toEqual({ status: 'failed', error: 'the disk is full', tries: 4 });
  expect((await ops.events(runId)).at(-1)).toMatchObject({
    type: 'ops_run.fail',
    level: 'error',
    message: 'the disk is full',
    payload: { from: 'running', to: 'failed', error: 'the disk is full' },
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
    expect(await ops.finish(runId, 'cancelled', { cancelled_by: 'mira', reason: 'enough' })).toBe(
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

test('an UPDATE of the view cancels what was claimed too long ago, and nothing else', async () => {
  const [stale, fresh, running] = [await ops.claimed(), await ops.claimed(), await ops.running()];
  await ops.rows(
    `UPDATE ops.runs SET queued_at = now() - interval '7 minutes', started_at = now() - interval '6 minutes'
     WHERE run_id = ANY($1)`,
    [stale, running],
  );
  const { rowCount } = await client.query(`
    UPDATE ops.runs AS late
    SET metadata = late.metadata || '{"reason": "never began", "cancelled_by": "watchdog"}'::jsonb,
      status = 'cancelled', finished_at = now()
    WHERE late.started_at < now() - interval '5 minutes' AND late.status = 'claimed'`);
  expect(rowCount).toBe(1);
  expect(await ops.run(stale)).toMatchObject({
    status: 'cancelled',
    finished_at: expect.any(Date),
    metadata: { cancelled_by: 'watchdog' },
  });
  expect((await ops.events(stale)).at(-1)).toMatchObject({ type: 'ops_run.cancel' });
  expect(await ops.run(fresh)).toMatchObject({ status: 'claimed' });
  expect(await ops.run(running)).toMatchObject({ status: 'running' });
});

test('a run is claimed by hand, by a lock and an UPDATE', async () => {
  const env = crypto.randomUUID();
  const runId = await ops.queue(env);
  await client.query('BEGIN');
  const [found] = await ops.rows(
    `SELECT next.run_id FROM ops.runs AS next WHERE next.env_id = $1 AND next.status = 'queued'
     ORDER BY next.queued_at, next.run_id FOR UPDATE SKIP LOCKED LIMIT 1`,
    env,
  );
  expect(found).toEqual({ run_id: runId });
  await ops.rows(
    `UPDATE ops.runs SET started_at = now(), claimed_by = 'forklift', status = 'claimed' WHERE run_id = $1`,
    runId,
  );
  await client.query('COMMIT');
  expect(await ops.run(runId)).toMatchObject({ status: 'claimed', claimed_by: 'forklift', attempts: 1 });
});

test('rows may be inserted into the views, by the rules of the functions', async () => {
  const given = `run-${crypto.randomUUID()}`;
  const inserted = await ops.row(
    `INSERT INTO ops.runs (metadata, idempotency_key, env_id, project_id, git_ref, git_sha, run_id, status)
     VALUES ('{"a": 1}', 'insert-key', 'by-hand', 'p', 'trunk', 'c0de', $1, 'queued') RETURNING status, run_id`,
    given,
  );
  expect(inserted).toEqual({ run_id: given, status: 'queued' });
  expect(await ops.claim('worker-001', 'by-hand')).toBe(given);
  const event = await ops.row(
    `INSERT INTO ops.run_events (payload, message, run_id, level) VALUES ('{"b": 2}', 'by hand', $1, 'warn')
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

test('operators ask the views: depth, who is busy, success, durations', async () => {
  const depth = () => ops.row(`SELECT count(*)::int AS waiting FROM ops.runs AS r WHERE r.status = 'queued'`);
  const { waiting } = await depth();
  await ops.queue('depth');
  expect(await depth()).toEqual({ waiting: Number(waiting) + 1 });
  await ops.claimed('busy-worker');
  const active = await ops.rows(`
    SELECT count(*) AS runs, r.claimed_by AS worker FROM ops.runs AS r
    WHERE r.status IN ('running', 'claimed') GROUP BY r.claimed_by`);
  expect(active).toContainEqual({ worker: 'busy-worker', runs: '1' });
  const [rate] = await ops.rows(`
    SELECT round(count(*) FILTER (WHERE r.status = 'success') * 100.0 / NULLIF(count(*), 0), 2) AS percent,
      count(*) FILTER (WHERE r.status = 'failed') AS bad, count(*) FILTER (WHERE r.status = 'success') AS good
    FROM ops.runs AS r
    WHERE r.status IN ('failed', 'success') AND r.created_at > now() - interval '24 hours'`);
  expect(rate).toEqual({ good: '2', bad: '1', percent: '66.67' });
  const durations = await ops.rows(`
    SELECT avg(extract(epoch FROM (r.finished_at - r.started_at))) AS seconds, r.status FROM ops.runs AS r
    WHERE r.created_at > now() - interval '7 days' AND r.finished_at IS NOT NULL GROUP BY r.status`);
  expect(durations.map(({ status }) => status).sort()).toEqual(['cancelled', 'failed', 'success']);
});

test('the views have the columns of the interface first', async () => {
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
