// Subscriptions on rule runs through the whole stack: WebSocket, resolver, feed, database.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RuleRunProgress, RunChanged, RunEvents } from './live-documents.js';
import { makeRun, queue } from './rule-run-documents.js';
import { changeUntil, startApi, type ApiClient, type TestApi } from './support.js';

let api: TestApi;
let operator: ApiClient;
let viewer: ApiClient;

beforeAll(async () => {
  api = await startApi();
  operator = await api.client('OPERATOR');
  viewer = await api.client('VIEWER');
});
afterAll(() => api.stop());

test('ruleRunProgress shows the run as it is, then as it changes', async () => {
  const runId = await makeRun(operator, api.world.home);
  const states = operator.watch(RuleRunProgress, { runId });
  const now = (await states.next()).value.data!.ruleRunProgress;
  expect(now).toMatchObject({
    id: runId,
    status: 'PREVIEW',
    channel: { name: 'shop' },
    allowedActions: ['QUEUE', 'CANCEL'],
    counts: { total: 3, queued: 0 },
  });
  await queue(operator, runId);
  for await (const { data } of states) {
    const { status, counts, allowedActions } = data!.ruleRunProgress;
    if (status !== 'QUEUED' || counts.queued < 3) continue;
    // Loaded anew for each event, and for this viewer.
    expect(allowedActions).toEqual(['CANCEL', 'PAUSE']);
    break;
  }
});

test('two viewers of one run are each shown what they may ask of it', async () => {
  const runId = await makeRun(operator, api.world.home);
  const [forOperator, forViewer] = [operator, viewer].map((client) =>
    client.watch(RuleRunProgress, { runId }),
  );
  expect((await forOperator!.next()).value.data.ruleRunProgress.allowedActions).toEqual(['QUEUE', 'CANCEL']);
  expect((await forViewer!.next()).value.data.ruleRunProgress.allowedActions).toEqual([]);
});

describe('runEvents', () => {
  test('replays the ledger after a seq, then follows it', async () => {
    const runId = await makeRun(operator, api.world.home);
    const seen: number[] = [];
    for await (const { data } of viewer.watch(RunEvents, { runId, after: 1 })) {
      const { seq, id, runId: of } = data!.runEvents;
      expect([id, of]).toEqual([`${runId}:${seq}`, runId]);
      seen.push(seq);
      if (seen.length === 1) await queue(operator, runId);
      if (seen.length === 5) break;
    }
    expect(seen).toEqual([2, 3, 4, 5, 6]);
  });

  test.each([
    [-1, 'BAD_USER_INPUT'],
    [99, 'BAD_USER_INPUT'],
  ])('after %j is %s', async (after, code) => {
    const runId = await makeRun(operator, api.world.home);
    const { value } = await viewer.watch(RunEvents, { runId, after }).next();
    expect(value.errors).toMatchObject([{ extensions: { code } }]);
  });

  test.each(['garbage', '', '00000000-0000-7000-8000-000000000000'])(
    'of the run %j is NOT_FOUND',
    async (runId) => {
      for (const events of [viewer.watch(RunEvents, { runId }), viewer.watch(RuleRunProgress, { runId })]) {
        expect((await events.next()).value.errors).toMatchObject([{ extensions: { code: 'NOT_FOUND' } }]);
      }
    },
  );
});

test('runChanged shows a changed run of the project', async () => {
  const wanted: string[] = [];
  const { runChanged } = await changeUntil(
    viewer.watch(RunChanged, { kind: 'RULE', projectId: 'board' }),
    async () => {
      await makeRun(operator, api.world.home, { projectId: 'elsewhere' });
      wanted.push(await makeRun(operator, api.world.home, { projectId: 'board' }));
    },
  );
  expect(wanted).toContain(runChanged.id);
  expect(runChanged).toMatchObject({
    __typename: 'RuleRun',
    kind: 'RULE',
    projectId: 'board',
    status: 'PREVIEW',
  });
});
