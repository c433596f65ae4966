// Alerts over the API: listed, watched, their policies set, their sinks saved without showing a credential.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MASK } from '../../src/domain/settings.js';
import { evaluateAlerts } from '../../src/store/alert.js';
import { SecretBox } from '../../src/store/secret-box.js';
import { TestApp, type GraphqlAnswer } from '../support/app.js';
import { seedWorld } from '../support/fixtures.js';
import { ApiClient } from './support.js';

let app: TestApp;

beforeAll(async () => {
  app = await TestApp.start({
    RUNLEDGER_ROLE: 'api',
    RUNLEDGER_SANDBOX: 'off',
    RUNLEDGER_SECRET_KEY: SecretBox.generateKey(),
  });
  await seedWorld(app.db);
});
afterAll(() => app.stop());

const ask = (query: string, variables: object = {}, key?: string): Promise<GraphqlAnswer> =>
  app.request(query, variables as Record<string, unknown>, key);

const burst = (tenantId: string) =>
  app.db.query(
    'INSERT INTO channel_throttle (tenant_id, channel_id, count) SELECT tenant_id, id, 4 FROM channel WHERE tenant_id = $1',
    [tenantId],
  );
const calm = () => app.db.query(`UPDATE channel_throttle SET at = at - interval '10 minutes'`);

const ALERTS = `query ($status: AlertStatus, $policy: [AlertPolicyName!], $first: Int, $after: String) {
  alerts(status: $status, policy: $policy, first: $first, after: $after) {
    totalCount nodes { id policy severity status message subjectId value threshold firedAt resolvedAt }
    pageInfo { hasNextPage endCursor }
  }
}`;

test('alerts fire, are watched, resolve, and each tenant sees its own', async () => {
  const watching = new ApiClient(app.url, await app.createKey('VIEWER'));
  await burst('other');
  await evaluateAlerts(app.db, () => {});
  expect((await ask(ALERTS)).data.alerts).toMatchObject({ totalCount: 0, nodes: [] });
  const stream = watching.stream<{ alerts: { policy: string; status: string } }>(
    'subscription { alerts { id policy status message resolvedAt } }',
  );
  const next = async () => (await stream.next()).value.data!.alerts as { policy: string; status: string };
  await burst('default');
  await evaluateAlerts(app.db, () => {});
  expect(await next()).toMatchObject({ policy: 'THROTTLE_BURST', status: 'FIRING', resolvedAt: null });
  const { alerts } = (await ask(ALERTS, { status: 'FIRING' })).data;
  expect(alerts).toMatchObject({
    totalCount: 1,
    nodes: [{ policy: 'THROTTLE_BURST', severity: 'WARNING', subjectId: null, value: 4, threshold: 3 }],
  });
  await calm();
  await evaluateAlerts(app.db, () => {});
  expect(await next()).toMatchObject({ policy: 'THROTTLE_BURST', status: 'RESOLVED' });
  expect((await ask(ALERTS, { status: 'FIRING' })).data.alerts.totalCount).toBe(0);
  expect((await ask(ALERTS, { status: 'RESOLVED', policy: ['THROTTLE_BURST'] })).data.alerts.totalCount).toBe(
    1,
  );
  expect((await ask(ALERTS, { policy: ['DLQ_BACKLOG'] })).data.alerts.totalCount).toBe(0);
  expect((await ask(ALERTS, { first: 101 })).errors).toMatchObject([
    { extensions: { code: 'BAD_USER_INPUT' } },
  ]);
  expect((await ask(ALERTS, { after: 'garbage' })).errors).toMatchObject([
    { extensions: { code: 'BAD_USER_INPUT' } },
  ]);
  await stream.return?.();
  await watching.close();
});

test('who comes later sees what fires already', async () => {
  await app.db.query(
    `INSERT INTO alert (id, tenant_id, policy, severity, message, value, threshold, fired_at)
     VALUES (gen_random_uuid(), 'default', 'DLQ_CRITICAL', 'CRITICAL', 'm', 101, 100, now() - interval '1 day')`,
  );
  const watching = new ApiClient(app.url, await app.createKey('VIEWER'));
  const stream = watching.stream<{ alerts: { policy: string } }>('subscription { alerts { policy status } }');
  expect((await stream.next()).value.data).toEqual({ alerts: { policy: 'DLQ_CRITICAL', status: 'FIRING' } });
  await stream.return?.();
  await watching.close();
});

describe('policies', () => {
  const SAVE = `mutation ($input: SaveAlertPolicyInput!) {
    saveAlertPolicy(input: $input) { alertPolicy { policy threshold enabled } userErrors { code field } }
  }`;

  test('are set, and refused with the field at fault', async () => {
    const saved = await ask(SAVE, { input: { policy: 'DLQ_BACKLOG', threshold: 7 } });
    expect(saved.data.saveAlertPolicy).toEqual({
      alertPolicy: { policy: 'DLQ_BACKLOG', threshold: 7, enabled: true },
      userErrors: [],
    });
    const { data } = await ask(
      '{ alertPolicies { policy severity threshold windowSeconds cooldownSeconds } }',
    );
    expect(data.alertPolicies).toHaveLength(8);
    expect(data.alertPolicies[2]).toEqual({
      policy: 'DLQ_BACKLOG',
      severity: 'WARNING',
      threshold: 7,
      windowSeconds: null,
      cooldownSeconds: 300,
    });
    const above = await ask(SAVE, { input: { policy: 'LOW_SUCCESS_RATE', threshold: 100.5 } });
    expect(above.data.saveAlertPolicy).toMatchObject({
      alertPolicy: null,
      userErrors: [{ code: 'INVALID_INPUT', field: ['input', 'threshold'] }],
    });
    const refused = await ask(SAVE, { input: { policy: 'DLQ_BACKLOG', threshold: -7 } });
    expect(refused.data.saveAlertPolicy).toMatchObject({
      alertPolicy: null,
      userErrors: [{ code: 'INVALID_INPUT', field: ['input', 'threshold'] }],
    });
  });

  test('are for admins to set', async () => {
    const answer = await ask(SAVE, { input: { policy: 'DLQ_BACKLOG' } }, await app.createKey('OPERATOR'));
    expect(answer.errors).toMatchObject([{ extensions: { code: 'FORBIDDEN' } }]);
  });
});

describe('sinks', () => {
  const SINK = 'id name kind config severities enabled waiting lastDeliveredAt lastError';
  const SAVE = `mutation ($input: SaveAlertSinkInput!) {
    saveAlertSink(input: $input) { alertSink { ${SINK} } userErrors { code message field } }
  }`;
  const input = { name: 'slack', kind: 'WEBHOOK', config: { url: 'https://hooks.example.com/T0/B0/SECRET' } };

  test('are saved, tried and deleted, and show no credential', async () => {
    const saved = await ask(SAVE, { input });
    const { alertSink } = saved.data.saveAlertSink;
    expect(alertSink).toMatchObject({
      config: { url: MASK },
      severities: ['WARNING', 'CRITICAL'],
      enabled: true,
      waiting: 0,
    });
    const tried = await ask(
      `mutation ($id: ID!) { testAlertSink(input: { id: $id }) { alertSink { waiting } userErrors { code } } }`,
      { id: alertSink.id },
    );
    expect(tried.data.testAlertSink.alertSink).toEqual({ waiting: 1 });
    const listed = await ask(`{ alertSinks { ${SINK} } }`);
    expect(listed.data.alertSinks).toMatchObject([{ name: 'slack', config: { url: MASK } }]);
    expect(JSON.stringify([saved, tried, listed])).not.toContain('SECRET');
    expect(JSON.stringify(await app.db.query('SELECT * FROM alert_sink'))).not.toContain('SECRET');
    const gone = await ask(
      'mutation ($id: ID!) { deleteAlertSink(input: { id: $id }) { alertSink { id } userErrors { code } } }',
      { id: alertSink.id },
    );
    expect(gone.data.deleteAlertSink).toEqual({ alertSink: null, userErrors: [] });
    expect((await ask('{ alertSinks { id } }')).data.alertSinks).toEqual([]);
  });

  test('one that is disabled is not tried, and says why', async () => {
    const saved = await ask(SAVE, { input: { ...input, name: 'off', enabled: false } });
    const { id } = saved.data.saveAlertSink.alertSink;
    const tried = await ask(
      `mutation ($id: ID!) {
        testAlertSink(input: { id: $id }) { alertSink { id } userErrors { code message field } }
      }`,
      { id },
    );
    expect(tried.data.testAlertSink).toEqual({
      alertSink: null,
      userErrors: [
        {
          code: 'INVALID_INPUT',
          message: 'The sink off is disabled: enable it to try it.',
          field: ['input', 'id'],
        },
      ],
    });
    expect(await app.db.query('SELECT 1 FROM alert_notice WHERE sink_id = $1', [id])).toEqual([]);
    await app.db.query('DELETE FROM alert_sink WHERE id = $1', [id]);
  });

  test.each([
    ['a kind that there is not', { ...input, kind: 'PIGEON' }],
    ['an address without TLS', { ...input, config: { url: 'http://example.com' } }],
    ['no settings at all', { ...input, config: [] }],
    ['a mask for nothing', { ...input, config: { url: MASK } }],
    ['no name', { ...input, name: ' ' }],
  ])('%s is refused', async (_, wrong) => {
    const { saveAlertSink } = (await ask(SAVE, { input: wrong })).data;
    expect(saveAlertSink).toMatchObject({ alertSink: null, userErrors: [{ code: 'INVALID_INPUT' }] });
  });

  test('of another tenant are not found', async () => {
    const { alertSink } = (await ask(SAVE, { input: { ...input, name: 'mine' } })).data.saveAlertSink;
    const key = await app.createKey('ADMIN', 'other');
    const answer = await ask(SAVE, { input: { ...input, id: alertSink.id } }, key);
    expect(answer.data.saveAlertSink.userErrors).toMatchObject([{ code: 'NOT_FOUND' }]);
  });
});
