// The SQL surface of pipeline runs: the columns, the monitoring questions and the updates that the documents
// print, asked of real runs, and rows that somebody else's scheduler and workers write by SQL.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readFacts } from '../../src/store/facts.js';
import type { PipelineRunRow } from '../../src/store/pipeline-run.js';
import { FeedWorld } from '../support/feed-world.js';
import { sqlFaultOf } from './rows.js';

let world: FeedWorld;
let completed: PipelineRunRow;
let failed: PipelineRunRow;
let reading: PipelineRunRow;

beforeAll(async () => {
  world = await FeedWorld.create();
  completed = await world.run(await world.feed({ size: 120 }, { partitions: 2 }));
  failed = await world.run(await world.feed({ size: 120, faults: 'deny@110' }, { partitions: 2 }));
  const { id } = await world.start(await world.feed({ size: 120 }, { partitions: 2 }));
  const worker = world.worker();
  await worker.step(worker.plans);
  await worker.step(worker.pages);
  reading = await world.find(id);
});
afterAll(() => world.drop());

function ask(sql: string, ...values: unknown[]): Promise<Record<string, unknown>[]> {
  return world.db.query(sql, values);
}

describe('the tables have the documents’ columns', () => {
  test.each([
    [
      'run_metadata',
      {
        run_id: 'uuid',
        run_type: 'text',
        expected_workers: 'integer',
        completed_workers: 'integer',
        failed_workers: 'integer',
        watermark_before: 'timestamp with time zone',
        watermark_after: 'timestamp with time zone',
        started_at: 'timestamp with time zone',
        completed_at: 'timestamp with time zone',
      },
    ],
    [
      'worker_runs',
      {
        id: 'uuid',
        run_id: 'uuid',
        partition_id: 'text',
        worker_id: 'text',
        status: 'text',
        records_processed: 'integer',
        error_message: 'text',
        work_item_payload: 'jsonb',
        started_at: 'timestamp with time zone',
        completed_at: 'timestamp with time zone',
      },
    ],
    [
      'partition_progress',
      {
        run_id: 'uuid',
        partition_id: 'text',
        next_offset: 'integer',
        completed: 'boolean',
        created_at: 'timestamp with time zone',
        updated_at: 'timestamp with time zone',
      },
    ],
  ])('%s', async (table, columns) => {
    const rows = await ask(
      'SELECT column_name, data_type FROM information_schema.columns WHERE table_name = $1',
      table,
    );
    const types = Object.fromEntries(rows.map((row) => [row['column_name'], row['data_type']]));
    expect(types).toMatchObject(columns);
  });
});

describe('the monitoring queries', () => {
  const STATUS_OF_ONE = `
    SELECT run_id, run_type,
      completed_workers || '/' || expected_workers AS progress,
      failed_workers,
      CASE
        WHEN completed_at IS NOT NULL THEN 'completed'
        WHEN failed_workers > 0 THEN 'failed'
        WHEN completed_workers < expected_workers THEN 'in_progress'
        ELSE 'consolidating'
      END AS status,
      started_at, completed_at,
      EXTRACT(EPOCH FROM (COALESCE(completed_at, NOW()) - started_at)) / 60 AS duration_minutes
    FROM run_metadata WHERE run_id = $1`;

  test('the status of one run', async () => {
    const statuses = [];
    for (const { id } of [completed, failed, reading]) statuses.push(...(await ask(STATUS_OF_ONE, id)));
    expect(statuses).toMatchObject([
      { run_type: 'full', progress: '2/2', failed_workers: 0, status: 'completed' },
      { run_type: 'full', progress: '1/2', failed_workers: 1, status: 'failed', completed_at: null },
      { run_type: 'full', progress: '0/2', failed_workers: 0, status: 'in_progress', completed_at: null },
    ]);
    expect(statuses.every((row) => Number(row['duration_minutes']) >= 0)).toBe(true);
  });

  test('the workers of a run', async () => {
    const rows = await ask(
      `SELECT partition_id, status, records_processed, error_message, started_at, completed_at
       FROM worker_runs WHERE run_id = $1 ORDER BY partition_id`,
      failed.id,
    );
    expect(rows).toMatchObject([
      { partition_id: 'partition-0', status: 'completed', error_message: null },
      { partition_id: 'partition-1', status: 'failed', error_message: 'the source answered HTTP 403' },
    ]);
    expect(
      rows.every((row) => row['started_at'] instanceof Date && row['completed_at'] instanceof Date),
    ).toBe(true);
  });

  test('the progress of partitions', async () => {
    const rows = await ask(
      `SELECT partition_id, next_offset, completed, updated_at FROM partition_progress
       WHERE run_id = $1 ORDER BY partition_id`,
      reading.id,
    );
    expect(rows).toMatchObject([
      { partition_id: 'partition-0', next_offset: 30, completed: false },
      { partition_id: 'partition-1', next_offset: 0, completed: false },
    ]);
  });

  test('active runs', async () => {
    const rows = await ask(
      `SELECT run_id, run_type, completed_workers, expected_workers, failed_workers, started_at,
         NOW() - started_at AS elapsed
       FROM run_metadata WHERE completed_at IS NULL ORDER BY started_at DESC`,
    );
    expect(rows.map((row) => row['run_id'])).toEqual([reading.id, failed.id]);
  });

  test('runs of the last 24 hours', async () => {
    const rows = await ask(
      `SELECT run_id, run_type, completed_workers || '/' || expected_workers AS progress,
         CASE WHEN completed_at IS NOT NULL THEN 'completed' WHEN failed_workers > 0 THEN 'failed'
           ELSE 'in_progress' END AS status,
         started_at, completed_at,
         EXTRACT(EPOCH FROM (COALESCE(completed_at, NOW()) - started_at)) / 60 AS duration_minutes
       FROM run_metadata WHERE started_at > NOW() - INTERVAL '24 hours' ORDER BY started_at DESC`,
    );
    expect(rows.map((row) => [row['run_id'], row['status']])).toEqual([
      [reading.id, 'in_progress'],
      [failed.id, 'failed'],
      [completed.id, 'completed'],
    ]);
  });

  test('failed workers, and how far they came', async () => {
    const workers = await ask(
      `SELECT wr.partition_id, wr.records_processed, wr.error_message, wr.started_at, wr.completed_at
       FROM worker_runs wr JOIN run_metadata rm ON wr.run_id = rm.run_id
       WHERE rm.run_id = $1 AND wr.status = 'failed' ORDER BY wr.started_at`,
      failed.id,
    );
    expect(workers).toMatchObject([{ partition_id: 'partition-1', records_processed: 30 }]);
    const progress = await ask(
      'SELECT partition_id, next_offset, completed FROM partition_progress WHERE run_id = $1 AND NOT completed',
      failed.id,
    );
    expect(progress).toEqual([{ partition_id: 'partition-1', next_offset: 30, completed: false }]);
  });

  test('active and stuck partitions, and runs that are not complete', async () => {
    const active = await ask(
      `SELECT * FROM partition_progress WHERE completed = false ORDER BY updated_at DESC`,
    );
    expect(active.filter((row) => row['run_id'] === reading.id)).toHaveLength(2);
    const stuck = `SELECT * FROM partition_progress
      WHERE completed = false AND updated_at < NOW() - INTERVAL '10 minutes'`;
    expect(await ask(stuck)).toEqual([]);
    await ask(
      `UPDATE partition_progress SET updated_at = NOW() - INTERVAL '11 minutes'
       WHERE run_id = $1 AND partition_id = 'partition-1'`,
      reading.id,
    );
    expect(await ask(stuck)).toMatchObject([{ run_id: reading.id, partition_id: 'partition-1' }]);
    const stuckOnes = async () => (await world.partitions(reading.id)).map((partition) => partition.stuck);
    // It was not begun: while the other is read it waits its turn.
    expect(await stuckOnes()).toEqual([false, false]);
    expect((await readFacts(world.db)).stuckPartitions).toBe(0);
    await ask(
      `UPDATE partition_progress SET updated_at = NOW() - INTERVAL '11 minutes' WHERE run_id = $1`,
      reading.id,
    );
    expect(await stuckOnes()).toEqual([true, true]);
    expect((await readFacts(world.db)).stuckPartitions).toBe(2);
    expect((await readFacts(world.db, { stuckMs: 720_000 })).stuckPartitions).toBe(0);
    const open = await ask(
      `SELECT rm.run_id, rm.completed_workers, rm.expected_workers, rm.failed_workers FROM run_metadata rm
       WHERE rm.completed_at IS NULL`,
    );
    expect(open).toHaveLength(2);
  });
});

describe('rows of somebody else’s', () => {
  test('a run is inserted with the documents’ columns alone; the runner leaves it to whoever drives it', async () => {
    const runId = randomUUID();
    await ask(
      'INSERT INTO run_metadata (run_id, run_type, expected_workers, watermark_before) VALUES ($1, $2, $3, NULL)',
      runId,
      'full',
      2,
    );
    await world.worker().drain();
    expect(await world.find(runId)).toMatchObject({
      status: 'CREATED',
      tenantId: 'default',
      expectedWorkers: 2,
    });
    const [source] = await ask('SELECT kind FROM source WHERE id = $1', (await world.find(runId)).sourceId);
    expect(source).toEqual({ kind: 'external' });
    await expect(world.start({ sourceId: (await world.find(runId)).sourceId })).rejects.toThrow(
      'driven from outside',
    );
  });

  test('its workers count themselves, page by page, and only as the machines allow', async () => {
    const runId = randomUUID();
    await ask(
      'INSERT INTO run_metadata (run_id, run_type, expected_workers) VALUES ($1, $2, 1)',
      runId,
      'incremental',
    );
    await ask(
      'INSERT INTO worker_runs (id, run_id, partition_id, worker_id) VALUES ($1, $2, $3, $4)',
      randomUUID(),
      runId,
      'p',
      'w',
    );
    await ask('INSERT INTO partition_progress (run_id, partition_id) VALUES ($1, $2)', runId, 'p');
    await ask(`UPDATE run_metadata SET status = 'WORKERS_RUNNING' WHERE run_id = $1`, runId);
    await ask(`UPDATE worker_runs SET status = 'running' WHERE run_id = $1`, runId);
    const swap = `UPDATE partition_progress SET next_offset = $3, updated_at = NOW()
      WHERE run_id = $1 AND partition_id = 'p' AND next_offset = $2 AND NOT completed RETURNING next_offset`;
    expect(await ask(swap, runId, 0, 30)).toEqual([{ next_offset: 30 }]);
    expect(await ask(swap, runId, 0, 30)).toEqual([]);
    await ask(`UPDATE worker_runs SET status = 'completed', records_processed = 30 WHERE run_id = $1`, runId);
    expect(await world.find(runId)).toMatchObject({ completedWorkers: 1, recordsProcessed: 30 });
    expect(
      (await sqlFaultOf(ask(`UPDATE worker_runs SET status = 'running' WHERE run_id = $1`, runId))).code,
    ).toBe('RL001');
    for (const status of ['CONSOLIDATING', 'COMPLETED']) {
      await ask('UPDATE run_metadata SET status = $2 WHERE run_id = $1', runId, status);
    }
    expect(
      await ask('SELECT completed_at IS NOT NULL AS done FROM run_metadata WHERE run_id = $1', runId),
    ).toEqual([{ done: true }]);
    await world.expectSound(runId);
    expect((await world.lines(runId)).map(({ type }) => type)).toEqual([
      'pipeline_run.create',
      'pipeline_run.start',
      'partition.start',
      'partition.complete',
      'pipeline_run.consolidate',
      'pipeline_run.complete',
    ]);
  });

  test('its workers insert their rows as running and count, as the document prints it; nothing is doubled', async () => {
    const runId = randomUUID();
    await ask(
      'INSERT INTO run_metadata (run_id, run_type, expected_workers, watermark_before) VALUES ($1, $2, 2, NULL)',
      runId,
      'full',
    );
    for (const partition of ['partition-0', 'partition-1']) {
      await ask(
        `INSERT INTO worker_runs (id, run_id, partition_id, worker_id, status, work_item_payload)
         VALUES ($1, $2, $3, 'worker-1', 'running', '{"minPrice": 0}')`,
        randomUUID(),
        runId,
        partition,
      );
    }
    expect(await world.find(runId)).toMatchObject({ status: 'WORKERS_RUNNING' });
    const end = (partition: string, status: string): Promise<unknown> =>
      ask(
        `UPDATE worker_runs SET status = $3, completed_at = NOW() WHERE run_id = $1 AND partition_id = $2`,
        runId,
        partition,
        status,
      );
    const increment = (counter: string): Promise<unknown> =>
      ask(
        `UPDATE run_metadata SET ${counter} = ${counter} + 1 WHERE run_id = $1
         RETURNING completed_workers, expected_workers, failed_workers`,
        runId,
      );
    await end('partition-0', 'completed');
    expect(await increment('completed_workers')).toEqual([
      { completed_workers: 1, expected_workers: 2, failed_workers: 0 },
    ]);
    await end('partition-1', 'failed');
    expect(await increment('failed_workers')).toEqual([
      { completed_workers: 1, expected_workers: 2, failed_workers: 1 },
    ]);
    await world.expectSound(runId);
    expect((await world.lines(runId)).map(({ type }) => type)).toEqual([
      'pipeline_run.create',
      'pipeline_run.start',
      'partition.start',
      'partition.start',
      'partition.complete',
      'partition.fail',
    ]);
  });

  describe('that know no column of ours', () => {
    const SHUT =
      'UPDATE run_metadata SET completed_at = $1, watermark_after = $1 WHERE run_id = $2 RETURNING *';

    async function create(expectedWorkers: number): Promise<string> {
      const runId = randomUUID();
      await ask(
        'INSERT INTO run_metadata (run_id, run_type, expected_workers, watermark_before) VALUES ($1, $2, $3, NULL)',
        runId,
        'full',
        expectedWorkers,
      );
      return runId;
    }

    const begin = (runId: string, partition: string): Promise<Record<string, unknown>[]> =>
      ask(
        `INSERT INTO worker_runs (id, run_id, partition_id, worker_id, status) VALUES ($1, $2, $3, 'w', 'running')
         RETURNING *`,
        randomUUID(),
        runId,
        partition,
      );

    const end = (runId: string, partition: string, status: string): Promise<unknown> =>
      ask(
        `UPDATE worker_runs SET status = $3, records_processed = 30, completed_at = NOW(),
           error_message = CASE WHEN $3 = 'failed' THEN 'no answer' END
         WHERE run_id = $1 AND partition_id = $2`,
        runId,
        partition,
        status,
      );

    test('take a run from its beginning to its end', async () => {
      const runId = await create(2);
      for (const partition of ['partition-0', 'partition-1']) {
        expect(await begin(runId, partition)).toMatchObject([{ status: 'running', completed_at: null }]);
      }
      await end(runId, 'partition-0', 'completed');
      await end(runId, 'partition-1', 'failed');
      expect(await world.find(runId)).toMatchObject({ completedWorkers: 1, failedWorkers: 1 });
      // The queue delivers it again.
      await end(runId, 'partition-1', 'completed');
      const increment = `UPDATE run_metadata SET completed_workers = completed_workers + 1 WHERE run_id = $1
        RETURNING completed_workers, expected_workers, failed_workers`;
      expect(await ask(increment, runId)).toEqual([
        { completed_workers: 2, expected_workers: 2, failed_workers: 0 },
      ]);
      const now = new Date(Date.now() + 60_000);
      const told = { status: 'COMPLETED', completed_at: now, watermark_after: now };
      expect(await ask(SHUT, now, runId)).toMatchObject([told]);
      // And a second time, as whatever is delivered at least once.
      expect(await ask(SHUT, now, runId)).toMatchObject([told]);
      expect(await world.find(runId)).toMatchObject({ status: 'COMPLETED', watermarkAfter: now });
      await world.expectSound(runId);
      expect((await world.lines(runId)).map(({ type }) => type)).toEqual([
        'pipeline_run.create',
        'pipeline_run.start',
        'partition.start',
        'partition.start',
        'partition.complete',
        'partition.fail',
        'partition.retry',
        'partition.start',
        'partition.complete',
        'pipeline_run.consolidate',
        'pipeline_run.complete',
      ]);
    });

    test('take up a partition that failed', async () => {
      const runId = await create(1);
      await begin(runId, 'p');
      await end(runId, 'p', 'failed');
      await ask(`UPDATE worker_runs SET status = 'running', completed_at = NULL WHERE run_id = $1`, runId);
      expect(await world.find(runId)).toMatchObject({ status: 'WORKERS_RUNNING', failedWorkers: 0 });
      expect((await world.partitions(runId))[0]).toMatchObject({ status: 'running', errorMessage: null });
      await world.expectSound(runId);
    });

    test.each([
      ['CREATED', []],
      ['CONSOLIDATING', ['WORKERS_RUNNING', 'CONSOLIDATING']],
      ['FAILED', ['WORKERS_RUNNING', 'CONSOLIDATION_SKIPPED', 'FAILED']],
      ['CONSOLIDATION_SKIPPED', ['WORKERS_RUNNING', 'CONSOLIDATION_SKIPPED']],
    ])('complete a run that is %s', async (_, states) => {
      const runId = await create(0);
      for (const status of states) {
        await ask('UPDATE run_metadata SET status = $2 WHERE run_id = $1', runId, status);
      }
      await ask(SHUT, new Date(), runId);
      expect(await world.find(runId)).toMatchObject({ status: 'COMPLETED', error: null });
      await world.expectSound(runId);
    });

    test('complete none that was stopped, nor one of ours', async () => {
      const runId = await create(0);
      await ask(`UPDATE run_metadata SET status = 'CANCELLED' WHERE run_id = $1`, runId);
      expect((await sqlFaultOf(ask(SHUT, new Date(), runId))).code).toBe('RL001');
      expect((await sqlFaultOf(ask(SHUT, new Date(), failed.id))).code).toBe('23514');
    });

    test('take no step too many in a partition of ours', async () => {
      for (const status of ['running', 'completed']) {
        const move = ask(
          `UPDATE worker_runs SET status = $2 WHERE run_id = $1 AND status = 'failed'`,
          failed.id,
          status,
        );
        expect((await sqlFaultOf(move)).code).toBe('RL001');
      }
      const born = ask(
        `INSERT INTO worker_runs (run_id, partition_id, status, status_from) VALUES ($1, 'm', 'running', 'pending')`,
        reading.id,
      );
      expect((await sqlFaultOf(born)).code).toBe('RL002');
    });
  });

  test('that are partitions of a run of ours are born pending all the same', async () => {
    const insert = ask(
      `INSERT INTO worker_runs (run_id, partition_id, status) VALUES ($1, 'mine', 'running')`,
      reading.id,
    );
    expect((await sqlFaultOf(insert)).code).toBe('RL002');
  });

  test('one partition of a run has one worker', async () => {
    const [row] = await ask('SELECT run_id, partition_id FROM worker_runs LIMIT 1');
    const insert = ask(
      'INSERT INTO worker_runs (run_id, partition_id) VALUES ($1, $2)',
      row!['run_id'],
      row!['partition_id'],
    );
    expect((await sqlFaultOf(insert)).code).toBe('23505');
  });

  test.each([
    ['a type that is none', { run_type: 'partial' }, '23514'],
    ['counters beyond what is expected', { completed_workers: 2 }, '23514'],
    ['a run that is born complete', { status: 'COMPLETED' }, 'RL002'],
  ])('%s is refused', async (_, values, code) => {
    const row = { run_id: randomUUID(), run_type: 'full', expected_workers: 1, ...values };
    const names = Object.keys(row);
    const places = names.map((__, index) => `$${index + 1}`);
    const insert = ask(
      `INSERT INTO run_metadata (${names.join()}) VALUES (${places.join()})`,
      ...Object.values(row),
    );
    expect((await sqlFaultOf(insert)).code).toBe(code);
  });
});
