// Pipeline runs that somebody else drives by SQL, in the statements of the guide: every step is shown.
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../api/support.js';
import { ADMIN_KEY, TestApp, until } from '../support/app.js';
import { connect } from '../support/database.js';

let app: TestApp;
const clients: ApiClient[] = [];

beforeAll(async () => {
  app = await TestApp.start({
    RUNLEDGER_ROLE: 'api',
    RUNLEDGER_SANDBOX: 'off',
    RUNLEDGER_PROGRESS_INTERVAL_MS: '10',
  });
});
afterEach(() => Promise.all(clients.splice(0).map((client) => client.close())));
afterAll(() => app.stop());

const FIELDS = `id pipelineStatus: status completedWorkers failedWorkers recordsProcessed
  partitions { partitionId status nextOffset completed }`;

async function* follow(query: string, variables: Record<string, unknown>): AsyncGenerator<object> {
  const client = new ApiClient(app.url, ADMIN_KEY);
  clients.push(client);
  for await (const { data, errors } of client.stream<Record<string, object>>(query, variables)) {
    if (errors) throw new Error(JSON.stringify(errors));
    yield Object.values(data!)[0]!;
  }
}

/** A run of somebody else's, and those who watch it: by itself, and on a board that began before. */
async function start(runId: string): Promise<(shown: object) => Promise<void>> {
  await app.db.query(
    `INSERT INTO run_metadata (run_id, run_type, expected_workers, watermark_before) VALUES ($1, 'full', 2, NULL)`,
    [runId],
  );
  const watchers = [
    follow(`subscription ($id: ID!) { pipelineRunProgress(runId: $id) { ${FIELDS} } }`, { id: runId }),
    follow(`subscription { runChanged(kind: PIPELINE) { ... on PipelineRun { ${FIELDS} } } }`, {}),
  ];
  return async (shown) => {
    for (const watcher of watchers) {
      for (;;) {
        const { value } = await watcher.next();
        // A state between two that are asked for may come as well.
        if ((value as { id: string }).id === runId && isLike(value, shown)) break;
      }
    }
  };
}

function isLike(value: unknown, shown: object): boolean {
  try {
    expect(value).toMatchObject(shown);
    return true;
  } catch {
    return false;
  }
}

test('each page and each end of a partition is shown, as its statement is committed', async () => {
  const runId = randomUUID();
  const areShown = await start(runId);
  await areShown({ pipelineStatus: 'CREATED' });
  await app.db.query(
    `INSERT INTO worker_runs (id, run_id, partition_id, worker_id, status)
     VALUES ($2, $1, 'partition-0', 'me', 'running')`,
    [runId, randomUUID()],
  );
  await areShown({ pipelineStatus: 'WORKERS_RUNNING', partitions: [{ status: 'RUNNING', nextOffset: 0 }] });
  await app.db.query(`INSERT INTO partition_progress (run_id, partition_id) VALUES ($1, 'partition-0')`, [
    runId,
  ]);
  for (const offset of [0, 30]) {
    await app.db.query(
      `UPDATE partition_progress SET next_offset = $2, updated_at = NOW()
       WHERE run_id = $1 AND partition_id = 'partition-0' AND next_offset = $3 AND NOT completed`,
      [runId, offset + 30, offset],
    );
    await areShown({ partitions: [{ nextOffset: offset + 30 }] });
  }
  await app.db.query('UPDATE worker_runs SET records_processed = 55 WHERE run_id = $1', [runId]);
  await areShown({ recordsProcessed: 55 });
  await app.db.query('UPDATE partition_progress SET completed = true WHERE run_id = $1', [runId]);
  await areShown({ partitions: [{ completed: true }] });
  await app.db.query(
    `UPDATE worker_runs SET status = 'completed', records_processed = 60 WHERE run_id = $1 AND partition_id = 'partition-0'`,
    [runId],
  );
  await areShown({ recordsProcessed: 60, completedWorkers: 1, partitions: [{ status: 'COMPLETED' }] });
});

test('the counters of a run without partitions are shown', async () => {
  const runId = randomUUID();
  const areShown = await start(runId);
  await app.db.query(`UPDATE run_metadata SET status = 'WORKERS_RUNNING' WHERE run_id = $1`, [runId]);
  await areShown({ pipelineStatus: 'WORKERS_RUNNING' });
  await app.db.query('UPDATE run_metadata SET completed_workers = completed_workers + 1 WHERE run_id = $1', [
    runId,
  ]);
  await areShown({ completedWorkers: 1, failedWorkers: 0 });
  await app.db.query('UPDATE run_metadata SET failed_workers = failed_workers + 1 WHERE run_id = $1', [
    runId,
  ]);
  await areShown({ completedWorkers: 1, failedWorkers: 1 });
});

test('a run of a source of ours is not rung for at each page: the server does that, now and then', async () => {
  const runs = ['ours', null].map(() => randomUUID());
  const listener = await connect(app.database.url);
  try {
    await listener.query('LISTEN runledger');
    const heard: unknown[] = [];
    listener.on('notification', ({ payload }) => heard.push((JSON.parse(payload!) as { id: string }).id));
    const source = `INSERT INTO source (id, tenant_id, name, kind)
      VALUES (gen_random_uuid(), 'default', 'ours', 'file') RETURNING id`;
    const [{ id: sourceId } = { id: '' }] = await app.db.query<{ id: string }>(source);
    for (const [index, runId] of runs.entries()) {
      await app.db.query(
        `INSERT INTO run_metadata (run_id, run_type, source_id, expected_workers) VALUES ($1, 'full', $2, 1)`,
        [runId, index === 0 ? sourceId : null],
      );
      await app.db.query(`INSERT INTO partition_progress (run_id, partition_id) VALUES ($1, 'p')`, [runId]);
      for (const offset of [30, 60]) {
        await app.db.query('UPDATE partition_progress SET next_offset = $2 WHERE run_id = $1', [
          runId,
          offset,
        ]);
      }
    }
    await until(
      async () => heard.length,
      (count) => count === 4,
    );
    // One bell each for its first line, and those for the pages of the run that is driven by SQL.
    expect(heard).toEqual([runs[0], runs[1], runs[1], runs[1]]);
  } finally {
    await listener.end();
  }
});
