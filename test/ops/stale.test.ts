// Ops runs whose worker fell silent: which ones are ended, how, and what is left to read about it.
import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Maintenance } from '../../src/runner/maintenance.js';
import { staleOpsRunJob } from '../../src/runner/stale-ops-runs.js';
import { endStaleOpsRuns } from '../../src/store/stale-ops-run.js';
import { finishOpsRun } from '../../src/store/ops-run.js';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
import { viewerOf } from '../support/fixtures.js';
import { faultOf } from '../store/rows.js';
import { OpsSurface, picture, surfaceOf, type Row } from './support.js';

let database: TestDatabase;
let client: pg.Client;
let ops: OpsSurface;

const PATIENCE = { claimMs: 300_000, silenceMs: 900_000 };

beforeAll(async () => {
  database = await createTestDatabase();
  client = await connect(database.url);
  ops = surfaceOf(client);
});
beforeEach(() => ops.rows(`UPDATE ops.runs SET status = 'cancelled' WHERE finished_at IS NULL`));
afterAll(async () => {
  await client.end();
  await database.drop();
});

/** Lets minutes pass for a run. */
async function age(runId: string, minutes: number): Promise<void> {
  const text = ['created_at', 'queued_at', 'available_at', 'started_at', 'heartbeat_at']
    .map((column) => `${column} = ${column} - $2 * interval '1 minute'`)
    .join(', ');
  await ops.rows(`UPDATE ops.runs SET ${text} WHERE run_id = $1`, runId, minutes);
}

async function queueAgain(maxAttempts = 3): Promise<string> {
  const text = `SELECT run_id FROM ops.queue_run('p', 'again', NULL, NULL, p_on_stale := 'requeue', p_max_attempts := $1)`;
  return String((await ops.row(text, maxAttempts))['run_id']);
}

const claim = (workerId: string) => ops.claim(workerId, 'again');

test('a claim without a word for five minutes is cancelled by the system, with reason, worker and time', async () => {
  const runId = await ops.claimed('worker-lost');
  await age(runId, 6);
  const { started_at: claimedAt } = await ops.run(runId);
  expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 1, requeued: 0 });
  const run = await ops.run(runId);
  expect(run).toMatchObject({ status: 'cancelled', claimed_by: 'worker-lost' });
  const metadata = run['metadata'] as Row;
  expect(metadata).toMatchObject({
    cancelled_by: 'system',
    reason: 'no event from worker-lost within 300 s of its claim',
    original_worker: 'worker-lost',
  });
  expect(new Date(String(metadata['claimed_at']))).toEqual(claimedAt);
  expect(Date.parse(String(metadata['timestamp']))).not.toBeNaN();
  expect((await ops.events(runId)).at(-1)).toMatchObject({
    type: 'ops_run.cancel',
    actor: 'system',
    message: metadata['reason'],
  });
});

test('what is within its time is left alone', async () => {
  const claimed = await ops.claimed();
  await age(claimed, 4);
  const running = await ops.running();
  await age(running, 14);
  const beating = await ops.running();
  await age(beating, 60);
  await ops.rows(`SELECT ops.heartbeat($1, 'worker-001')`, beating);
  const speaking = await ops.running();
  await age(speaking, 60);
  await ops.append(speaking, 'still here');
  const queued = await ops.queue('forgotten');
  await age(queued, 600);
  const before = await Promise.all(
    [claimed, running, beating, speaking, queued].map((id) => picture(database.db, id)),
  );
  expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 0, requeued: 0 });
  const after = await Promise.all(
    [claimed, running, beating, speaking, queued].map((id) => picture(database.db, id)),
  );
  expect(after).toEqual(before);
});

test('a run without a sign of life is cancelled, unless it was queued to be tried again', async () => {
  const runId = await ops.running('worker-lost');
  await age(runId, 16);
  expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 1, requeued: 0 });
  expect(await ops.run(runId)).toMatchObject({
    status: 'cancelled',
    metadata: { reason: 'no sign of life from worker-lost for 900 s', original_worker: 'worker-lost' },
  });
});

test('a clock that leaps makes nobody silent: whoever works is given time for a sign of life', async () => {
  const [speaks, silent] = [await ops.running('worker-alive'), await ops.running('worker-lost')];
  await endStaleOpsRuns(database.db, PATIENCE);
  // By the new time the last look was an hour ago, and so was everything else.
  await age(speaks, 60);
  await age(silent, 60);
  await ops.rows(`UPDATE clock_mark SET silence_looked_at = silence_looked_at - interval '1 hour'`);
  for (let look = 1; look <= 2; look += 1) {
    expect(await endStaleOpsRuns(database.db, PATIENCE)).toMatchObject({
      cancelled: 0,
      heldUntil: expect.any(Date) as Date,
    });
  }
  await ops.rows(`SELECT ops.heartbeat($1, 'worker-alive')`, speaks);
  await ops.rows(`UPDATE clock_mark SET silence_held_until = now() - interval '1 second'`);
  expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 1, requeued: 0 });
  expect(await ops.run(speaks)).toMatchObject({ status: 'running' });
  // Held for longer than anybody holds it: by a clock that was put right since.
  await ops.rows(`UPDATE clock_mark SET silence_held_until = now() + interval '1 year'`);
  expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 0, requeued: 0 });
});

test('a run that somebody is just writing to is not silent', async () => {
  const runId = await ops.claimed();
  await age(runId, 6);
  const other = await connect(database.url);
  await other.query('BEGIN');
  await surfaceOf(other).append(runId, 'just in time');
  expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 0, requeued: 0 });
  await other.query('COMMIT');
  await other.end();
  expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 0, requeued: 0 });
  expect(await ops.run(runId)).toMatchObject({ status: 'running' });
});

describe('queued again', () => {
  test('with a count, after a pause that doubles, until its attempts are used up', async () => {
    const runId = await queueAgain(3);
    const pauses: number[] = [];
    for (const retry of [1, 2]) {
      expect(await claim(`worker-${retry}`)).toBe(runId);
      await ops.append(runId, 'began');
      await age(runId, 16);
      const before = Date.now();
      expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 0, requeued: 1 });
      const run = await ops.run(runId);
      expect(run).toMatchObject({
        status: 'queued',
        claimed_by: null,
        started_at: null,
        heartbeat_at: null,
        attempts: retry,
        metadata: { retry_count: retry, stale: { original_worker: `worker-${retry}` } },
      });
      pauses.push(Math.round(((run['available_at'] as Date).getTime() - before) / 5_000));
      expect(await claim('too-early')).toBeNull();
      await age(runId, 1);
    }
    expect(pauses).toEqual([1, 2]);
    expect(await claim('worker-3')).toBe(runId);
    await age(runId, 6);
    expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 1, requeued: 0 });
    expect(await ops.run(runId)).toMatchObject({
      status: 'cancelled',
      attempts: 3,
      metadata: { retry_count: 2 },
    });
    expect((await ops.events(runId)).filter(({ type }) => type === 'ops_run.requeue')).toMatchObject([
      { level: 'warn', actor: 'system', message: 'no sign of life from worker-1 for 900 s' },
      { level: 'warn', actor: 'system' },
    ]);
  });

  test('its former worker is refused, and what it did is told in the ledger', async () => {
    const runId = await queueAgain();
    await claim('worker-slow');
    await ops.append(runId, 'began');
    await age(runId, 16);
    await endStaleOpsRuns(database.db, PATIENCE);
    await age(runId, 1);
    await claim('worker-new');

    const { db } = database;
    const late = {
      runId,
      workerId: 'worker-slow',
      attempt: 1,
      status: 'success' as const,
      metadata: { exit_code: 0 },
    };
    const fault = await faultOf(finishOpsRun(db, viewerOf('default'), late));
    expect(fault).toMatchObject({
      code: 'CLAIM_LOST',
      details: { status: 'CLAIMED', claimedBy: 'worker-new' },
    });
    expect(await ops.run(runId)).toMatchObject({ status: 'claimed', claimed_by: 'worker-new' });
    expect((await ops.events(runId)).at(-1)).toMatchObject({
      type: 'ops_run.late_result',
      actor: 'worker-slow',
      payload: { result: 'success', metadata: { exit_code: 0 } },
    });
  });

  test('the same worker id is told apart by its attempt, and may say again what it said before', async () => {
    const runId = await queueAgain();
    await claim('worker-1');
    const first = await ops.append(runId, 'began');
    await age(runId, 16);
    await endStaleOpsRuns(database.db, PATIENCE);
    await age(runId, 1);
    await claim('worker-1');
    const { db } = database;
    const late = { runId, workerId: 'worker-1', attempt: 1, status: 'success' as const, metadata: null };
    expect(await faultOf(finishOpsRun(db, viewerOf('default'), late))).toMatchObject({ code: 'CLAIM_LOST' });
    await ops.append(runId, 'here again');
    expect(await ops.append(runId, 'began')).not.toBe(first);
    expect(await ops.run(runId)).toMatchObject({ status: 'running' });
  });
});

test('more stale runs than one statement takes are all ended in one pass', async () => {
  await ops.rows(`SELECT ops.queue_run('p', 'many', NULL, NULL) FROM generate_series(1, 1200)`);
  await ops.rows(`SELECT ops.claim_next_run('w', NULL, 'many') FROM generate_series(1, 1200)`);
  await ops.rows(
    `UPDATE ops.runs SET queued_at = queued_at - interval '1 hour', started_at = started_at - interval '1 hour'
     WHERE env_id = 'many'`,
  );
  expect(await endStaleOpsRuns(database.db, PATIENCE)).toEqual({ cancelled: 1200, requeued: 0 });
});

test('one of two replicas does the job', async () => {
  const runId = await ops.claimed();
  await age(runId, 6);
  const log = { info: () => {}, warn: () => {}, error: () => {} };
  const replicas = [1, 2].map(
    () =>
      new Maintenance({
        db: database.db,
        jobs: [staleOpsRunJob(database.db, PATIENCE, log)],
        everyMs: 1_000,
        log,
      }),
  );
  const done = await Promise.all(replicas.map((replica) => replica.runOnce()));
  expect(done.flat()).toEqual(['end-stale-ops-runs']);
  expect(await ops.run(runId)).toMatchObject({ status: 'cancelled' });
});

test('it looks every minute, or sooner where patience is shorter', () => {
  const log = { info: () => {}, warn: () => {}, error: () => {} };
  expect(staleOpsRunJob(database.db, PATIENCE, log).everyMs).toBe(60_000);
  expect(staleOpsRunJob(database.db, { claimMs: 200, silenceMs: 5_000 }, log).everyMs).toBe(200);
});
