// What is done by the clock, by two whole servers on one database: an alert is told once, a tick starts one run,
// and a sink that hangs keeps neither of them nor the work waiting.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { App } from '../../src/app.js';
import { request, startApp, until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { Receiver } from '../support/receiver.js';

const RUNLEDGER_SECRET_KEY = '7'.repeat(64);

let database: TestDatabase;
let receiver: Receiver;
let apps: App[];

beforeAll(async () => {
  [database, receiver] = await Promise.all([createTestDatabase(), Receiver.start()]);
  apps = await Promise.all([1, 2].map(() => startApp(database.url, { RUNLEDGER_SECRET_KEY })));
});
afterAll(async () => {
  await Promise.all(apps.map((app) => app.stop()));
  await receiver.stop();
  await database.drop();
});

async function mutate(field: string, type: string, input: object, result: string): Promise<Answer> {
  const query = `mutation ($input: ${type}!) { ${field}(input: $input) { ${result} userErrors { message } } }`;
  const { data, errors } = await request(apps[0]!.url!, query, { input });
  expect(errors).toBeUndefined();
  expect(data[field].userErrors).toEqual([]);
  return data[field] as Answer;
}

type Answer = Readonly<Record<string, { readonly id: string }>>;

const saveSink = (path: string) =>
  mutate(
    'saveAlertSink',
    'SaveAlertSinkInput',
    { name: path, kind: 'WEBHOOK', config: { url: receiver.url(path) } },
    'alertSink { id }',
  );

async function failOneTarget(): Promise<void> {
  const { data } = await request(apps[0]!.url!, '{ channels { id } }');
  const money = (unit_amount: number) => ({ unit_amount, currency: 'EUR' });
  const targets = [{ externalId: 'fail-1', before: money(100), after: money(120) }];
  const { ruleRun } = await mutate(
    'createRuleRun',
    'CreateRuleRunInput',
    { channelId: data.channels[0].id, targets },
    'ruleRun { id }',
  );
  await mutate('queueRuleRun', 'RuleRunInput', { runId: ruleRun!.id }, 'ruleRun { id }');
  await until(
    () => database.db.query<{ status: string }>('SELECT status FROM rule_run WHERE id = $1', [ruleRun!.id]),
    ([run]) => run!.status === 'FAILED',
  );
}

test('two servers tell of an alert once and start a tick once, whatever a sink does', async () => {
  receiver.answers.set('/hangs', 'hang');
  await saveSink('/hangs');
  await saveSink('/quick');
  await mutate(
    'saveAlertPolicy',
    'SaveAlertPolicyInput',
    { policy: 'DLQ_BACKLOG', threshold: 0 },
    'alertPolicy { policy }',
  );
  for (const policy of ['LOW_SUCCESS_RATE', 'CRITICAL_SUCCESS_RATE'])
    await mutate(
      'saveAlertPolicy',
      'SaveAlertPolicyInput',
      { policy, enabled: false },
      'alertPolicy { policy }',
    );
  await failOneTarget();
  await until(
    async () => receiver.at('/hangs').length,
    (tries) => tries > 0,
  );

  // While that sink still hangs: the other is told, and the clock goes on.
  const { data } = await request(apps[1]!.url!, '{ sources { id } }');
  const { schedule } = await mutate(
    'saveSchedule',
    'SaveScheduleInput',
    { name: 'often', kind: 'PIPELINE', sourceId: data.sources[0].id, cron: '0 0 1 1 *' },
    'schedule { id }',
  );
  await database.db.query(`UPDATE schedule SET next_at = date_trunc('second', now()) WHERE id = $1`, [
    schedule!.id,
  ]);
  await until(
    () => database.db.query('SELECT 1 FROM run_metadata'),
    (runs) => runs.length > 0,
  );
  await until(
    async () => receiver.at('/quick').length,
    (told) => told > 0,
  );
  expect(receiver.at('/quick').map(({ body }) => [body.alert.event, body.alert.policy])).toEqual([
    ['FIRED', 'DLQ_BACKLOG'],
  ]);
  const jobs = () =>
    database.db.query("SELECT name FROM maintenance_job WHERE next_at < now() - interval '15 seconds'");
  expect(await jobs()).toEqual([]);
  expect(await database.db.query('SELECT actor FROM run_metadata')).toEqual([{ actor: 'schedule:often' }]);
  expect(await database.db.query('SELECT policy FROM alert')).toEqual([{ policy: 'DLQ_BACKLOG' }]);
}, 60_000);
