// /metrics of a whole server, after work was done by it.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestApp, until } from '../support/app.js';

let app: TestApp;

beforeAll(async () => {
  app = await TestApp.start();
});
afterAll(() => app.stop());

async function scrape(): Promise<Map<string, number>> {
  const text = await (await fetch(new URL('/metrics', app.url))).text();
  const samples = [...text.matchAll(/^([a-z]\S*) (\S+)$/gm)];
  return new Map(samples.map(([, name, value]) => [name!, Number(value)]));
}

test('tells of the run that was worked', async () => {
  const { data } = await app.request('{ channels { id } }');
  const ids = ['plain-1', 'plain-2', 'fail-1', 'flaky1-1', 'throttle-1'];
  const money = (amount: number) => ({ unit_amount: amount, currency: 'EUR' });
  const targets = ids.map((externalId) => ({ externalId, before: money(100), after: money(120) }));
  const created = await app.request(
    'mutation ($input: CreateRuleRunInput!) { createRuleRun(input: $input) { ruleRun { id } } }',
    { input: { channelId: data.channels[0].id, targets } },
  );
  const runId = created.data.createRuleRun.ruleRun.id as string;
  await app.request('mutation ($id: ID!) { queueRuleRun(input: { runId: $id }) { userErrors { code } } }', {
    id: runId,
  });
  await until(
    () => app.request('query ($id: ID!) { ruleRun(id: $id) { status } }', { id: runId }),
    (answer) => answer.data.ruleRun.status === 'PARTIAL',
  );
  // The database's facts may be those of five seconds ago.
  const samples = await until(scrape, (found) => found.get('rules_dlq_size') === 1);
  expect(samples.get('rules_apply_success_rate')).toBe(80);
  expect(samples.get('rules_apply_count')).toBe(7);
  expect(samples.get('rules_target_retries')).toBe(2);
  expect(samples.get('rules_429_count')).toBe(1);
  expect(samples.get('rules_apply_duration_ms_count')).toBe(1);
  expect(samples.get('runledger_listener_up')).toBe(1);
  expect(samples.get('runledger_listener_lag_seconds_count')).toBeGreaterThan(0);
  expect(samples.get('runledger_claim_seconds_count{kind="rule_target"}')).toBeGreaterThan(0);
  expect(samples.get('runledger_worker_leases{worker="1"}')).toBe(0);
});
