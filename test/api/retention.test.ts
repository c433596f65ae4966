// Retention over the API: the policies, and what a pruned run looks like from outside.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pruneDueRuns } from '../../src/store/prune.js';
import { age, endedRun, keepFor } from '../support/retention.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

let api: TestApi;
let client: ApiClient;

beforeAll(async () => {
  api = await startApi();
  client = await api.client();
});
afterAll(() => api.stop());

interface Policy {
  readonly kind: string;
  readonly keepDays: number | null;
  readonly rollbackDays: number | null;
  readonly updatedBy: string | null;
}

const SAVE = `mutation ($input: SaveRetentionPolicyInput!) {
  saveRetentionPolicy(input: $input) {
    retentionPolicy { kind keepDays rollbackDays updatedBy updatedAt } userErrors { code field message }
  }
}`;

async function save(input: object, as = client) {
  const { data, errors } = await as.send<{
    saveRetentionPolicy: {
      retentionPolicy: Policy | null;
      userErrors: readonly { readonly code: string; readonly field: readonly string[] }[];
    };
  }>(SAVE, { input });
  if (!data) throw new Error(JSON.stringify(errors));
  return data.saveRetentionPolicy;
}

async function list(as = client): Promise<readonly Policy[]> {
  const query = '{ retentionPolicies { kind keepDays rollbackDays updatedBy } }';
  return (await as.send<{ retentionPolicies: Policy[] }>(query)).data!.retentionPolicies;
}

const unset = (kind: string) => ({ kind, keepDays: null, rollbackDays: null, updatedBy: null });

describe('policies', () => {
  test('are unset at first, saved, unset again, and seen by their tenant alone', async () => {
    expect(await list()).toEqual(['RULE', 'PIPELINE', 'OPS'].map(unset));
    const { retentionPolicy, userErrors } = await save({ kind: 'RULE', keepDays: 30, rollbackDays: 400 });
    expect(userErrors).toEqual([]);
    expect(retentionPolicy).toMatchObject({ kind: 'RULE', keepDays: 30, rollbackDays: 400 });
    await save({ kind: 'OPS', keepDays: 7 });
    expect((await list()).map(({ keepDays }) => keepDays)).toEqual([30, null, 7]);
    expect((await list())[0]!.updatedBy).toMatch(/^key:/);
    expect(await list(await api.client('VIEWER', 'other'))).toEqual(['RULE', 'PIPELINE', 'OPS'].map(unset));
    for (const kind of ['RULE', 'OPS']) await save({ kind });
    expect((await list()).map(({ keepDays }) => keepDays)).toEqual([null, null, null]);
  });

  test.each([
    [{ kind: 'RULE', keepDays: 0 }, 'keepDays'],
    [{ kind: 'RULE', keepDays: -1 }, 'keepDays'],
    [{ kind: 'RULE', keepDays: 36_501 }, 'keepDays'],
    [{ kind: 'RULE', keepDays: 30, rollbackDays: 29 }, 'rollbackDays'],
    [{ kind: 'RULE', rollbackDays: 30 }, 'rollbackDays'],
    [{ kind: 'OPS', keepDays: 1, rollbackDays: 30 }, 'rollbackDays'],
  ])('%j is refused', async (input, field) => {
    const { retentionPolicy, userErrors } = await save(input);
    expect(retentionPolicy).toBeNull();
    expect(userErrors).toMatchObject([{ code: 'INVALID_INPUT', field: ['input', field] }]);
  });

  test('are set by an admin alone', async () => {
    for (const role of ['OPERATOR', 'VIEWER'] as const) {
      const { errors } = await (await api.client(role)).send(SAVE, { input: { kind: 'RULE', keepDays: 1 } });
      expect(errors?.[0]?.extensions).toMatchObject({ code: 'FORBIDDEN' });
    }
  });
});

describe('a pruned run', () => {
  let runId: string;

  beforeAll(async () => {
    runId = await endedRun(api.db, api.world.home, 'PARTIAL', 31);
    await keepFor(api.db, api.world.home, 'RULE', 30, 30);
    await pruneDueRuns(api.db);
    await keepFor(api.db, api.world.home, 'RULE', null);
  });

  test('shows its counts and that it was pruned; its lists are empty, and nothing is allowed', async () => {
    const { data } = await client.send<{ ruleRun: Record<string, unknown> }>(
      `query ($id: ID!) { ruleRun(id: $id) {
         status lastSeq prunedSeq prunedAt finishedAt allowedActions counts { total applied failed }
         events { nodes { seq } pageInfo { hasNextPage } } targets { nodes { id } totalCount pageInfo { hasNextPage } }
       } }`,
      { id: runId },
    );
    const run = data!.ruleRun;
    expect(run).toMatchObject({
      status: 'PARTIAL',
      prunedSeq: run['lastSeq'],
      prunedAt: expect.any(String) as string,
      allowedActions: [],
      counts: { total: 3, applied: 2, failed: 1 },
      events: { nodes: [], pageInfo: { hasNextPage: false } },
      targets: { nodes: [], totalCount: 3, pageInfo: { hasNextPage: false } },
    });
  });

  test.each([
    ['rollBackRuleRun', 'RollBackRuleRunInput'],
    ['retryFailedTargets', 'RetryFailedTargetsInput'],
    ['cancelRuleRun', 'RuleRunInput'],
    ['reconcileRuleRun', 'RuleRunInput'],
  ])('%s is refused, and says why', async (verb, input) => {
    const { data, errors } = await client.send<Record<string, { userErrors: unknown[] }>>(
      `mutation ($input: ${input}!) { ${verb}(input: $input) { userErrors { code message field details } } }`,
      { input: { runId } },
    );
    expect(errors).toBeUndefined();
    expect(data![verb]!.userErrors).toEqual([
      {
        code: 'CONFLICT',
        message: expect.stringMatching(/^The run was pruned at .*deleted/) as string,
        field: ['input', 'runId'],
        details: { prunedAt: expect.any(String) as string },
      },
    ]);
  });

  test('whoever subscribes from its beginning is told that it is gone, and where to begin', async () => {
    const events = client.stream<unknown>(
      'subscription ($id: ID!) { runEvents(runId: $id, after: 0) { seq } }',
      { id: runId },
    );
    const { value } = (await events.next()) as IteratorYieldResult<{
      readonly errors?: readonly { readonly message: string; readonly extensions?: object }[];
    }>;
    expect(value.errors).toMatchObject([
      {
        message: expect.stringContaining('ledger was pruned') as string,
        extensions: { code: 'BAD_USER_INPUT', details: { prunedSeq: expect.any(Number) as number } },
      },
    ]);
  });
});

test('a failed pipeline run that was pruned cannot be taken up again', async () => {
  const [row] = await api.db.query<{ id: string }>(
    `INSERT INTO run_metadata (tenant_id, source_id, run_type, expected_workers) VALUES ('default', $1, 'full', 1)
     RETURNING run_id AS id`,
    [api.world.home.sourceId],
  );
  const { id } = row!;
  for (const status of ['WORKERS_RUNNING', 'CONSOLIDATION_SKIPPED', 'FAILED'])
    await api.db.query('UPDATE run_metadata SET status = $2 WHERE run_id = $1', [id, status]);
  await age(api.db, 'PIPELINE', id, 31);
  await keepFor(api.db, api.world.home, 'PIPELINE', 30);
  await pruneDueRuns(api.db);
  const { data } = await client.send<Record<string, Record<string, unknown>>>(
    `mutation ($input: ConsolidatePipelineRunInput!) {
       consolidatePipelineRun(input: $input) { pipelineRun { id } userErrors { code } } }`,
    { input: { runId: id, force: true } },
  );
  expect(data!['consolidatePipelineRun']).toEqual({ pipelineRun: null, userErrors: [{ code: 'CONFLICT' }] });
  const read = await client.send<Record<string, Record<string, unknown>>>(
    'query ($id: ID!) { pipelineRun(id: $id) { allowedActions prunedAt partitions { partitionId } } }',
    { id },
  );
  expect(read.data!['pipelineRun']).toEqual({
    allowedActions: [],
    prunedAt: expect.any(String) as string,
    partitions: [],
  });
});
