// Endpoints for webhooks over the API, with a server that runs work: saved, tried, switched, replayed, removed; no
// secret is shown, and another tenant's are not there.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SecretBox } from '../../src/store/secret-box.js';
import { TestApp, until, type GraphqlAnswer } from '../support/app.js';
import { makeRuleRun, seedWorld, type World } from '../support/fixtures.js';
import { Receiver } from '../support/receiver.js';

let app: TestApp;
let world: World;
let receiver: Receiver;

beforeAll(async () => {
  app = await TestApp.start({ RUNLEDGER_SANDBOX: 'off', RUNLEDGER_SECRET_KEY: SecretBox.generateKey() });
  world = await seedWorld(app.db);
  receiver = await Receiver.start();
});
afterAll(async () => {
  await app.stop();
  await receiver.stop();
});

const ask = (query: string, variables: object = {}, key?: string): Promise<GraphqlAnswer> =>
  app.request(query, variables as Record<string, unknown>, key);

const SHOWN = `id name url kinds eventTypes projectId batchSize enabled disabledReason deadAfterHours
  deadAfterFailures failures lastError lastDeliveredAt pingedAt pingError waitingRuns waitingEvents waitingSince`;
const mutation = (name: string, input: string) =>
  `mutation ($input: ${input}!) { ${name}(input: $input) { webhookEndpoint { ${SHOWN} } userErrors { code message field } } }`;
const SAVE = mutation('saveWebhookEndpoint', 'SaveWebhookEndpointInput');
const TEST = mutation('testWebhookEndpoint', 'WebhookEndpointInput');
const SWITCH = mutation('switchWebhookEndpoint', 'SwitchWebhookEndpointInput');
const REPLAY = mutation('replayWebhook', 'ReplayWebhookInput');
const DELETE = mutation('deleteWebhookEndpoint', 'WebhookEndpointInput');
const WAITING = 'query ($id: ID!) { webhookWaitingRuns(endpointId: $id) { runId deliveredSeq lastSeq } }';

const inputAt = (path: string) => ({ name: path, url: receiver.url(path), secret: 'SECRET-of-some-length' });
const save = async (input: object) => (await ask(SAVE, { input })).data.saveWebhookEndpoint;
const listed = async (key?: string) => (await ask(`{ webhookEndpoints { ${SHOWN} } }`, {}, key)).data;

test('an endpoint from its making to its removal', async () => {
  const { webhookEndpoint, userErrors } = await save(inputAt('/life'));
  expect(userErrors).toEqual([]);
  expect(webhookEndpoint).toMatchObject({
    name: '/life',
    url: receiver.url('/********'),
    kinds: ['RULE', 'PIPELINE', 'OPS'],
    eventTypes: ['*'],
    projectId: null,
    batchSize: 100,
    enabled: true,
    deadAfterHours: 72,
    deadAfterFailures: 20,
    waitingRuns: 0,
    waitingSince: null,
  });
  const { id } = webhookEndpoint;
  // Bells alone bring these: the backstop comes by later.
  const { id: runId } = await makeRuleRun(app.db, world.home);
  await until(
    async () => receiver.at('/life'),
    (sent) => sent.some(({ body }) => body.run.id === runId && body.events.at(-1).seq === 2),
  );
  await ask(TEST, { input: { id } });
  const pinged = await until(
    async () => (await listed()).webhookEndpoints[0],
    (endpoint) => endpoint.pingedAt !== null,
  );
  expect(pinged).toMatchObject({ pingError: null, lastError: null, lastDeliveredAt: expect.any(String) });
  expect(receiver.at('/life').at(-1)!.body.type).toBe('ping');

  const off = (await ask(SWITCH, { input: { id, enabled: false } })).data.switchWebhookEndpoint;
  expect(off.webhookEndpoint).toMatchObject({
    enabled: false,
    disabledReason: expect.stringContaining('off by'),
  });
  const before = receiver.received.length;
  const replayed = (await ask(REPLAY, { input: { endpointId: id, runId, afterSeq: 1 } })).data.replayWebhook;
  expect(replayed.webhookEndpoint).toMatchObject({ waitingRuns: 1 });
  expect((await ask(WAITING, { id })).data.webhookWaitingRuns).toEqual([
    { runId, deliveredSeq: 1, lastSeq: 2 },
  ]);
  await ask(SWITCH, { input: { id, enabled: true } });
  await until(
    async () => receiver.received.length,
    (count) => count > before,
  );
  expect(receiver.received[before]!.body.events.map(({ seq }: { seq: number }) => seq)).toEqual([2]);

  const gone = (await ask(DELETE, { input: { id } })).data.deleteWebhookEndpoint;
  expect(gone).toEqual({ webhookEndpoint: null, userErrors: [] });
  expect((await listed()).webhookEndpoints).toEqual([]);
});

test('no secret is shown or stored as it is, and the address is one', async () => {
  const { webhookEndpoint } = await save({ ...inputAt('/SECRET'), name: 'secret' });
  await save({
    ...inputAt('/SECRET'),
    name: 'secret',
    id: webhookEndpoint.id,
    secret: 'NEXT-SECRET-of-some-length',
  });
  expect(JSON.stringify(await listed())).not.toContain('SECRET');
  expect(JSON.stringify(await app.db.query('SELECT * FROM webhook_endpoint'))).not.toContain('SECRET');
  await ask(DELETE, { input: { id: webhookEndpoint.id } });
});

test('an address that stands in plain is shown masked, and sealed when it is saved as it is shown', async () => {
  const { id, url } = (await save({ ...inputAt('/plain'), name: 'plain' })).webhookEndpoint;
  const [row] = await app.db.query<{ stored: string }>(
    `UPDATE webhook_endpoint SET secrets = NULL, secrets_key_id = NULL,
       config = jsonb_build_object('url', $2::text, 'secret', 'FORMER-of-some-length')
     WHERE id = $1 RETURNING config ->> 'url' AS stored`,
    [id, receiver.url('/plain-SECRET')],
  );
  expect(row!.stored).toContain('SECRET');
  expect((await listed()).webhookEndpoints[0].url).toBe(url);
  const saved = await save({ id, name: 'plain', url, secret: 'OTHER-of-some-length' });
  expect(saved).toMatchObject({ userErrors: [], webhookEndpoint: { url } });
  expect(JSON.stringify(await app.db.query('SELECT * FROM webhook_endpoint'))).not.toContain('SECRET');
  await ask(TEST, { input: { id } });
  await until(
    async () => receiver.at('/plain-SECRET'),
    (sent) => sent.length > 0,
  );
  await ask(DELETE, { input: { id } });
});

test('an address that is saved as it is shown stays what it is', async () => {
  const { webhookEndpoint } = await save(inputAt('/kept'));
  const { id, url } = webhookEndpoint;
  expect((await save({ ...inputAt('/kept'), id, url, batchSize: 7 })).userErrors).toEqual([]);
  await ask(TEST, { input: { id } });
  await until(
    async () => receiver.at('/kept'),
    (sent) => sent.length > 0,
  );
  await ask(DELETE, { input: { id } });
});

describe('refused is', () => {
  test.each([
    ['an address that is masked', { url: 'https://example.com/********' }],
    ['no address', { url: 'nonsense' }],
    ['an address without TLS', { url: 'http://example.com/hook' }],
    ['another protocol', { url: 'file:///etc/passwd' }],
    ['a password in the address', { url: 'https://me:password@example.com/' }],
    ['a short secret', { secret: 'short' }],
    ['no secret', { secret: null }],
    ['no name', { name: ' ' }],
    ['an empty project', { projectId: '' }],
    ['no kind', { kinds: [] }],
    ['no type', { eventTypes: [] }],
    ['a star in the middle', { eventTypes: ['rule_*.complete'] }],
    ['an empty type', { eventTypes: ['rule_run.*', ''] }],
    ['a type with NUL', { eventTypes: ['a\u0000b'] }],
    ['too many types', { eventTypes: Array.from({ length: 51 }, (_, index) => `t${index}`) }],
    ['too large a batch', { batchSize: 501 }],
    ['too small a batch', { batchSize: 0 }],
    ['a figure below zero', { deadAfterHours: -1 }],
    ['patience without end', { deadAfterFailures: 10_001 }],
  ])('%s', async (_, wrong) => {
    const answer = await save({ ...inputAt('/bad'), ...wrong });
    expect(answer).toMatchObject({ webhookEndpoint: null, userErrors: [{ code: 'INVALID_INPUT' }] });
    expect(answer.userErrors[0].message).not.toContain('password@');
    expect((await listed()).webhookEndpoints).toEqual([]);
  });

  test('a kind of run that there is not, by the schema', async () => {
    const { errors } = await ask(SAVE, { input: { ...inputAt('/bad'), kinds: ['PIGEON'] } });
    expect(errors).toMatchObject([{ extensions: { code: 'BAD_USER_INPUT' } }]);
  });

  test('a name that is taken', async () => {
    const { webhookEndpoint } = await save(inputAt('/twice'));
    expect((await save(inputAt('/twice'))).userErrors).toMatchObject([
      { code: 'CONFLICT', field: ['input', 'name'] },
    ]);
    await ask(DELETE, { input: { id: webhookEndpoint.id } });
  });

  test('one endpoint too many', async () => {
    for (let index = 0; index < 50; index += 1) await save(inputAt(`/many-${index}`));
    expect((await save(inputAt('/many-50'))).userErrors).toMatchObject([{ code: 'LIMIT_EXCEEDED' }]);
    await app.db.query('DELETE FROM webhook_endpoint');
  });
});

test('another tenant’s endpoints do not exist, and only an ADMIN changes any', async () => {
  const { webhookEndpoint } = await save(inputAt('/mine'));
  const { id } = webhookEndpoint;
  const { id: runId } = await makeRuleRun(app.db, world.home);
  const theirs = await app.createKey('ADMIN', 'other');
  expect((await listed(theirs)).webhookEndpoints).toEqual([]);
  expect((await ask(WAITING, { id }, theirs)).data.webhookWaitingRuns).toEqual([]);
  const attempts: [string, object][] = [
    [SAVE, { ...inputAt('/mine'), id }],
    [TEST, { id }],
    [SWITCH, { id, enabled: false }],
    [REPLAY, { endpointId: id, runId }],
    [DELETE, { id }],
  ];
  for (const [document, input] of attempts) {
    const { data } = await ask(document, { input }, theirs);
    expect(Object.values(data)).toMatchObject([{ userErrors: [{ code: 'NOT_FOUND' }] }]);
  }
  const operator = await app.createKey('OPERATOR');
  for (const [document, input] of attempts) {
    const { errors } = await ask(document, { input }, operator);
    expect(errors).toMatchObject([{ extensions: { code: 'FORBIDDEN' } }]);
  }
  expect((await listed(operator)).webhookEndpoints).toMatchObject([{ id, enabled: true }]);
});
