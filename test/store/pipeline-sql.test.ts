// The SQL surface of pipeline runs: the columns that others rely on, the questions that operators ask of them,
// put to real runs, and rows that somebody else's scheduler and workers write by SQL.
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

describe('the tables have the columns of the interface', () => {
  test.each([
    [
      'run_metadata',
      {
        completed_at: 'timestamp with time zone',
        completed_workers: 'integer',
        expected_workers: 'integer',
        failed_workers: 'integer',
        run_id: 'uuid',
        run_type: 'text',
        started_at: 'timestamp with time zone',
        watermark_after: 'timestamp with time zone',
        watermark_before: 'timestamp with time zone',
      },
    ],
    [
      'worker_runs',
      {
        completed_at: 'timestamp with time zone',
        error_message: 'text',
        id: 'uuid',
        partition_id: 'text',
        records_processed: 'integer',
        run_id: 'uuid',
        started_at: 'timestamp with time zone',
        status: 'text',
        work_item_payload: 'jsonb',
        worker_id: 'text',
      },
    ],
    [
      'partition_progress',
      {
        completed: 'boolean',
        created_at: 'timestamp with time zone',
        next_offset: 'integer',
        partition_id: 'text',
        run_id: 'uuid',
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

describe('operators ask', () => {
  // A run is done when it has an end; before that its counters tell how far it is.
  const STANDING = `
    SELECT r.run_id AS id, r.run_type AS kind, r.failed_workers AS lost, r.completed_at AS ended,
      r.completed_workers || ' of ' || r.expected_workers AS partitions,
      extract(epoch FROM (coalesce(r.completed_at, now()) - r.started_at)) / 60 AS minutes,
      CASE
        WHEN r.completed_at IS NULL AND r.failed_workers > 0 THEN 'broken'
        WHEN r.completed_at IS NULL AND r.completed_workers = r.expected_workers THEN 'merging'
        WHEN r.completed_at IS NULL THEN 'reading'
        ELSE 'done'
      END AS standing
    FROM run_metadata AS r`;

  test('how one run stands', async () => {
    const rows = [];
    for (const { id } of [completed, failed, reading])
      rows.push(...(await ask(`${STANDING} WHERE r.run_id = $1`, id)));
    expect(rows).toMatchObject([
      { kind: 'full', partitions: '2 of 2', lost: 0, standing: 'done', ended: expect.any(Date) },
      { kind: 'full', partitions: '1 of 2', lost: 1, standing: 'broken', ended: null },
      { kind: 'full', partitions: '0 of 2', lost: 0, standing: 'reading', ended: null },
    ]);
    expect(rows.every((row) => Number(row['minutes']) >= 0)).toBe(true);
  });

  test('what its workers came to', async () => {
    const rows = await ask(
      `SELECT w.error_message AS reason, w.status, w.partition_id AS part, w.completed_at, w.started_at
       FROM worker_runs AS w WHERE w.run_id = $1 ORDER BY w.partition_id`,
      failed.id,
    );
    expect(rows).toMatchObject([
      { part: 'partition-0', status: 'completed', reason: null },
      { part: 'partition-1', status: 'failed', reason: 'the source answered HTTP 403' },
    ]);
    expect(
      rows.every((row) => row['started_at'] instanceof Date && row['completed_at'] instanceof Date),
    ).toBe(true);
  });

  test('how far its partitions are', async () => {
    const rows = await ask(
      `SELECT p.completed AS done, p.next_offset AS place, p.partition_id AS part, p.updated_at AS seen
       FROM partition_progress AS p WHERE p.run_id = $1 ORDER BY p.partition_id`,
      reading.id,
    );
    expect(rows).toMatchObject([
      { part: 'partition-0', place: 30, done: false, seen: expect.any(Date) },
      { part: 'partition-1', place: 0, done: false, seen: expect.any(Date) },
    ]);
  });

  test('which runs have no end yet, the newest first', async () => {
    const rows = await ask(
      `SELECT now() - r.started_at AS age, r.failed_workers, r.completed_workers, r.expected_workers, r.run_id AS id
       FROM run_metadata AS r WHERE r.completed_at IS NULL ORDER BY age`,
    );
    expect(rows.map((row) => row['id'])).toEqual([reading.id, failed.id]);
  });

  test('how the runs of a day stand', async () => {
    const rows = await ask(
      `${STANDING} WHERE now() - interval '24 hours' < r.started_at ORDER BY r.started_at DESC`,
    );
    expect(rows.map((row) => [row['id'], row['standing']])).toEqual([
      [reading.id, 'reading'],
      [failed.id, 'broken'],
      [completed.id, 'done'],
    ]);
  });

  test('which workers failed, and how far they came', async () => {
    const workers = await ask(
      `SELECT w.records_processed AS records, w.error_message AS reason, w.partition_id AS part, r.run_type AS kind
       FROM run_metadata AS r JOIN worker_runs AS w USING (run_id)
       WHERE w.status = 'failed' AND r.run_id = $1 ORDER BY w.completed_at`,
      failed.id,
    );
    expect(workers).toMatchObject([{ part: 'partition-1', records: 30, kind: 'full' }]);
    const places = await ask(
      'SELECT p.next_offset AS place, p.partition_id AS part FROM partition_progress AS p WHERE NOT p.completed AND p.run_id = $1',
      failed.id,
    );
    expect(places).toEqual([{ part: 'partition-1', place: 30 }]);
  });

  test('which partitions are under way, and which have not moved for long', async () => {
    const open = await ask(
      'SELECT p.* FROM partition_progress AS p WHERE p.completed IS FALSE AND p.run_id = $1',
      reading.id,
    );
    expect(open).toHaveLength(2);
    const stuck = `SELECT p.* FROM partition_progress AS p
      WHERE p.updated_at < now() - interval '10 minutes' AND p.completed = false`;
    expect(await ask(stuck)).toEqual([]);
    await ask(
      `UPDATE partition_progress SET updated_at = now() - interval '11 minutes'
       WHERE partition_id = 'partition-1' AND run_id = $1`,
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
  });
});

describe('rows of somebody else’s', () => {
  test('a run is inserted with the columns of the interface alone; the runner leaves it to whoever drives it', async () => {
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

  test('its workers insert their rows as running and count for themselves; nothing is doubled', async () => {
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
