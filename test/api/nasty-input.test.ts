// Whatever stands in the variables of an operation on rule runs, rules, channels or the catalog, the answer is
// data, a refusal or BAD_USER_INPUT: never INTERNAL. Each part of a sound request, and the whole of it, is
// replaced by each of a table of nasty values.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makePricingRule, makeRuleRun } from '../support/fixtures.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

let api: TestApi;
let admin: ApiClient;
let ids: Readonly<Record<string, string>>;

beforeAll(async () => {
  api = await startApi();
  admin = await api.client();
  const { home } = api.world;
  const { id: runId } = await makeRuleRun(api.db, home);
  const ruleId = await makePricingRule(api.db, home, { adjust: { percent: 5 } });
  ids = { runId, ruleId, channelId: home.channelId };
});
afterAll(() => api.stop());

const cursor = (...parts: unknown[]) => Buffer.from(JSON.stringify(parts)).toString('base64url');
const UUID = '018f0000-0000-7000-8000-000000000000';
const MILLION = 1_000_000;
const DEEP = 20_000;

/** As JSON texts: some of them no JavaScript value can be written to. */
const NASTY: readonly string[] = [
  ...[
    '0',
    '-1',
    '1001',
    '2147483648',
    '9007199254740993',
    '-9007199254740993',
    '1.5',
    '1e308',
    '1e400',
    '-0',
  ],
  ...['null', 'true', '[]', '{}', '[[]]', '[null]', '{"":{}}', '{"__proto__":{"a":1}}', '{"constructor":1}'],
  ...['', ' ', '0', 'NaN', 'Infinity', '1e400', '-1', '🐘', '%00', "'; DROP TABLE rule_run; --", '../..'].map(
    (text) => JSON.stringify(text),
  ),
  ...[
    '"\\u0000"',
    '"a\\u0000b"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\\\u0000"',
    '{"\\u0000":1}',
    '{"a":"\\ud800"}',
  ],
  `${'['.repeat(DEEP)}${']'.repeat(DEEP)}`,
  `${'{"a":'.repeat(DEEP)}1${'}'.repeat(DEEP)}`,
];

const DATES = [
  '2026-13-45T99:99:99Z',
  '0000-01-01T00:00:00Z',
  '9999-12-31T23:59:59.999Z',
  '2026-02-30T00:00:00Z',
].map((text) => JSON.stringify(text));

const CURSORS = [
  cursor('2026-13-45 99:99:99+00', UUID),
  cursor('2026-02-30 00:00:00+00', UUID),
  cursor('0000-01-01 00:00:00+00', UUID),
  cursor('2026-01-01 00:00:00+99:99', UUID),
  cursor(UUID, '99999999999999999999'),
  cursor(UUID, '1'),
  cursor('99999999999999999999'),
  cursor('\0'),
  cursor('\ud800', '\0'),
  cursor('x'.repeat(10_000)),
  cursor({}, []),
].map((text) => JSON.stringify(text));

/** For the outer places only, and all of them for a search alone: they take their time to send. */
const LARGE: readonly string[] = [
  `"${'x'.repeat(MILLION)}"`,
  `"${'& | ! '.repeat(20_000)}"`,
  `"${'a '.repeat(100_000)}"`,
  `[${'0,'.repeat(20_000)}0]`,
];

const EUR = { unit_amount: 1000, currency: 'EUR' };
const DEFINITION = {
  currency: 'EUR',
  match: {
    all: [
      { field: 'title', contains: 'a' },
      { attribute: 'brand', in: ['x', 1] },
    ],
  },
  adjust: { percent: 5 },
  round: { mode: 'nearest', step: 5 },
  limits: { floor: 1, maxChangePercent: 50 },
};
const RUN = 'ruleRun { id status } userErrors { code message field details }';
const mutation = (name: string, type: string, shown: string) =>
  `mutation ($input: ${type}!) { ${name}(input: $input) { ${shown} } }`;
const ofRun = (name: string, type = 'RuleRunInput') => mutation(name, type, RUN);

const WHOLE_RUN = { input: { runId: '@runId', confirm: 'x', repair: false, idempotencyKey: 'key' } };
const RUN_INPUT = { input: { runId: '@runId' } };
const SOME = { input: { runId: '@runId', targetIds: ['1'], idempotencyKey: 'key' } };

/** Operations, each with variables that fit it; `@name` stands for an id. */
const OPERATIONS: readonly (readonly [name: string, query: string, variables: object])[] = [
  [
    'createRuleRun',
    ofRun('createRuleRun', 'CreateRuleRunInput'),
    {
      input: {
        projectId: 'nasty',
        channelId: '@channelId',
        targets: [{ externalId: 'sku', before: EUR, after: EUR }],
        metadata: { a: { b: 1 } },
        correlationId: 'c',
        startAt: '2030-01-01T00:00:00Z',
        autoRevertAt: '2031-01-01T00:00:00Z',
        idempotencyKey: 'key',
      },
    },
  ],
  [
    'createRuleRun by a rule',
    ofRun('createRuleRun', 'CreateRuleRunInput'),
    { input: { channelId: '@channelId', ruleId: '@ruleId', metadata: {} } },
  ],
  [
    'addRuleTargets',
    ofRun('addRuleTargets', 'AddRuleTargetsInput'),
    { input: { runId: '@runId', targets: [{ externalId: 'more', before: EUR, after: EUR }] } },
  ],
  ['queueRuleRun', ofRun('queueRuleRun'), WHOLE_RUN],
  ['pauseRuleRun', ofRun('pauseRuleRun'), RUN_INPUT],
  ['resumeRuleRun', ofRun('resumeRuleRun'), RUN_INPUT],
  ['retryRuleRun', ofRun('retryRuleRun'), RUN_INPUT],
  ['cancelRuleRun', ofRun('cancelRuleRun'), RUN_INPUT],
  ['retryFailedTargets', ofRun('retryFailedTargets', 'RetryFailedTargetsInput'), SOME],
  [
    'rollBackRuleRun',
    ofRun('rollBackRuleRun', 'RollBackRuleRunInput'),
    { input: { ...SOME.input, onConflict: 'SKIP' } },
  ],
  [
    'reconcileRuleRun',
    mutation('reconcileRuleRun', 'RuleRunInput', 'report { id } userErrors { code }'),
    RUN_INPUT,
  ],
  [
    'drainDeadLetters',
    mutation('drainDeadLetters', 'DrainDeadLettersInput', 'report { total } userErrors { code }'),
    { input: { projectId: 'nasty' } },
  ],
  [
    'savePricingRule',
    mutation(
      'savePricingRule',
      'SavePricingRuleInput',
      'pricingRule { id definition } userErrors { code details }',
    ),
    { input: { projectId: 'nasty', name: 'rule', enabled: true, priority: 0, definition: DEFINITION } },
  ],
  [
    'importCatalogItems',
    mutation('importCatalogItems', 'ImportCatalogItemsInput', 'imported userErrors { code details }'),
    {
      input: {
        items: [
          {
            externalId: 'item',
            title: 'Item',
            unitAmount: 1000,
            costAmount: 10,
            currency: 'EUR',
            attributes: { brand: 'x', nested: { list: [1] } },
          },
        ],
      },
    },
  ],
  [
    'saveGuardrails',
    mutation('saveGuardrails', 'SaveGuardrailsInput', 'guardrails { maxTargets } userErrors { code }'),
    { input: { maxTargets: 1_000_000, maxChangePercent: 5_000 } },
  ],
  [
    'testChannel',
    mutation('testChannel', 'TestChannelInput', 'test { ok message } userErrors { code }'),
    { input: { channelId: '@ruleId' } },
  ],
  [
    'ruleRuns',
    `query ($first: Int, $after: String, $filter: RuleRunFilter) {
      ruleRuns(first: $first, after: $after, filter: $filter) { totalCount nodes { id } } }`,
    {
      first: 10,
      after: cursor('2026-01-01 00:00:00+00', UUID),
      filter: {
        status: ['PREVIEW'],
        projectId: 'nasty',
        channelId: '@channelId',
        createdAfter: '2026-01-01T00:00:00Z',
        createdBefore: '2027-01-01T00:00:00Z',
        correlationId: 'c',
        text: 'words',
      },
    },
  ],
  [
    'ruleRun',
    `query ($id: ID!, $first: Int, $after: String, $seq: Int, $status: [RuleTargetStatus!]) { ruleRun(id: $id) {
      targets(first: $first, after: $after, status: $status) { nodes { id history { seq } } }
      events(first: $first, after: $seq) { nodes { seq } }
      preview { hash } reconciliations { details(first: $first) { targetId } unreadItems(first: $first) { code } } } }`,
    { id: '@runId', first: 10, after: cursor('1'), seq: 0, status: ['PREVIEW'] },
  ],
  ['node', 'query ($id: ID!) { node(id: $id) { id } }', { id: '@ruleId' }],
  [
    'deadLetters',
    `query ($first: Int, $after: String, $projectId: String, $runId: ID, $errorCode: String) {
      deadLetters(first: $first, after: $after, projectId: $projectId, runId: $runId, errorCode: $errorCode) {
        totalCount nodes { id } } }`,
    { first: 10, after: cursor(UUID, '1'), projectId: 'nasty', runId: '@runId', errorCode: 'AUTH' },
  ],
  [
    'catalogItems',
    'query ($first: Int, $after: String) { catalogItems(first: $first, after: $after) { totalCount nodes { id } } }',
    { first: 10, after: cursor('item') },
  ],
  [
    'pricingRules',
    'query ($projectId: String) { pricingRules(projectId: $projectId) { id } }',
    { projectId: 'x' },
  ],
];

type Path = readonly (string | number)[];

/** Every place in a value: objects and lists as well as what is in them. */
function* placesIn(value: unknown, path: Path = []): Generator<Path> {
  if (path.length > 0) yield path;
  if (typeof value !== 'object' || value === null) return;
  const entries = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  for (const [key, inner] of entries) yield* placesIn(inner, [...path, key]);
}

const HOLE = '@hole';

function withHole(value: unknown, [key, ...rest]: Path): unknown {
  if (key === undefined) return HOLE;
  const copy = (Array.isArray(value) ? [...value] : { ...(value as object) }) as Record<
    string | number,
    unknown
  >;
  copy[key] = withHole(copy[key], rest);
  return copy;
}

/** The outer places get all of the small ones, those further in a share each, so that every value has its turn. */
const OUTER = 2;
const SHARES = 3;

function valuesFor(path: Path, index: number): readonly string[] {
  const name = String(path.at(-1));
  const ofKind = name === 'after' ? CURSORS : /At$|^created/.test(name) ? DATES : [];
  if (path.length > OUTER) return [...shareOf(NASTY, SHARES, index), ...ofKind];
  const large = name === 'text' ? LARGE : shareOf(LARGE, LARGE.length, index);
  return [...NASTY, ...large, ...ofKind];
}

function shareOf(values: readonly string[], shares: number, index: number): readonly string[] {
  return values.filter((_, place) => place % shares === index % shares);
}

function* requestsFor(query: string, variables: object): Generator<string> {
  let count = 0;
  for (const [index, path] of [...placesIn(variables)].entries()) {
    const text = JSON.stringify({ query, variables: withHole(variables, path) });
    const sound = text.replaceAll(/"@(runId|ruleId|channelId)"/g, (_, name: string) => `"${ids[name]}"`);
    for (const value of valuesFor(path, index)) {
      // A key of its own, so that no request is taken for a repeat.
      yield sound.replace('"key"', `"${query.length} ${count++}"`).replace(`"${HOLE}"`, () => value);
    }
  }
}

/** What went wrong on our side, with the request; null when nothing did. */
async function faultIn(body: string): Promise<string | null> {
  const response = await admin.post(body);
  const answer = await response.text();
  const isOurs = response.status >= 500 || /"code":"(INTERNAL|UNAVAILABLE)"/.test(answer);
  return isOurs ? `${answer.slice(0, 300)} for ${body.slice(body.indexOf('"variables"'), 300)}` : null;
}

const AT_ONCE = 8;

async function findFaults(bodies: Iterable<string>): Promise<string[]> {
  const waiting = bodies[Symbol.iterator]();
  const faults: string[] = [];
  const work = async (): Promise<void> => {
    for (let next = waiting.next(); !next.done; next = waiting.next()) {
      const fault = await faultIn(next.value);
      if (fault !== null) faults.push(fault);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return faults;
}

describe('nothing nasty in the variables is INTERNAL', () => {
  test.each(OPERATIONS)(
    '%s',
    async (_, query, variables) => {
      expect(await findFaults(requestsFor(query, variables))).toEqual([]);
    },
    60_000,
  );
});

test('nor a document that is nested too deeply', async () => {
  const nested = `${'['.repeat(5_000)}${']'.repeat(5_000)}`;
  const query = `mutation { createRuleRun(input: { channelId: "x", targets: [], metadata: ${nested} }) { userErrors { code } } }`;
  expect(await findFaults([JSON.stringify({ query })])).toEqual([]);
});

test('and the server goes on', async () => {
  expect((await admin.send('{ guardrails { maxTargets } }')).errors).toBeUndefined();
});
