// The log of the real server process, told to say all: JSON lines, each about a run or a request with its
// correlation id, and no secret in any of what the process writes.
import { spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { createClient } from 'graphql-ws';
import { SMTPServer } from 'smtp-server';
import { WebSocket } from 'ws';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { environmentOf, until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { Receiver } from '../support/receiver.js';

const SECRETS = {
  adminKey: 'admin-key-1618033',
  badKey: 'rl_bad-key-2718281828459045',
  encryptionKey: 'c0ffee'.repeat(11).slice(0, 64),
  webhook: 'webhook-secret-1414213',
  channelToken: 'channel-token-"quoted"-3141592',
  sourcePassword: 'source-password-5772156',
  sinkSecret: 'sink-secret-6626070',
  endpointSecret: 'endpoint-secret-7297352',
  endpointAddress: 'E0000-endpoint-address-2187691',
  sinkAddress: 'T0000-B0000-chat-address-1380649',
  routingKey: 'R1054571817ABCDEF0123456789ABCDEF',
  mailPassword: 'mail-password-9109383',
  collector: 'collector-header-2998',
};

/** A process of the server whose whole output is kept. */
class LoggedServer {
  text = '';
  readonly #child;

  constructor(databaseUrl: string, overrides: Readonly<Record<string, string>>) {
    const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
    this.#child = spawn(process.execPath, ['--import', 'tsx', main], {
      env: { PATH: process.env['PATH'], ...environmentOf(databaseUrl, overrides) },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => (this.text += text));
    }
  }

  async url(): Promise<string> {
    const line = await until(
      async () => /listens at (\S+)/.exec(this.text),
      (found) => found !== null || this.#child.exitCode !== null,
    );
    if (!line) throw new Error(`the server ended before it listened:\n${this.text}`);
    return line[1]!;
  }

  async end(signal?: NodeJS.Signals): Promise<number | null> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return this.#child.exitCode;
    const closed = once(this.#child, 'close');
    if (signal) this.#child.kill(signal);
    return ((await closed) as [number | null])[0];
  }

  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  get lines(): any[] {
    return this.text
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line));
  }
}

let database: TestDatabase;
let shop: Receiver;
let server: LoggedServer;
let url: string;

beforeAll(async () => {
  [database, shop] = await Promise.all([createTestDatabase(), Receiver.start()]);
  mail.listen(0, '127.0.0.1');
  await once(mail.server, 'listening');
  server = new LoggedServer(withPassword(database.url), {
    RUNLEDGER_LOG_LEVEL: 'trace',
    RUNLEDGER_API_KEY: SECRETS.adminKey,
    RUNLEDGER_SECRET_KEY: SECRETS.encryptionKey,
    RUNLEDGER_WEBHOOK_SECRET: SECRETS.webhook,
    OTEL_EXPORTER_OTLP_ENDPOINT: shop.url(''),
    OTEL_EXPORTER_OTLP_HEADERS: `x-auth=${SECRETS.collector}`,
  });
  url = await server.url();
}, 60_000);
afterAll(async () => {
  await server.end('SIGKILL');
  await shop.stop();
  await new Promise<void>((resolve) => mail.close(resolve));
  await database.drop();
});

const DATABASE_PASSWORD = 'database-password-8314462';

/** A server that asks for no password takes any. */
function withPassword(text: string): string {
  const given = new URL(text);
  if (given.password === '') given.password = DATABASE_PASSWORD;
  return given.href;
}

async function post(query: string, input: object | null, headers: Readonly<Record<string, string>> = {}) {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${SECRETS.adminKey}`,
      ...headers,
    },
    body: JSON.stringify({ query, variables: { input } }),
  });
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  return { headers: response.headers, body: (await response.json()) as any };
}

async function saveChannel(): Promise<string> {
  const { body } = await post(
    'mutation ($input: SaveChannelInput!) { saveChannel(input: $input) { channel { id } userErrors { message } } }',
    {
      name: 'shop',
      kind: 'http',
      config: {
        write: {
          url: `${shop.url('')}/prices/{{externalId}}`,
          headers: { authorization: 'Bearer {{credentials.token}}' },
          body: { price: '{{decimal}}' },
        },
        read: { url: `${shop.url('')}/prices/{{externalId}}`, answer: { amount: '/price', unit: 'decimal' } },
        credentials: { token: SECRETS.channelToken },
      },
    },
  );
  expect(body.data.saveChannel.userErrors).toEqual([]);
  return body.data.saveChannel.channel.id;
}

async function runOnce(channelId: string, externalId: string): Promise<string> {
  const target = {
    externalId,
    before: { unit_amount: 1000, currency: 'EUR' },
    after: { unit_amount: 900, currency: 'EUR' },
  };
  const created = await post(
    'mutation ($input: CreateRuleRunInput!) { createRuleRun(input: $input) { ruleRun { id } userErrors { message } } }',
    { channelId, targets: [target], correlationId: `sale-${externalId}` },
    { 'x-correlation-id': 'request-of-ours-1' },
  );
  expect(created.body.data.createRuleRun.userErrors).toEqual([]);
  expect(created.headers.get('x-correlation-id')).toBe('request-of-ours-1');
  const { id } = created.body.data.createRuleRun.ruleRun;
  await post('mutation ($input: RuleRunInput!) { queueRuleRun(input: $input) { userErrors { message } } }', {
    runId: id,
  });
  const isOver = async () => {
    const { body } = await post(`{ ruleRun(id: "${id}") { status } }`, null);
    return body.data.ruleRun.status as string;
  };
  await until(isOver, (status) => ['APPLIED', 'FAILED'].includes(status));
  return id;
}

describe('a server that says all', () => {
  let channelId: string;
  let good: string;
  let bad: string;

  beforeAll(async () => {
    await saveEndpoint();
    channelId = await saveChannel();
    shop.answers.set('/prices/broken', 500);
    good = await runOnce(channelId, 'fine');
    bad = await runOnce(channelId, 'broken');
    await saveOthers(url);
    await misuse();
    expect(await server.end('SIGTERM')).toBe(0);
  }, 60_000);

  test('none of the secrets stands in anything that it wrote', () => {
    expect(
      shop.received.some(({ headers }) => headers['authorization']?.includes(SECRETS.channelToken)),
    ).toBe(true);
    expect(shop.at('/v1/traces').some(({ headers }) => headers['x-auth'] === SECRETS.collector)).toBe(true);
    for (const [name, secret] of Object.entries({ ...SECRETS, DATABASE_PASSWORD })) {
      for (const form of [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret)]) {
        expect(server.text.includes(form), name).toBe(false);
      }
    }
  });

  test('whatever is no word to the person at the terminal is a line of JSON', () => {
    const [, ...after] = server.text.split('Ctrl-C stops everything.');
    for (const line of after.join('').split('\n').filter(Boolean))
      expect(() => JSON.parse(line)).not.toThrow();
    expect(server.lines.length).toBeGreaterThan(20);
  });

  test('every step of a run is a line with its correlation id', () => {
    const told = (runId: string) =>
      server.lines
        .filter((line) => line.runId === runId)
        .map(({ msg, correlationId }) => [msg, correlationId]);
    // Whatever else is told of it: its webhooks are refused, whenever they come.
    expect(told(good).filter(([msg]) => !String(msg).startsWith('a webhook'))).toEqual([
      ['claimed', 'sale-fine'],
      ['called the channel', 'sale-fine'],
      ['settled', 'sale-fine'],
      ['worked', 'sale-fine'],
    ]);
    expect(new Set(told(bad).map(([, correlationId]) => correlationId))).toEqual(new Set(['sale-broken']));
    const failed = server.lines.filter(({ runId, msg }) => runId === bad && msg === 'called the channel');
    expect(failed.map(({ outcomes }) => outcomes)).toContainEqual({ UPSTREAM: 1 });
    const settled = server.lines.filter(({ runId, msg }) => runId === bad && msg === 'settled');
    expect(settled.at(-1)).toMatchObject({ events: { exhaust: 1 }, level: 20 });
  });

  test('no line about a run of any kind is without one', () => {
    const told = server.lines.filter(({ runId }) => runId !== undefined);
    expect(told.filter(({ correlationId }) => typeof correlationId !== 'string')).toEqual([]);
    const kinds = new Set(told.map(({ kind }) => kind));
    for (const kind of ['rule_target', 'pipeline_plan']) expect(kinds).toContain(kind);
    const messages = new Set(told.map(({ msg }) => msg));
    expect(messages).toContain('called the source');
    expect(messages).toContain('a webhook was not taken; it is sent again');
    const feed = told.filter(({ msg }) => msg === 'called the source');
    expect(feed[0]).toMatchObject({ purpose: 'plan', outcome: 'transient', level: 20 });
    const plans = told.filter(({ msg, kind }) => msg === 'settled' && kind === 'pipeline_plan');
    expect(plans[0]).toMatchObject({ events: { retry: 1 } });
  });

  test('requests and mutations have the correlation id of their sender', () => {
    const own = server.lines.filter(({ correlationId }) => correlationId === 'request-of-ours-1');
    expect(own.map(({ msg }) => msg)).toEqual(['mutation', 'request', 'mutation', 'request']);
    expect(own[0]).toMatchObject({
      mutation: 'createRuleRun',
      ruleRunId: good,
      ruleRunCorrelationId: 'sale-fine',
    });
    const requests = server.lines.filter(({ msg }) => msg === 'request');
    expect(requests.every(({ correlationId }) => typeof correlationId === 'string')).toBe(true);
  });
});

/** An endpoint for webhooks that repeats what it was sent. */
async function saveEndpoint(): Promise<void> {
  const path = `/${SECRETS.endpointAddress}`;
  shop.answers.set(path, 'echo');
  const { body } = await post(
    'mutation ($input: SaveWebhookEndpointInput!) { saveWebhookEndpoint(input: $input) { webhookEndpoint { id } userErrors { message } } }',
    { name: 'integration', url: shop.url(path), secret: SECRETS.endpointSecret },
  );
  expect(body.data.saveWebhookEndpoint.userErrors).toEqual([]);
}

/** Things with credentials that cannot be reached or used. */
async function saveOthers(at: string): Promise<void> {
  const source = {
    name: 'feed',
    kind: 'nivoda',
    config: { endpoint: `${shop.url('')}/feed`, username: 'reader', password: SECRETS.sourcePassword },
  };
  const saved = await post(
    'mutation ($input: SaveSourceInput!) { saveSource(input: $input) { source { id } userErrors { message } } }',
    source,
  );
  expect([saved.body, at]).toMatchObject([{ data: { saveSource: { userErrors: [] } } }, at]);
  shop.answers.set('/feed', 500);
  await post(
    'mutation ($input: StartPipelineRunInput!) { startPipelineRun(input: $input) { userErrors { message } } }',
    { sourceId: saved.body.data.saveSource.source.id },
  );
  await until(
    async () => shop.at('/feed').length,
    (calls) => calls > 0,
  );
  const sink = {
    name: 'hook',
    kind: 'WEBHOOK',
    config: { url: shop.url(`/${SECRETS.sinkAddress}`), secret: SECRETS.sinkSecret },
  };
  const pager = {
    name: 'pager',
    kind: 'PAGERDUTY',
    config: { routingKey: SECRETS.routingKey, url: shop.url('/v2/enqueue') },
  };
  const { port } = mail.server.address() as AddressInfo;
  const letters = { host: '127.0.0.1', port, from: 'a@example.com', to: ['b@example.com'], user: 'ops' };
  const mailbox = { name: 'mail', kind: 'EMAIL', config: { ...letters, password: SECRETS.mailPassword } };
  for (const path of [`/${SECRETS.sinkAddress}`, '/v2/enqueue']) shop.answers.set(path, 'echo');
  for (const each of [sink, pager, mailbox]) await trySink(each);
  await until(
    async () => server.lines.filter(({ msg }) => msg?.startsWith('an alert sink did not take')),
    (refusals) => new Set(refusals.map(({ kind }) => kind)).size === 3,
  );
}

/** Refuses whoever comes, and repeats what it was told. */
const mail = new SMTPServer({
  authOptional: true,
  disabledCommands: ['STARTTLS'],
  onAuth: ({ username, password }, _session, done) => done(new Error(`not ${username} with ${password}`)),
});

async function trySink(sink: object): Promise<void> {
  const kept = await post(
    'mutation ($input: SaveAlertSinkInput!) { saveAlertSink(input: $input) { alertSink { id } userErrors { message } } }',
    sink,
  );
  expect(kept.body.data?.saveAlertSink.userErrors).toEqual([]);
  await post(
    'mutation ($input: AlertSinkInput!) { testAlertSink(input: $input) { userErrors { message } } }',
    { id: kept.body.data.saveAlertSink.alertSink.id },
  );
}

/** Bad keys by every way, a bad signature, and a query string with a key in it. */
async function misuse(): Promise<void> {
  await post('{ channels { id } }', null, { authorization: `Bearer ${SECRETS.badKey}` });
  await post('{ channels { id } }', null, { authorization: `Basic ${SECRETS.badKey}` });
  await fetch(`${url}?query={channels{id}}&apiKey=${SECRETS.badKey}`);
  const hook = new URL('/hooks/ops', url);
  const body = '{"type":"deploy"}';
  const signature = createHmac('sha256', 'wrong').update(body).digest('hex');
  for (const header of [`sha256=${signature}`, SECRETS.webhook]) {
    const headers = { 'content-type': 'application/json', 'x-hub-signature-256': header };
    await fetch(hook, { method: 'POST', headers, body });
  }
  const client = createClient({
    url: url.replace(/^http/, 'ws'),
    webSocketImpl: WebSocket,
    connectionParams: { authorization: SECRETS.badKey, password: SECRETS.badKey },
    retryAttempts: 0,
  });
  const events = client.iterate({ query: 'subscription { alerts { id } }' });
  await expect(events.next()).rejects.toBeDefined();
  await client.dispose();
}

describe('a server that cannot start', () => {
  test.each([
    ['an address that is none', 'postgres//user:SECRET@nowhere'],
    ['a database that is not there', 'postgres://user:SECRET@127.0.0.1:1/none'],
    ['a role that is not there', null],
  ])(
    'with %s does not tell its password',
    async (_, address) => {
      const password = 'password-of-nobody-9192631';
      const given = address?.replace('SECRET', password) ?? asNobody(database.url, password);
      const failing = new LoggedServer(given, { RUNLEDGER_LOG_LEVEL: 'trace' });
      expect(await failing.end()).toBe(1);
      expect(failing.text).not.toBe('');
      expect(failing.text).not.toContain(password);
    },
    60_000,
  );
});

function asNobody(text: string, password: string): string {
  const given = new URL(text);
  given.username = 'nobody_of_that_name';
  given.password = password;
  return given.href;
}
