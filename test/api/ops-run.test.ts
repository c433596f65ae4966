// Ops runs over HTTP: what each mutation does and answers, what it refuses, and that a refusal leaves every
// row as it was.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { OpsRunStatus } from '../generated/graphql.js';
import { APPEND, CANCEL, CLAIM, FINISH, HEARTBEAT, NODE, QUEUE, RUN, RUNS } from '../ops/documents.js';
import { picture } from '../ops/support.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

let api: TestApi;
let operator: ApiClient;
let worker: ApiClient;
let stranger: ApiClient;

beforeAll(async () => {
  api = await startApi();
  operator = await api.client('OPERATOR');
  worker = await api.client('WORKER');
  stranger = await api.client('ADMIN', 'other');
});
afterAll(() => api.stop());

async function queue(env: string = crypto.randomUUID(), more: object = {}) {
  const { queueOpsRun } = await operator.ask(QUEUE, { input: { projectId: 'shop', env, ...more } });
  expect(queueOpsRun.userErrors).toEqual([]);
  return queueOpsRun.opsRun!;
}

async function claim(env: string, workerId = 'worker-1') {
  return (await worker.ask(CLAIM, { input: { workerId, env } })).claimNextOpsRun.opsRun;
}

async function claimed(workerId = 'worker-1'): Promise<string> {
  const { id, env } = await queue();
  expect((await claim(env, workerId))!.id).toBe(id);
  return id;
}

async function append(runId: string, more: object = {}) {
  const input = { runId, workerId: 'worker-1', message: 'hello', ...more };
  return (await worker.ask(APPEND, { input })).appendOpsRunEvent;
}

async function finish(runId: string, status: OpsRunStatus, more: object = {}) {
  return (await worker.ask(FINISH, { input: { runId, workerId: 'worker-1', status, ...more } })).finishOpsRun;
}

async function heartbeat(runId: string, workerId = 'worker-1', attempt?: number) {
  const input = { runId, workerId, attempt: attempt ?? null };
  return (await worker.ask(HEARTBEAT, { input })).heartbeatOpsRun;
}

async function expectUnchanged(runId: string, work: () => Promise<void>): Promise<void> {
  const before = await picture(api.db, runId);
  await work();
  expect(await picture(api.db, runId)).toEqual(before);
}

const codeOf = ({ userErrors }: { userErrors: readonly { code: string }[] }) =>
  userErrors.map(({ code }) => code);

test('a run goes from the queue to success, and the ledger names who did what', async () => {
  const run = await queue('production', {
    gitSha: '7c0ffee',
    gitRef: 'main',
    metadata: { author: 'ada' },
    idempotencyKey: 'straight',
  });
  expect(run).toMatchObject({
    id: expect.stringMatching(/^run-[0-9a-f-]{36}$/),
    kind: 'OPS',
    status: 'QUEUED',
    gitSha: '7c0ffee',
    gitRef: 'main',
    claimedBy: null,
    attempt: 0,
    metadata: { author: 'ada' },
    lastSeq: 1,
  });
  expect(await claim('production')).toMatchObject({
    id: run.id,
    status: 'CLAIMED',
    claimedBy: 'worker-1',
    attempt: 1,
  });
  expect(await heartbeat(run.id)).toMatchObject({ cancelled: false, opsRun: { status: 'CLAIMED' } });
  const { event } = await append(run.id, { level: 'WARN', payload: { step: 1 } });
  expect(event).toEqual({
    id: `${run.id}:4`,
    runId: run.id,
    runKind: 'OPS',
    seq: 4,
    type: 'log',
    level: 'WARN',
    message: 'hello',
    payload: { step: 1 },
    actor: 'worker-1',
  });
  const artifacts = [{ type: 'image', url: 'registry.example/shop:7c0ffee' }];
  expect(
    await finish(run.id, 'SUCCESS', { metadata: { exit_code: 0, artifacts: [...artifacts, 7] } }),
  ).toMatchObject({
    userErrors: [],
    opsRun: { status: 'SUCCESS', metadata: { author: 'ada', exit_code: 0 }, artifacts },
  });
  const { opsRun } = await worker.ask(RUN, { id: run.id });
  expect(opsRun!.events.nodes.map(({ type, actor }) => [type, actor])).toEqual([
    ['ops_run.create', 'key:default OPERATOR'],
    ['ops_run.claim', 'worker-1'],
    ['ops_run.start', 'worker-1'],
    ['log', 'worker-1'],
    ['ops_run.succeed', 'worker-1'],
  ]);
});

describe('queue', () => {
  test('the same key and input is the same run, however its JSON is ordered', async () => {
    const first = await queue('keys', { idempotencyKey: 'k1', metadata: { a: 1, b: { c: 2, d: 3 } } });
    await claim('keys');
    await finish(first.id, 'SUCCESS', { metadata: { more: true } });
    const again = await queue('keys', { idempotencyKey: 'k1', metadata: { b: { d: 3, c: 2 }, a: 1 } });
    expect(again).toMatchObject({ id: first.id, status: 'SUCCESS' });
  });

  test('the same key with another input is refused', async () => {
    const { id } = await queue('keys', { idempotencyKey: 'k2' });
    const { queueOpsRun } = await operator.ask(QUEUE, {
      input: { projectId: 'shop', env: 'other', idempotencyKey: 'k2' },
    });
    expect(queueOpsRun.opsRun).toBeNull();
    expect(queueOpsRun.userErrors).toMatchObject([
      { code: 'IDEMPOTENCY_MISMATCH', field: ['input', 'idempotencyKey'], details: { runId: id } },
    ]);
  });

  test('another tenant has keys of its own', async () => {
    const { id } = await queue('keys', { idempotencyKey: 'k3' });
    const { queueOpsRun } = await stranger.ask(QUEUE, {
      input: { projectId: 'shop', env: 'keys', idempotencyKey: 'k3' },
    });
    expect(queueOpsRun.opsRun!.id).not.toBe(id);
  });

  test.each<[string, object, string, string]>([
    ['an empty project', { projectId: '' }, 'INVALID_INPUT', 'projectId'],
    ['a long env', { env: 'x'.repeat(256) }, 'INVALID_INPUT', 'env'],
    ['metadata that is a list', { metadata: [] }, 'INVALID_INPUT', 'metadata'],
    ['large metadata', { metadata: { x: 'x'.repeat(300_000) } }, 'LIMIT_EXCEEDED', 'metadata'],
    ['no attempts', { maxAttempts: 0 }, 'INVALID_INPUT', 'maxAttempts'],
    ['a key with a line break', { idempotencyKey: 'a\nb' }, 'INVALID_INPUT', 'idempotencyKey'],
  ])('%s is refused', async (_what, more, code, field) => {
    const input = { projectId: 'shop', env: 'e', ...more };
    const { queueOpsRun } = await operator.ask(QUEUE, { input });
    expect(queueOpsRun).toMatchObject({ opsRun: null, userErrors: [{ code, field: ['input', field] }] });
  });
});

describe('claim', () => {
  test('the oldest of the highest priority first, within the filters', async () => {
    const env = crypto.randomUUID();
    const old = await queue(env);
    const young = await queue(env);
    const urgent = await queue(env, { priority: 5 });
    expect(
      [await claim(env), await claim(env), await claim(env), await claim(env)].map((run) => run?.id),
    ).toEqual([urgent.id, old.id, young.id, undefined]);
  });

  test('a hundred workers at once, fifty runs: each run has one of them, and none is left', async () => {
    const env = crypto.randomUUID();
    const queued = await Promise.all(Array.from({ length: 50 }, () => queue(env)));
    const claims = await Promise.all(
      Array.from({ length: 100 }, (_, index) => claim(env, `worker-${index}`)),
    );
    const won = claims.filter((run) => run !== null);
    expect(won.map(({ id }) => id).sort()).toEqual(queued.map(({ id }) => id).sort());
    expect(new Set(won.map(({ claimedBy }) => claimedBy)).size).toBe(50);
    expect((await operator.ask(RUNS, { env, status: ['QUEUED'] })).opsRuns.totalCount).toBe(0);
  });

  test('a project that nobody has and another tenant find nothing', async () => {
    const { env } = await queue();
    const { claimNextOpsRun } = await worker.ask(CLAIM, {
      input: { workerId: 'worker-1', env, projectId: 'nobody' },
    });
    expect(claimNextOpsRun).toEqual({ opsRun: null, userErrors: [] });
    const { claimNextOpsRun: foreign } = await stranger.ask(CLAIM, { input: { workerId: 'worker-1', env } });
    expect(foreign).toEqual({ opsRun: null, userErrors: [] });
    expect(await claim(env)).not.toBeNull();
  });

  test.each(['', 'system', 'key:admin', 'x'.repeat(256)])(
    '"%s" is no name for a worker',
    async (workerId) => {
      const { claimNextOpsRun } = await worker.ask(CLAIM, { input: { workerId } });
      expect(claimNextOpsRun).toMatchObject({
        opsRun: null,
        userErrors: [{ code: 'INVALID_INPUT', field: ['input', 'workerId'] }],
      });
    },
  );
});

describe('another worker', () => {
  test('neither appends nor beats nor finishes', async () => {
    const runId = await claimed();
    await expectUnchanged(runId, async () => {
      expect(codeOf(await append(runId, { workerId: 'worker-2' }))).toEqual(['CLAIM_LOST']);
      expect(codeOf(await heartbeat(runId, 'worker-2'))).toEqual(['CLAIM_LOST']);
      expect(codeOf(await finish(runId, 'SUCCESS', { workerId: 'worker-2' }))).toEqual(['CLAIM_LOST']);
    });
    expect(codeOf(await finish(runId, 'SUCCESS'))).toEqual([]);
  });

  test('the same worker under an attempt that is over neither', async () => {
    const runId = await claimed();
    await expectUnchanged(runId, async () => {
      expect(codeOf(await append(runId, { attempt: 7 }))).toEqual(['CLAIM_LOST']);
      expect(codeOf(await heartbeat(runId, 'worker-1', 7))).toEqual(['CLAIM_LOST']);
    });
    expect(codeOf(await append(runId, { attempt: 1 }))).toEqual([]);
  });

  test('of another tenant finds no run at all', async () => {
    const runId = await claimed();
    await expectUnchanged(runId, async () => {
      const input = { runId, workerId: 'worker-1' };
      const { appendOpsRunEvent } = await stranger.ask(APPEND, { input: { ...input, message: 'x' } });
      expect(codeOf(appendOpsRunEvent)).toEqual(['NOT_FOUND']);
      const { finishOpsRun } = await stranger.ask(FINISH, { input: { ...input, status: 'SUCCESS' } });
      expect(codeOf(finishOpsRun)).toEqual(['NOT_FOUND']);
      expect(codeOf((await stranger.ask(CANCEL, { input: { runId } })).cancelOpsRun)).toEqual(['NOT_FOUND']);
      expect((await stranger.ask(RUN, { id: runId })).opsRun).toBeNull();
      expect((await stranger.ask(NODE, { id: runId })).node).toBeNull();
    });
  });
});

describe('a run that was never claimed', () => {
  const illegal = (from: OpsRunStatus, allowed: string[]) => [
    { code: 'ILLEGAL_TRANSITION', details: { machine: 'ops_run', from, allowed } },
  ];

  test('has no claim to lose: its state refuses, and says what is allowed', async () => {
    const { id } = await queue();
    await expectUnchanged(id, async () => {
      for (const more of [{}, { attempt: 1 }]) {
        const refusals = [
          await append(id, more),
          await finish(id, 'SUCCESS', more),
          await finish(id, 'FAILED', more),
          await heartbeat(id, 'worker-1', 1),
        ];
        for (const { userErrors } of refusals)
          expect(userErrors).toMatchObject(illegal('QUEUED', ['cancel', 'claim']));
      }
    });
    await operator.ask(CANCEL, { input: { runId: id } });
    await expectUnchanged(id, async () => {
      for (const { userErrors } of [
        await append(id),
        await finish(id, 'SUCCESS'),
        await finish(id, 'CANCELLED'),
      ])
        expect(userErrors).toMatchObject(illegal('CANCELLED', []));
    });
  });
});

describe('a run that has ended', () => {
  const ends: OpsRunStatus[] = ['SUCCESS', 'FAILED'];
  test.each(ends)('as %s is not finished again, takes no event and is not cancelled', async (status) => {
    const runId = await claimed();
    await finish(runId, status);
    await expectUnchanged(runId, async () => {
      for (const again of ['SUCCESS', 'FAILED', 'CANCELLED'] as const) {
        expect(await finish(runId, again)).toMatchObject({
          opsRun: null,
          userErrors: [
            { code: 'ILLEGAL_TRANSITION', details: { machine: 'ops_run', from: status, allowed: [] } },
          ],
        });
      }
      expect(codeOf(await append(runId))).toEqual(['ILLEGAL_TRANSITION']);
      expect(codeOf((await operator.ask(CANCEL, { input: { runId } })).cancelOpsRun)).toEqual([
        'ILLEGAL_TRANSITION',
      ]);
    });
    expect(await heartbeat(runId)).toMatchObject({ cancelled: false, opsRun: { status } });
  });
});

test.each(['QUEUED', 'CLAIMED', 'RUNNING'] as const)('a run does not finish as %s', async (status) => {
  const runId = await claimed();
  await expectUnchanged(runId, async () => {
    expect(await finish(runId, status)).toMatchObject({
      opsRun: null,
      userErrors: [{ code: 'INVALID_INPUT', field: ['input', 'status'] }],
    });
  });
});

test('an unknown level or status does not fit the schema', async () => {
  const runId = await claimed();
  await expectUnchanged(runId, async () => {
    for (const text of [
      `mutation { appendOpsRunEvent(input: { runId: "${runId}", workerId: "worker-1", message: "x", level: FATAL }) { userErrors { code } } }`,
      `mutation { finishOpsRun(input: { runId: "${runId}", workerId: "worker-1", status: DONE }) { userErrors { code } } }`,
    ]) {
      expect((await worker.send(text)).errors).toMatchObject([{ extensions: { code: 'BAD_USER_INPUT' } }]);
    }
  });
});

test('a message of 1 MB is refused with the limit, and the worker goes on', async () => {
  const runId = await claimed();
  await expectUnchanged(runId, async () => {
    expect(await append(runId, { message: 'x'.repeat(1_000_000) })).toMatchObject({
      event: null,
      userErrors: [
        { code: 'LIMIT_EXCEEDED', field: ['input', 'message'], details: { limit: 65_536, given: 1_000_000 } },
      ],
    });
  });
  expect(codeOf(await append(runId, { message: 'x'.repeat(65_536) }))).toEqual([]);
});

test.each(['nothing', 'run-', 'run-00000000-0000-0000-0000-000000000000'])(
  'there is no run "%s"',
  async (runId) => {
    expect(codeOf(await append(runId))).toEqual(['NOT_FOUND']);
    expect(codeOf(await finish(runId, 'SUCCESS'))).toEqual(['NOT_FOUND']);
    expect(codeOf((await operator.ask(CANCEL, { input: { runId } })).cancelOpsRun)).toEqual(['NOT_FOUND']);
    expect((await operator.ask(RUN, { id: runId })).opsRun).toBeNull();
  },
);

test('a run is found by its own id only, not by the key of its row', async () => {
  const { id, env } = await queue();
  expect((await operator.ask(NODE, { id })).node).toEqual({ __typename: 'OpsRun', id, env });
  const key = id.slice('run-'.length);
  expect((await operator.ask(NODE, { id: key })).node).toBeNull();
  expect((await operator.ask(RUN, { id: key })).opsRun).toBeNull();
});

test('runs are listed newest first, by filter and page', async () => {
  const env = crypto.randomUUID();
  const ids: string[] = [];
  for (let index = 0; index < 5; index += 1) ids.unshift((await queue(env)).id);
  await claim(env, 'lister');
  const first = (await operator.ask(RUNS, { env, first: 3 })).opsRuns;
  expect(first.nodes.map(({ id }) => id)).toEqual(ids.slice(0, 3));
  expect(first).toMatchObject({ totalCount: 5, pageInfo: { hasNextPage: true, hasPreviousPage: false } });
  const second = (await operator.ask(RUNS, { env, first: 3, after: first.pageInfo.endCursor! })).opsRuns;
  expect(second.nodes.map(({ id }) => id)).toEqual(ids.slice(3));
  expect(second.pageInfo).toMatchObject({ hasNextPage: false, hasPreviousPage: true });

  const byWorker = (await operator.ask(RUNS, { claimedBy: 'lister' })).opsRuns;
  expect(byWorker.nodes.map(({ id }) => id)).toEqual([ids.at(-1)]);
  const queued = (await operator.ask(RUNS, { env, status: ['QUEUED'] })).opsRuns;
  expect(queued.totalCount).toBe(4);
  expect((await operator.ask(RUNS, { env, projectId: 'nobody' })).opsRuns.totalCount).toBe(0);
  expect((await stranger.ask(RUNS, { env })).opsRuns.totalCount).toBe(0);
  for (const args of ['first: 0', 'first: 101', 'after: "x"', `after: "${btoa('["x","y"]')}"`]) {
    const { errors } = await operator.send(`{ opsRuns(${args}) { totalCount } }`);
    expect(errors, args).toMatchObject([{ extensions: { code: 'BAD_USER_INPUT' } }]);
  }
});

describe('cancel', () => {
  test('a queued run is never claimed', async () => {
    const { id, env } = await queue();
    const { cancelOpsRun } = await operator.ask(CANCEL, { input: { runId: id, reason: 'not today' } });
    expect(cancelOpsRun.opsRun).toMatchObject({
      status: 'CANCELLED',
      metadata: { cancelled_by: 'key:default OPERATOR', reason: 'not today', timestamp: expect.any(String) },
    });
    expect(await claim(env)).toBeNull();
  });

  test('a running worker learns of it at its next event or heartbeat, and its result is kept as a line', async () => {
    const runId = await claimed();
    await append(runId);
    await operator.ask(CANCEL, { input: { runId } });
    expect(await heartbeat(runId)).toMatchObject({ cancelled: true, userErrors: [] });
    expect(await append(runId, { message: 'still here' })).toMatchObject({
      userErrors: [{ code: 'ILLEGAL_TRANSITION', details: { from: 'CANCELLED' } }],
    });
    const late = { metadata: { exit_code: 143 } };
    expect(codeOf(await finish(runId, 'FAILED', late))).toEqual(['ILLEGAL_TRANSITION']);
    expect(codeOf(await finish(runId, 'FAILED', late))).toEqual(['ILLEGAL_TRANSITION']);
    const { opsRun } = await operator.ask(RUN, { id: runId });
    expect(opsRun!.status).toBe('CANCELLED');
    expect(opsRun!.events.nodes.filter(({ type }) => type === 'ops_run.late_result')).toMatchObject([
      { level: 'WARN', actor: 'worker-1', payload: { result: 'failed', metadata: { exit_code: 143 } } },
    ]);
  });
});
