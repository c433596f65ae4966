// Channels over the API: saved with their credentials encrypted, tested by a real call, used by the runner,
// and no credential in any answer, any log line or any row.
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { App } from '../../src/app.js';
import { loadConfig } from '../../src/config.js';
import { MASK } from '../../src/domain/settings.js';
import { SecretBox } from '../../src/store/secret-box.js';
import { ScriptedServer, type ScriptedReply } from '../connectors/support.js';
import { ADMIN_KEY, environmentOf, request, until, type GraphqlAnswer } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';

const TOKEN = 'sk-live-THE-SECRET-TOKEN';
const logged: string[] = [];
const answered: string[] = [];

let database: TestDatabase;
let app: App;
let endpoint: ScriptedServer;
let script: (path: string, authorization: string) => ScriptedReply;

beforeAll(async () => {
  database = await createTestDatabase();
  const environment = environmentOf(database.url, { RUNLEDGER_SECRET_KEY: SecretBox.generateKey() });
  const log = pino({ level: 'trace' }, { write: (line: string) => void logged.push(line) });
  app = await App.start(loadConfig(environment), log);
});
afterAll(async () => {
  await app.stop();
  await database.drop();
});
beforeEach(async () => {
  script = () => ({ body: { ok: true, price: '1.00' } });
  endpoint = await ScriptedServer.start(({ path, headers }) => script(path, String(headers.authorization)));
});
afterEach(() => endpoint.stop());

async function ask(query: string, variables: Record<string, unknown> = {}): Promise<GraphqlAnswer> {
  const answer = await request(app.url!, query, variables, ADMIN_KEY);
  answered.push(JSON.stringify(answer));
  return answer;
}

const FIELDS = 'id name kind config updatedAt health { circuit }';
const ERRORS = 'userErrors { code message field details }';
const SAVE = `mutation ($input: SaveChannelInput!) { saveChannel(input: $input) { channel { ${FIELDS} } ${ERRORS} } }`;
const TEST = `mutation ($id: ID!) {
  testChannel(input: { channelId: $id }) { test { ok code message latencyMs } ${ERRORS} }
}`;

let count = 0;
function inputOf(overrides: object = {}, config: object = {}) {
  const headers = { Authorization: 'Bearer {{credentials.token}}' };
  const settings = {
    write: {
      url: `${endpoint.origin}/prices/{{externalId}}`,
      headers,
      body: { price: '{{decimal}}' },
      answer: { ok: { at: '/ok', is: [true] }, error: '/error' },
    },
    read: {
      url: `${endpoint.origin}/prices/{{externalId}}`,
      headers,
      answer: { amount: '/price', unit: 'decimal' },
    },
    credentials: { token: TOKEN },
    ...config,
  };
  return { name: `http ${(count += 1)}`, kind: 'http', config: settings, ...overrides };
}

async function save(overrides: object = {}, config: object = {}) {
  const { saveChannel } = (await ask(SAVE, { input: inputOf(overrides, config) })).data;
  return saveChannel;
}

describe('saveChannel', () => {
  test('shows the channel with its credential masked, here and in every list', async () => {
    const { channel, userErrors } = await save({ name: 'mine' });
    expect(userErrors).toEqual([]);
    expect(channel).toMatchObject({ name: 'mine', kind: 'http', config: { credentials: { token: MASK } } });
    const { channels } = (await ask(`{ channels { ${FIELDS} } }`)).data;
    expect(channels).toContainEqual(channel);
    const { config } = channels.find(({ name }: { name: string }) => name === 'sandbox');
    expect(config.accessToken).toBe(MASK);
    expect((await ask(`{ node(id: "${channel.id}") { ... on Channel { ${FIELDS} } } }`)).data.node).toEqual(
      channel,
    );
  });

  test('what is shown can be saved again: the credential stays', async () => {
    const { channel } = await save();
    const again = await save({ id: channel.id, name: 'renamed', config: channel.config });
    expect(again.channel).toMatchObject({ id: channel.id, name: 'renamed', config: channel.config });
    await ask(TEST, { id: channel.id });
    expect(endpoint.calls.at(-1)!.headers.authorization).toBe(`Bearer ${TOKEN}`);
  });

  test.each<[string, object, object, string]>([
    ['a fault', {}, { read: {} }, 'INVALID_INPUT'],
    ['a kind that is none', { kind: 'amazon' }, {}, 'INVALID_INPUT'],
    ['a name that is taken', { name: 'sandbox' }, {}, 'CONFLICT'],
    ['an id of nothing', { id: 'no' }, {}, 'NOT_FOUND'],
    [
      'a credential in a header',
      {},
      { write: { url: 'https://x.example/', body: {}, headers: { 'x-api-key': TOKEN } } },
      'INVALID_INPUT',
    ],
  ])('refuses %s', async (_, overrides, config, code) => {
    const { channel, userErrors } = await save(overrides, config);
    expect(channel).toBeNull();
    expect(userErrors).toEqual([expect.objectContaining({ code })]);
  });
});

describe('testChannel', () => {
  test('makes a real call with the credential that is saved', async () => {
    const { channel } = await save();
    const { testChannel } = (await ask(TEST, { id: channel.id })).data;
    expect(testChannel).toMatchObject({ test: { ok: true, code: null }, userErrors: [] });
    expect(endpoint.calls).toHaveLength(1);
    expect(endpoint.calls[0]).toMatchObject({ method: 'GET', headers: { authorization: `Bearer ${TOKEN}` } });
  });

  test.each<[number, string | null]>([
    [404, null],
    [401, 'AUTH'],
    [500, 'UPSTREAM'],
  ])('HTTP %d comes to %s', async (status, code) => {
    const { channel } = await save();
    script = () => ({ status });
    const { test: result } = (await ask(TEST, { id: channel.id })).data.testChannel;
    expect(result).toMatchObject({ ok: code === null, code });
  });

  test('reaches the sandbox', async () => {
    const { channels } = (await ask('{ channels { id name } }')).data;
    const { id } = channels.find(({ name }: { name: string }) => name === 'sandbox');
    expect((await ask(TEST, { id })).data.testChannel.test).toMatchObject({ ok: true });
  });

  test('refuses an id of nothing', async () => {
    const { testChannel } = (await ask(TEST, { id: 'no' })).data;
    expect(testChannel).toMatchObject({
      test: null,
      userErrors: [{ code: 'NOT_FOUND', field: ['input', 'channelId'] }],
    });
  });
});

describe('a run on a saved channel', () => {
  test('is applied by the http connector, and a token that comes back in an error is not kept', async () => {
    const { channel } = await save();
    script = (path, authorization) => ({
      body: path.endsWith('bad') ? { ok: false, error: `no ${authorization}` } : { ok: true },
    });
    const targets = ['good', 'bad'].map((externalId) => ({
      externalId,
      before: { unit_amount: 100, currency: 'EUR' },
      after: { unit_amount: 1234, currency: 'EUR' },
    }));
    const create = `mutation ($input: CreateRuleRunInput!) { createRuleRun(input: $input) { ruleRun { id } ${ERRORS} } }`;
    const { ruleRun } = (await ask(create, { input: { channelId: channel.id, targets } })).data.createRuleRun;
    await ask(`mutation { queueRuleRun(input: { runId: "${ruleRun.id}" }) { ${ERRORS} } }`);
    const read = `{ ruleRun(id: "${ruleRun.id}") {
      status channel { config } events { nodes { message payload } }
      targets { nodes { externalId status errorCode errorMessage } }
    } }`;
    const { data } = await until(
      () => ask(read),
      (answer) => answer.data.ruleRun.status === 'PARTIAL',
    );
    expect(data.ruleRun.targets.nodes).toMatchObject([
      { externalId: 'good', status: 'APPLIED' },
      { externalId: 'bad', status: 'FAILED', errorCode: 'INVALID', errorMessage: 'no Bearer ***' },
    ]);
    expect(JSON.parse(endpoint.calls.find(({ path }) => path.endsWith('good'))!.body)).toEqual({
      price: '12.34',
    });
  });
});

test('the credential is in no answer, no log line and no row', async () => {
  expect(answered.length).toBeGreaterThan(20);
  for (const answer of answered) expect(answer).not.toContain('THE-SECRET');
  for (const line of logged) expect(line).not.toContain('THE-SECRET');
  const tables = await database.db.query<{ name: string }>(
    `SELECT quote_ident(relname) AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`,
  );
  for (const { name } of tables) {
    const leaks = await database.db.query(
      `SELECT 1 FROM ${name} t WHERE to_jsonb(t)::text LIKE '%THE-SECRET%'`,
    );
    expect(leaks, name).toEqual([]);
  }
});

describe('without RUNLEDGER_SECRET_KEY', () => {
  let keyless: App;
  beforeAll(async () => {
    keyless = await App.start(
      loadConfig(environmentOf(database.url, { RUNLEDGER_ROLE: 'api' })),
      pino({ level: 'silent' }),
    );
  });
  afterAll(() => keyless.stop());

  test('a credential cannot be saved, and the refusal says what to do', async () => {
    const { data } = await request(keyless.url!, SAVE, { input: inputOf() });
    expect(data.saveChannel.channel).toBeNull();
    expect(data.saveChannel.userErrors).toEqual([
      expect.objectContaining({
        code: 'INVALID_INPUT',
        message: expect.stringContaining('RUNLEDGER_SECRET_KEY'),
      }),
    ]);
  });

  test('a saved channel is listed but cannot be called; one without credentials can', async () => {
    const { channel } = await save();
    const { data } = await request(keyless.url!, TEST, { id: channel.id });
    expect(data.testChannel.userErrors[0].message).toMatch(/RUNLEDGER_SECRET_KEY/);
    const open = {
      write: { url: `${endpoint.origin}/w`, body: {} },
      read: inputOf().config.read,
      credentials: undefined,
    };
    const input = inputOf({}, { ...open, read: { ...open.read, headers: {} } });
    const saved = (await request(keyless.url!, SAVE, { input })).data.saveChannel;
    expect(saved.userErrors).toEqual([]);
    const tested = await request(keyless.url!, TEST, { id: saved.channel.id });
    expect(tested.data.testChannel.test).toMatchObject({ ok: true });
  });
});
