// Webhooks in: signed calls queue runs, replays find the run that is there, and nothing else gets through.
import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, TestApp } from '../support/app.js';
import { countRows } from '../store/rows.js';

const SECRET = 'a-shared-secret';
let app: TestApp;

beforeAll(async () => {
  app = await TestApp.start({
    RUNLEDGER_ROLE: 'api',
    RUNLEDGER_SANDBOX: 'off',
    RUNLEDGER_WEBHOOK_SECRET: SECRET,
  });
});
afterAll(() => app.stop());

const sign = (body: string, secret = SECRET) =>
  `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;

interface Call {
  readonly query?: string;
  readonly headers?: Record<string, string>;
}

async function call(body: string, { query = '', headers = {} }: Call = {}) {
  const response = await fetch(new URL(`/hooks/ops${query}`, app.url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-hub-signature-256': sign(body), ...headers },
    body,
  });
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  return { status: response.status, body: (await response.json()) as any };
}

async function runOf(runId: string) {
  const query = `query ($id: ID!) { opsRun(id: $id) {
    projectId env gitSha gitRef status metadata events { nodes { actor } } } }`;
  return (await app.request(query, { id: runId })).data.opsRun;
}

const PUSH = {
  ref: 'refs/heads/main',
  after: '0123456789abcdef0123456789abcdef01234567',
  deleted: false,
  compare: 'https://github.example/acme/shop/compare/a...b',
  repository: { full_name: 'acme/shop' },
  pusher: { name: 'ada' },
  head_commit: { message: 'Sell more', author: { email: 'ada@example.com' } },
};
const push = (more: object = {}) => JSON.stringify({ ...PUSH, ...more });
const GITHUB = { 'x-github-event': 'push', 'x-github-delivery': 'a6e5c1d0-0000-0000-0000-000000000001' };

describe('GitHub', () => {
  test('a push queues a run about its commit, for the env of the hook’s URL', async () => {
    const answer = await call(push(), { query: '?env=staging', headers: GITHUB });
    expect(answer).toEqual({
      status: 202,
      body: { queued: true, runId: expect.stringMatching(/^run-/), status: 'QUEUED' },
    });
    expect(await runOf(answer.body.runId)).toEqual({
      projectId: 'acme/shop',
      env: 'staging',
      gitSha: PUSH.after,
      gitRef: 'main',
      status: 'QUEUED',
      metadata: {
        trigger: 'github.push',
        author: 'ada@example.com',
        message: 'Sell more',
        url: PUSH.compare,
      },
      events: { nodes: [{ actor: 'webhook' }] },
    });
  });

  test('a delivery that comes again is the same run, also under another delivery id or URL', async () => {
    const body = push({ after: 'f'.repeat(40) });
    const first = await call(body, { query: '?env=staging', headers: GITHUB });
    const before = await countRows(app.db);
    const again = await call(body, { query: '?env=staging', headers: GITHUB });
    const redirected = await call(body, {
      query: '?env=production',
      headers: { ...GITHUB, 'x-github-delivery': 'another' },
    });
    expect([again.body.runId, redirected.body.runId]).toEqual([first.body.runId, first.body.runId]);
    expect(await countRows(app.db)).toEqual(before);
  });

  test('a form carries the same', async () => {
    const body = `payload=${encodeURIComponent(push({ after: 'e'.repeat(40) }))}`;
    const headers = { ...GITHUB, 'content-type': 'application/x-www-form-urlencoded' };
    const { status, body: answer } = await call(body, { headers });
    expect(status).toBe(202);
    expect(await runOf(answer.runId)).toMatchObject({ gitSha: 'e'.repeat(40), env: 'default' });
  });

  test('a deployment names its own env', async () => {
    const body = JSON.stringify({
      repository: { full_name: 'acme/shop' },
      deployment: { sha: 'd'.repeat(40), ref: 'v1.2', environment: 'production', creator: { login: 'ada' } },
    });
    const { body: answer } = await call(body, { headers: { 'x-github-event': 'deployment' } });
    expect(await runOf(answer.runId)).toMatchObject({
      env: 'production',
      gitRef: 'v1.2',
      metadata: { trigger: 'github.deployment', author: 'ada' },
    });
  });

  test.each([
    ['a ping', 'ping', JSON.stringify({ zen: 'x' }), ''],
    ['an issue', 'issues', JSON.stringify({ action: 'opened' }), ''],
    ['a deleted branch', 'push', push({ deleted: true }), ''],
    ['another branch than the hook listens to', 'push', push({ ref: 'refs/heads/topic' }), '?ref=main'],
  ])('%s is heard and queues nothing', async (_what, event, body, query) => {
    const before = await countRows(app.db);
    const answer = await call(body, { query, headers: { 'x-github-event': event } });
    expect(answer).toMatchObject({ status: 200, body: { queued: false, reason: expect.any(String) } });
    expect(await countRows(app.db)).toEqual(before);
  });
});

test('anybody else gives the fields of queueOpsRun, with a key of their own if they like', async () => {
  const body = (note: string) =>
    JSON.stringify({
      projectId: 'shop',
      env: 'nightly',
      metadata: { note },
      idempotencyKey: 'night-1',
      priority: 3,
      onStale: 'REQUEUE',
      maxAttempts: 7,
    });
  const first = await call(body('a'));
  expect(await runOf(first.body.runId)).toMatchObject({
    projectId: 'shop',
    env: 'nightly',
    metadata: { note: 'a' },
  });
  expect((await call(body('b'))).body.runId).toBe(first.body.runId);
  expect(
    await app.db.query('SELECT on_stale, max_attempts, priority FROM ops_run WHERE env = $1', ['nightly']),
  ).toEqual([{ on_stale: 'requeue', max_attempts: 7, priority: 3 }]);
});

describe('refused, with nothing queued', () => {
  test.each<[string, number, string, Call]>([
    ['no signature', 401, push(), { headers: { 'x-hub-signature-256': '' } }],
    ['another secret', 401, push(), { headers: { 'x-hub-signature-256': sign(push(), 'another-secret') } }],
    ['the signature of another body', 401, push(), { headers: { 'x-hub-signature-256': sign('{}') } }],
    ['a signature that is none', 401, push(), { headers: { 'x-hub-signature-256': 'sha256=xyz' } }],
    ['no JSON', 400, '{', {}],
    ['an empty body', 400, '', {}],
    ['a list', 400, '[]', {}],
    ['a number for a project', 400, '{"projectId": 7}', {}],
    ['a long project', 400, JSON.stringify({ projectId: 'x'.repeat(300) }), {}],
    ['metadata that is a list', 400, '{"metadata": []}', {}],
    ['a fraction as priority', 400, '{"priority": 1.5}', {}],
    ['a word for a number of attempts', 400, '{"maxAttempts": "many"}', {}],
    ['no attempt at all', 400, '{"maxAttempts": 0}', {}],
    ['what nobody does with a stale run', 400, '{"onStale": "IGNORE"}', {}],
    ['another content type', 415, push(), { headers: { 'content-type': 'text/plain' } }],
  ])('%s', async (_what, status, body, how) => {
    const before = await countRows(app.db);
    const answer = await call(body, how);
    expect(answer.status).toBe(status);
    expect(answer.body.errors).toMatchObject([{ message: expect.any(String) }]);
    expect(await countRows(app.db)).toEqual(before);
  });

  test('without a secret the door is closed, and says how to open it', async () => {
    const closed = await startApp(app.database.url, { RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
    const response = await fetch(new URL('/hooks/ops', closed.url!), { method: 'POST', body: push() });
    expect(response.status).toBe(404);
    expect(await response.text()).toContain('RUNLEDGER_WEBHOOK_SECRET');
    await closed.stop();
  });
});
