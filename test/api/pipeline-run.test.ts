// Pipeline runs over the API, without a runner: what may be asked of them in which state, and how they are read.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { graphql } from '../generated/gql.js';
import { fire, makeRowIn } from '../support/fixtures.js';
import {
  CancelPipelineRun,
  ConsolidatePipelineRun,
  readRun,
  RetryFailedPartitions,
  startRun,
} from './pipeline-run-documents.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

let api: TestApi;
let ours: ApiClient;
let theirs: ApiClient;

const PipelineRuns = graphql(`
  query PipelineRuns($first: Int, $after: String) {
    pipelineRuns(first: $first, after: $after) {
      totalCount
      nodes {
        id
        source {
          name
        }
        partitions(status: [FAILED]) {
          partitionId
        }
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const PipelineRunNode = graphql(`
  query PipelineRunNode($id: ID!) {
    node(id: $id) {
      __typename
      ... on Run {
        kind
        lastSeq
      }
    }
  }
`);

beforeAll(async () => {
  api = await startApi();
  ours = await api.client();
  theirs = await api.client('ADMIN', 'other');
});
afterAll(() => api.stop());

async function newSource(name: string, watermark: Date | null = null): Promise<string> {
  const [row] = await api.db.query<{ id: string }>(
    `INSERT INTO source (id, tenant_id, name, kind, watermark)
     VALUES (gen_random_uuid(), 'default', $1, 'ndjson', $2) RETURNING id`,
    [name, watermark],
  );
  return row!.id;
}

/** A run in the state, with the partitions given by their states. */
async function runIn(state: string, partitions: readonly string[] = []): Promise<string> {
  const run = await makeRowIn(api.db, api.world.home, pipelineRunMachine, state);
  await api.db.query('UPDATE run_metadata SET expected_workers = $2 WHERE run_id = $1', [
    run.id,
    partitions.length,
  ]);
  for (const [index, status] of partitions.entries()) {
    const id = `partition-${index}`;
    await api.db.query('INSERT INTO worker_runs (run_id, partition_id) VALUES ($1, $2)', [run.id, id]);
    await api.db.query('INSERT INTO partition_progress (run_id, partition_id) VALUES ($1, $2)', [run.id, id]);
    for (const step of status === 'pending' ? [] : ['running', status]) {
      await api.db.query('UPDATE worker_runs SET status = $3 WHERE run_id = $1 AND partition_id = $2', [
        run.id,
        id,
        step,
      ]);
    }
  }
  return run.id;
}

describe('startPipelineRun', () => {
  test('is FULL first, with no watermark before', async () => {
    const sourceId = await newSource('first');
    expect(await startRun(ours, { sourceId, metadata: { why: 'test' } })).toEqual({
      pipelineRun: {
        id: expect.any(String),
        status: 'CREATED',
        runType: 'FULL',
        watermarkBefore: null,
        source: { id: sourceId, name: 'first' },
        allowedActions: ['CANCEL'],
      },
      userErrors: [],
    });
  });

  test('is INCREMENTAL from the watermark later, and either when asked', async () => {
    const watermark = new Date('2026-05-01T10:00:00.000Z');
    const sourceId = await newSource('later', watermark);
    const input = { sourceId, allowConcurrent: true };
    const first = await startRun(ours, input);
    expect(first.pipelineRun).toMatchObject({
      runType: 'INCREMENTAL',
      watermarkBefore: watermark.toISOString(),
    });
    const full = await startRun(ours, { ...input, runType: 'FULL' });
    expect(full.pipelineRun).toMatchObject({ runType: 'FULL' });
  });

  test('refuses a second active run of a source, unless asked otherwise', async () => {
    const sourceId = await newSource('busy');
    const first = await startRun(ours, { sourceId });
    const runId = first.pipelineRun!.id;
    expect(await startRun(ours, { sourceId })).toMatchObject({
      pipelineRun: null,
      userErrors: [{ code: 'CONFLICT', details: { runId } }],
    });
    expect((await startRun(ours, { sourceId, allowConcurrent: true })).userErrors).toEqual([]);
    expect((await startRun(ours, { sourceId })).userErrors).toMatchObject([{ code: 'CONFLICT' }]);
  });

  test('of many at once exactly one is started', async () => {
    const sourceId = await newSource('raced');
    const answers = await Promise.all(Array.from({ length: 8 }, () => startRun(ours, { sourceId })));
    expect(answers.filter(({ pipelineRun }) => pipelineRun !== null)).toHaveLength(1);
    expect(answers.flatMap(({ userErrors }) => userErrors.map(({ code }) => code))).toEqual(
      Array(7).fill('CONFLICT'),
    );
  });

  test('with a key is the same run again, and refuses another input under it', async () => {
    const sourceId = await newSource('keyed');
    const input = { sourceId, idempotencyKey: 'once' };
    const first = await startRun(ours, input);
    expect((await startRun(ours, input)).pipelineRun!.id).toBe(first.pipelineRun!.id);
    expect((await startRun(ours, { ...input, runType: 'FULL' })).userErrors).toMatchObject([
      { code: 'IDEMPOTENCY_MISMATCH' },
    ]);
  });

  test.each([
    ['an unknown source', { sourceId: 'nonsense' }, 'NOT_FOUND'],
    ['a label that is none', { sourceId: 'x', projectId: ' ' }, 'INVALID_INPUT'],
    ['metadata that is no object', { sourceId: 'x', metadata: [1] }, 'INVALID_INPUT'],
    ['metadata without end', { sourceId: 'x', metadata: { a: 'x'.repeat(256 * 1024) } }, 'LIMIT_EXCEEDED'],
  ])('refuses %s', async (_, input, code) => {
    expect(await startRun(ours, input)).toMatchObject({ pipelineRun: null, userErrors: [{ code }] });
  });

  test('does not find another tenant’s source', async () => {
    const answer = await startRun(theirs, { sourceId: api.world.home.sourceId });
    expect(answer.userErrors).toMatchObject([{ code: 'NOT_FOUND', field: ['input', 'sourceId'] }]);
  });
});

describe('cancelPipelineRun', () => {
  test.each(['CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING'])('stops a run that is %s', async (state) => {
    const runId = await runIn(state);
    const { cancelPipelineRun } = await ours.ask(CancelPipelineRun, { runId, idempotencyKey: state });
    expect(cancelPipelineRun).toMatchObject({
      pipelineRun: { status: 'CANCELLED', allowedActions: [] },
      userErrors: [],
    });
    // The same request once more finds it done.
    const again = await ours.ask(CancelPipelineRun, { runId, idempotencyKey: state });
    expect(again.cancelPipelineRun.userErrors).toEqual([]);
  });

  test.each(['COMPLETED', 'FAILED', 'CANCELLED'])('is refused for one that is %s', async (state) => {
    const runId = await runIn(state);
    const { cancelPipelineRun } = await ours.ask(CancelPipelineRun, { runId });
    expect(cancelPipelineRun).toMatchObject({
      pipelineRun: null,
      userErrors: [
        { code: 'ILLEGAL_TRANSITION', details: { machine: 'pipeline_run', event: 'cancel', from: state } },
      ],
    });
  });

  test('does not find another tenant’s run', async () => {
    const runId = await runIn('CREATED');
    const { cancelPipelineRun } = await theirs.ask(CancelPipelineRun, { runId });
    expect(cancelPipelineRun.userErrors).toMatchObject([{ code: 'NOT_FOUND' }]);
    expect(await readRun(ours, runId)).toMatchObject({ status: 'CREATED' });
  });
});

describe('retryFailedPartitions', () => {
  test('puts the failed ones back, and those only', async () => {
    const runId = await runIn('WORKERS_RUNNING', ['completed', 'failed', 'failed']);
    const row = { machine: pipelineRunMachine, tenantId: 'default', id: runId, runId };
    for (const event of ['skip_consolidation', 'fail']) await fire(api.db, row, event);
    const { retryFailedPartitions } = await ours.ask(RetryFailedPartitions, { runId });
    expect(retryFailedPartitions).toMatchObject({
      pipelineRun: { status: 'WORKERS_RUNNING', failedWorkers: 0, error: null },
      userErrors: [],
    });
    const run = await readRun(ours, runId);
    expect(run!.partitions.map(({ status }) => status)).toEqual(['COMPLETED', 'PENDING', 'PENDING']);
    expect(run!.finishedAt).toBeNull();
  });

  test('is refused when none failed, and in other states', async () => {
    const planless = await runIn('FAILED');
    expect(
      (await ours.ask(RetryFailedPartitions, { runId: planless })).retryFailedPartitions.userErrors,
    ).toMatchObject([{ code: 'INVALID_INPUT' }]);
    const running = await runIn('WORKERS_RUNNING', ['failed', 'pending']);
    expect(
      (await ours.ask(RetryFailedPartitions, { runId: running })).retryFailedPartitions.userErrors,
    ).toMatchObject([
      {
        code: 'ILLEGAL_TRANSITION',
        field: ['input', 'runId'],
        details: { event: 'retry_partitions', from: 'WORKERS_RUNNING' },
      },
    ]);
  });
});

describe('consolidatePipelineRun', () => {
  async function failedRun(partitions: readonly string[]): Promise<string> {
    const runId = await runIn('WORKERS_RUNNING', partitions);
    const row = { machine: pipelineRunMachine, tenantId: 'default', id: runId, runId };
    for (const event of ['skip_consolidation', 'fail']) await fire(api.db, row, event);
    return runId;
  }

  test('needs force when partitions failed', async () => {
    const runId = await failedRun(['completed', 'failed']);
    const { consolidatePipelineRun } = await ours.ask(ConsolidatePipelineRun, { runId });
    expect(consolidatePipelineRun).toMatchObject({
      pipelineRun: null,
      userErrors: [{ code: 'GUARDRAIL', field: ['input', 'force'], details: { failedWorkers: 1 } }],
    });
    const forced = await ours.ask(ConsolidatePipelineRun, { runId, force: true });
    expect(forced.consolidatePipelineRun).toMatchObject({
      pipelineRun: { status: 'CONSOLIDATING' },
      userErrors: [],
    });
  });

  test('needs none when all were read', async () => {
    const runId = await failedRun(['completed', 'completed']);
    const { consolidatePipelineRun } = await ours.ask(ConsolidatePipelineRun, { runId });
    expect(consolidatePipelineRun.pipelineRun).toMatchObject({ status: 'CONSOLIDATING' });
  });

  test('needs force when the plan found nothing, and is refused when there was none', async () => {
    const planless = await runIn('FAILED');
    const refused = await ours.ask(ConsolidatePipelineRun, { runId: planless, force: true });
    expect(refused.consolidatePipelineRun.userErrors).toMatchObject([{ code: 'INVALID_INPUT' }]);
    expect((await readRun(ours, planless))!.allowedActions).toEqual([]);
    const empty = await runIn('FAILED');
    await api.db.query('UPDATE run_metadata SET plan_began_at = started_at WHERE run_id = $1', [empty]);
    expect((await readRun(ours, empty))!.allowedActions).toEqual(['CONSOLIDATE']);
    const asked = await ours.ask(ConsolidatePipelineRun, { runId: empty });
    expect(asked.consolidatePipelineRun.userErrors).toMatchObject([
      { code: 'GUARDRAIL', field: ['input', 'force'] },
    ]);
    const forced = await ours.ask(ConsolidatePipelineRun, { runId: empty, force: true });
    expect(forced.consolidatePipelineRun.pipelineRun).toMatchObject({ status: 'CONSOLIDATING' });
  });

  test.each(['CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING', 'COMPLETED', 'CANCELLED'])(
    'is refused for a run that is %s, even by force',
    async (state) => {
      const runId = await runIn(state);
      const { consolidatePipelineRun } = await ours.ask(ConsolidatePipelineRun, { runId, force: true });
      expect(consolidatePipelineRun.userErrors).toMatchObject([
        { code: 'ILLEGAL_TRANSITION', field: ['input', 'runId'] },
      ]);
    },
  );
});

describe('reading', () => {
  test('pages through all of them, newest first', async () => {
    const all: string[] = [];
    let after: string | null = null;
    let totalCount = 0;
    do {
      const {
        pipelineRuns,
      }: {
        pipelineRuns: {
          totalCount: number;
          nodes: { id: string }[];
          pageInfo: { hasNextPage: boolean; endCursor?: string | null };
        };
      } = await ours.ask(PipelineRuns, { first: 7, after });
      all.push(...pipelineRuns.nodes.map(({ id }) => id));
      ({ totalCount } = pipelineRuns);
      after = pipelineRuns.pageInfo.hasNextPage ? pipelineRuns.pageInfo.endCursor! : null;
    } while (after !== null);
    const rows = await api.db.query<{ id: string }>(
      `SELECT run_id AS id FROM run_metadata WHERE tenant_id = 'default' ORDER BY created_at DESC, run_id DESC`,
    );
    expect(all).toEqual(rows.map(({ id }) => id));
    expect(totalCount).toBe(all.length);
    const { data } = await ours.send('{ pipelineRuns(first: 1) { totalCount totalCountIsCapped } }');
    expect(data).toEqual({ pipelineRuns: { totalCount, totalCountIsCapped: false } });
  });

  test.each(['nonsense', Buffer.from('["1","2"]').toString('base64url')])(
    'refuses the cursor %s',
    async (after) => {
      const { errors } = await ours.send(
        'query ($after: String) { pipelineRuns(after: $after) { nodes { id } } }',
        { after },
      );
      expect(errors).toMatchObject([{ extensions: { code: 'BAD_USER_INPUT' } }]);
    },
  );

  test('a run is a node and a run, for its tenant alone', async () => {
    const runId = await runIn('CREATED');
    expect((await ours.ask(PipelineRunNode, { id: runId })).node).toEqual({
      __typename: 'PipelineRun',
      kind: 'PIPELINE',
      lastSeq: 1,
    });
    expect((await theirs.ask(PipelineRunNode, { id: runId })).node).toBeNull();
    expect(await readRun(theirs, runId)).toBeNull();
  });

  test('a partition that got nowhere for ten minutes is stuck, while its run is read', async () => {
    const runId = await runIn('WORKERS_RUNNING', ['pending', 'pending']);
    await api.db.query(
      `UPDATE partition_progress SET updated_at = now() - interval '10 minutes 1 second'
       WHERE run_id = $1 AND partition_id = 'partition-1'`,
      [runId],
    );
    expect((await readRun(ours, runId))!.partitions.map(({ stuck }) => stuck)).toEqual([false, true]);
    await ours.ask(CancelPipelineRun, { runId });
    expect((await readRun(ours, runId))!.partitions.map(({ stuck }) => stuck)).toEqual([false, false]);
  });
});
