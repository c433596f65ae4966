// Dead letters over HTTP: a run whose targets fail for every reason that ends at once, the list, the report,
// and the files that can be fetched of them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ADMIN_KEY, TestApp, until } from '../support/app.js';
import { makeFailedRun, seedWorld, targetsOf } from '../support/fixtures.js';

/** Ids that the sandbox refuses for good, and one that is a formula to a spreadsheet. */
const REFUSED = ['fail-1', 'fail-2', 'fail-=1+1,"x"', 'auth-1'];

let app: TestApp;
let runId: string;

async function applyRun(projectId: string, externalIds: readonly string[]): Promise<string> {
  const { data } = await app.request('{ channels { id name } }');
  const channelId = data.channels.find(({ name }: { name: string }) => name === 'sandbox').id;
  const targets = externalIds.map((externalId) => ({
    externalId,
    before: { unit_amount: 100, currency: 'EUR' },
    after: { unit_amount: 200, currency: 'EUR' },
  }));
  const create = 'mutation ($input: CreateRuleRunInput!) { createRuleRun(input: $input) { ruleRun { id } } }';
  const created = await app.request(create, { input: { projectId, channelId, targets } });
  const { id } = created.data.createRuleRun.ruleRun;
  await app.request(`mutation { queueRuleRun(input: { runId: "${id}" }) { userErrors { code } } }`);
  await until(
    () => app.request(`{ ruleRun(id: "${id}") { status } }`),
    ({ data: { ruleRun } }) => ['APPLIED', 'PARTIAL', 'FAILED'].includes(ruleRun.status),
  );
  return id;
}

beforeAll(async () => {
  app = await TestApp.start();
  runId = await applyRun('shop', [...REFUSED, 'SKU-1']);
  await applyRun('elsewhere', ['fail-9']);
});
afterAll(() => app.stop());

function fetchExport(path: string, key: string | null = ADMIN_KEY): Promise<Response> {
  const headers = key === null ? {} : { authorization: `Bearer ${key}` };
  return fetch(new URL(path, app.url), { headers });
}

describe('deadLetters', () => {
  const LIST = `query ($project: String, $run: ID, $code: String, $first: Int, $after: String) {
    deadLetters(projectId: $project, runId: $run, errorCode: $code, first: $first, after: $after) {
      totalCount nodes { runId externalId status errorCode failedAt } pageInfo { hasNextPage endCursor }
    }
  }`;

  test('all of them, or those of a project, a run, a reason', async () => {
    const count = async (variables: object) => {
      const { deadLetters } = (await app.request(LIST, { ...variables })).data;
      expect(deadLetters.totalCount).toBe(deadLetters.nodes.length);
      return deadLetters.totalCount;
    };
    expect(await count({})).toBe(5);
    expect(await count({ project: 'shop' })).toBe(4);
    expect(await count({ run: runId })).toBe(4);
    expect(await count({ run: runId, code: 'AUTH' })).toBe(1);
    expect(await count({ project: 'none' })).toBe(0);
  });

  test('page by page', async () => {
    const first = (await app.request(LIST, { run: runId, first: 3 })).data.deadLetters;
    expect(first).toMatchObject({ totalCount: 4, pageInfo: { hasNextPage: true } });
    const rest = await app.request(LIST, { run: runId, first: 3, after: first.pageInfo.endCursor });
    const ids = [...first.nodes, ...rest.data.deadLetters.nodes].map(({ externalId }) => externalId);
    expect(ids.sort()).toEqual([...REFUSED].sort());
  });

  test('nothing of another tenant', async () => {
    const key = await app.createKey('ADMIN', 'other');
    expect((await app.request(LIST, { run: runId }, key)).data.deadLetters).toMatchObject({
      totalCount: 0,
      nodes: [],
    });
  });
});

test('drainDeadLetters counts by reason and says what to do about each', async () => {
  const drain = `mutation { drainDeadLetters(input: { projectId: "shop" }) {
    report { total byErrorCode recommendations } userErrors { code }
  } }`;
  const { drainDeadLetters } = (await app.request(drain)).data;
  expect(drainDeadLetters).toEqual({
    report: {
      total: 4,
      byErrorCode: { INVALID: 3, AUTH: 1 },
      recommendations: [
        expect.stringMatching(/^INVALID \(3\): /),
        expect.stringMatching(/^AUTH \(1\): .*saveChannel/),
      ],
    },
    userErrors: [],
  });
});

describe('export', () => {
  test('as NDJSON', async () => {
    const response = await fetchExport(`/export/dead-letters.ndjson?projectId=shop&runId=${runId}`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toContain('application/x-ndjson');
    expect(response.headers.get('content-disposition')).toContain('dead-letters.ndjson');
    const lines = (await response.text()).trimEnd().split('\n');
    const letters = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(letters.map(({ externalId }) => externalId).sort()).toEqual([...REFUSED].sort());
    expect(letters[0]).toMatchObject({
      runId,
      currency: 'EUR',
      beforeAmount: 100,
      afterAmount: 200,
      attempts: 1,
    });
    expect(letters.every(({ failedAt }) => typeof failedAt === 'string')).toBe(true);
  });

  test('as CSV that no spreadsheet takes for a formula', async () => {
    const response = await fetchExport('/export/dead-letters.csv?errorCode=INVALID');
    expect(response.headers.get('content-type')).toContain('text/csv');
    const [head, ...lines] = (await response.text()).trimEnd().split('\r\n');
    expect(head).toBe(
      'id,runId,externalId,currency,beforeAmount,afterAmount,attempts,errorCode,errorMessage,failedAt',
    );
    expect(lines).toHaveLength(4);
    expect(lines.some((line) => line.includes('"fail-=1+1,""x"""'))).toBe(true);
    expect(lines.join()).not.toMatch(/(^|,)[=+@-]/);
  });

  test('with a key that may read, and with nobody else’s letters', async () => {
    for (const ending of ['csv', 'ndjson']) {
      const path = `/export/dead-letters.${ending}`;
      expect((await fetchExport(path, 'not-a-key')).status).toBe(401);
      expect((await fetchExport(path, await app.createKey('WORKER'))).status).toBe(403);
      expect((await fetchExport(path, await app.createKey('VIEWER'))).status).toBe(200);
      const foreign = await fetchExport(`${path}?runId=${runId}`, await app.createKey('ADMIN', 'other'));
      expect(await foreign.text()).not.toContain('fail-1');
    }
  });

  test.each(['colour=red', 'runId=a&runId=b', 'projectId=%00'])('refuses ?%s', async (query) => {
    const response = await fetchExport(`/export/dead-letters.csv?${query}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ errors: [{ extensions: { code: 'BAD_USER_INPUT' } }] });
  });

  test('a file of many pages is whole', async () => {
    const run = await makeFailedRun(app.db, (await seedWorld(app.db)).home, {
      projectId: 'large',
      targets: targetsOf(2_500),
    });
    const response = await fetchExport(`/export/dead-letters.ndjson?runId=${run}`);
    const ids = (await response.text())
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { id: string }).id);
    expect(new Set(ids).size).toBe(2_500);
    expect(ids).toHaveLength(2_500);
  });
});
