// Requests that do not fit the schema or the limits are BAD_USER_INPUT, one clear error each; the server goes
// on.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeRun } from './rule-run-documents.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

let api: TestApi;
let admin: ApiClient;
let runId: string;

beforeAll(async () => {
  api = await startApi();
  admin = await api.client();
  runId = await makeRun(admin, api.world.home);
});
afterAll(() => api.stop());

async function expectBadInput(query: string, words: string, variables: object = {}): Promise<void> {
  const { errors } = await admin.send(query, variables);
  expect(errors).toHaveLength(1);
  expect(errors![0]!.message).toContain(words);
  expect(errors![0]!.extensions.code).toBe('BAD_USER_INPUT');
}

const inRun = (selection: string) => `{ ruleRun(id: "${runId}") { ${selection} } }`;

describe('pages', () => {
  test.each([0, -1, 101, 2147483647])('%j runs', async (first) => {
    await expectBadInput(`{ ruleRuns(first: ${first}) { nodes { id } } }`, `first must be from 1 to 100`);
  });

  test.each([0, -1, 1001])('%j targets or events', async (first) => {
    await expectBadInput(inRun(`targets(first: ${first}) { nodes { id } }`), 'first must be from 1 to 1000');
    await expectBadInput(inRun(`events(first: ${first}) { nodes { id } }`), 'first must be from 1 to 1000');
  });

  test('as long as they may be', async () => {
    const pages = `targets(first: 1000) { totalCount } events(first: 1000) { pageInfo { endCursor } }`;
    const { errors } = await admin.send(
      `{ ruleRuns(first: 100) { totalCount } ruleRun(id: "${runId}") { ${pages} } }`,
    );
    expect(errors).toBeUndefined();
  });

  test.each(['garbage', '', 'W10', 'eyJhIjoxfQ', '🐘', 'x'.repeat(5000)])(
    'after the cursor %j',
    async (after) => {
      const query = `query ($after: String) { ruleRuns(after: $after) { nodes { id } } }`;
      await expectBadInput(query, 'cursor', { after });
      const targets = `query ($after: String) ${inRun('targets(after: $after) { nodes { id } }')}`;
      await expectBadInput(targets, 'cursor', { after });
    },
  );

  test('after the cursor of another list', async () => {
    const { data } = await admin.send<{ ruleRuns: { pageInfo: { endCursor: string } } }>(
      '{ ruleRuns { pageInfo { endCursor } } }',
    );
    const after = data!.ruleRuns.pageInfo.endCursor;
    await expectBadInput(inRun(`targets(after: "${after}") { nodes { id } }`), 'The cursor is not one');
  });

  test('of events after a negative seq', async () => {
    await expectBadInput(inRun('events(after: -1) { nodes { id } }'), 'after must be 0 or more');
  });
});

describe('documents', () => {
  test.each([
    ['{ ruleRun(id: "1") { nonsense } }', 'Cannot query field "nonsense"'],
    ['{ ruleRun { id } }', 'argument "id"'],
    ['{ ruleRuns(filter: { status: [NONSENSE] }) { totalCount } }', 'NONSENSE'],
    ['{ ruleRuns(filter: { createdAfter: "yesterday" }) { totalCount } }', 'yesterday'],
    ['{ ruleRuns(first: "ten") { totalCount } }', 'Int cannot represent'],
    ['mutation { queueRuleRun(input: {}) { userErrors { code } } }', 'runId'],
    ['mutation { queueRuleRun { userErrors { code } } }', 'input'],
    ['{ ruleRun(id: "1") { id ', 'Syntax Error'],
    ['', 'query'],
  ])('%s', (query, words) => expectBadInput(query, words));

  test('too deep', async () => {
    // The deepest there is: only interfaces lead back to themselves, and none does so without an end.
    const deep = '{ ruleRun(id: "1") { targets { nodes { history { '.concat('__typename ', '} '.repeat(5));
    expect((await admin.send(deep)).errors).toBeUndefined();
    const deeper = Array.from({ length: 13 }, () => 'targets { nodes {').join(' ');
    const { errors } = await admin.send(`{ ruleRun(id: "1") { ${deeper} id ${'} '.repeat(28)}`);
    expect(errors![0]!.extensions.code).toBe('BAD_USER_INPUT');
  });

  test('too expensive', async () => {
    const nested = 'targets(first: 1000) { nodes { id history { id } } }';
    await expectBadInput(`{ ruleRuns(first: 100) { nodes { ${nested} } } }`, 'The operation costs');
  });
});

describe('bodies', () => {
  const codeOf = async (response: Response) => {
    const { errors } = (await response.json()) as { errors: { extensions: { code: string } }[] };
    return [response.status, errors[0]!.extensions.code];
  };

  test('malformed JSON', async () => {
    expect(await codeOf(await admin.post('{"query": "{ channels { id } }"'))).toEqual([
      400,
      'BAD_USER_INPUT',
    ]);
  });

  test('larger than the limit', async () => {
    expect(await codeOf(await admin.post(`{"query": "${' '.repeat(11 * 2 ** 20)}"}`))).toEqual([
      413,
      'BAD_USER_INPUT',
    ]);
  });

  test('the server goes on', async () => {
    expect((await admin.send('{ channels { name } }')).data).toEqual({ channels: [{ name: 'shop' }] });
  });
});

test('ids of nothing are null, whatever they look like', async () => {
  for (const id of [
    '',
    'garbage',
    '0',
    '-1',
    '99999999999999999999',
    runId.replace(/^./, 'f'),
    `run-${runId}`,
  ]) {
    const { data, errors } = await admin.send(
      'query ($id: ID!) { node(id: $id) { id } ruleRun(id: $id) { id } }',
      { id },
    );
    expect(errors).toBeUndefined();
    expect(data).toEqual({ node: null, ruleRun: null });
  }
});
