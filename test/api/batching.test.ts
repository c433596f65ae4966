// What is reached through a list is read for the whole list at once: the number of statements does not grow
// with the number of rows.
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { makeQueuedRun, makeRuleRun } from '../support/fixtures.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

const RUNS = 50;

let api: TestApi;
let viewer: ApiClient;

beforeAll(async () => {
  api = await startApi();
  viewer = await api.client('VIEWER');
  for (let made = 0; made < RUNS; made += 1) await makeQueuedRun(api.db, api.world.home);
  await api.db.query(
    `INSERT INTO reconciliation_report (id, tenant_id, run_id, trigger, total_checked, mismatches)
     SELECT gen_random_uuid(), tenant_id, id, 'manual', 0, 0 FROM rule_run`,
  );
});
afterAll(() => api.stop());

const OF_RUNS = /rule_run|rule_target|run_event|channel|reconciliation_report/;

/** How many statements on runs an operation takes; the server has others to make, e.g. to look up the key. */
async function statementsOf(query: string): Promise<number> {
  const spy = vi.spyOn(pg.Client.prototype, 'query');
  try {
    const { errors } = await viewer.send(query);
    expect(errors).toBeUndefined();
    const texts = (spy.mock.calls as unknown[][]).map(([config]) =>
      typeof config === 'string' ? config : String((config as { text?: string }).text),
    );
    return texts.filter((text) => OF_RUNS.test(text)).length;
  } finally {
    spy.mockRestore();
  }
}

/** A page of runs: which they are, by an index, and then their rows. */
const PAGE = 2;

const overRuns = (selection: string) => `{ ruleRuns(first: ${RUNS}) { nodes { ${selection} } } }`;

describe(`${RUNS} runs`, () => {
  test.each([
    ['their own fields', 'id status counts { total } progress allowedActions rule { id }', PAGE],
    ['the channel of each', 'channel { name health { circuit } }', PAGE + 1],
    ['a page of targets of each', 'targets(first: 2) { totalCount nodes { externalId } }', PAGE + 1],
    ['targets and their histories', 'targets(first: 2) { nodes { history { type } } }', PAGE + 2],
    [
      'two different pages of each',
      'a: targets(first: 1) { nodes { id } } b: targets(first: 2) { nodes { id } }',
      PAGE + 2,
    ],
    ['a page of events of each', 'events(first: 3) { nodes { type } }', PAGE + 1],
    ['rate and time left of each', 'ratePerSecond etaSeconds', PAGE + 1],
    ['the reconciliations of each', 'reconciliations { id }', PAGE + 1],
    ['what they found', 'reconciliations { details(first: 1) { targetId } }', PAGE + 2],
  ])('with %s', async (_what, selection, expected) => {
    expect(await statementsOf(overRuns(selection))).toBe(expected);
  });
});

test('each run gets its own', async () => {
  const { data } = await viewer.send<{
    ruleRuns: {
      nodes: {
        id: string;
        targets: { nodes: { runId: string }[] };
        events: { nodes: { runId: string }[] };
      }[];
    };
  }>(overRuns('id targets(first: 2) { nodes { runId } } events(first: 2) { nodes { runId } }'));
  for (const { id, targets, events } of data!.ruleRuns.nodes) {
    expect([...targets.nodes, ...events.nodes].map(({ runId }) => runId)).toEqual([id, id, id, id]);
  }
});

test('the length of a list is counted only for those who ask', async () => {
  expect(await statementsOf('{ ruleRuns { nodes { id } } }')).toBe(PAGE);
  expect(await statementsOf('{ ruleRuns { nodes { id } totalCount } }')).toBe(PAGE + 1);
});

test('of two mutations in one operation, each shows what it left', async () => {
  const operator = await api.client('OPERATOR');
  const { id } = await makeRuleRun(api.db, api.world.home);
  const shown = 'ruleRun { status targets { nodes { status } } events { nodes { type } } }';
  const { data } = await operator.send(
    `mutation ($id: ID!) {
       first: addRuleTargets(input: { runId: $id, targets: [] }) { ${shown} }
       second: queueRuleRun(input: { runId: $id }) { ${shown} }
     }`,
    { id },
  );
  expect(data).toMatchObject({
    first: { ruleRun: { status: 'PREVIEW', targets: { nodes: [{ status: 'PREVIEW' }, {}, {}] } } },
    second: { ruleRun: { status: 'QUEUED', targets: { nodes: [{ status: 'QUEUED' }, {}, {}] } } },
  });
});

test('the same thing asked for twice at once is read once, and shown twice', async () => {
  const { id } = await makeRuleRun(api.db, api.world.home);
  const twice = `{ a: ruleRun(id: "${id}") { events { nodes { seq } } } b: ruleRun(id: "${id}") { events { nodes { seq } } } }`;
  expect(await statementsOf(twice)).toBe(2);
  const events = { nodes: [{ seq: 1 }, { seq: 2 }] };
  expect((await viewer.send(twice)).data).toEqual({ a: { events }, b: { events } });
});
