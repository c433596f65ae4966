// kill -9 in the middle of a rollback: the next server goes on with it, and every price stands as it was.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectInvariants } from '../store/invariants.js';
import { request, until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { useServers } from '../support/servers.js';

const COUNT = 3_000;

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

const spawnServer = useServers(() => database.url);

const RUN = 'id status counts { applied rolledBack } rollback { underWay }';
const READ = `query ($id: ID!) { ruleRun(id: $id) { ${RUN} } }`;
const ASK = (mutation: string, type: string) =>
  `mutation ($input: ${type}!) { ${mutation}(input: $input) { ruleRun { ${RUN} } userErrors { code message } } }`;

async function ask(url: string, mutation: string, type: string, input: object): Promise<{ id: string }> {
  const { data } = await request(url, ASK(mutation, type), { input });
  expect(data[mutation].userErrors).toEqual([]);
  return data[mutation].ruleRun;
}

async function runOf(url: string, id: string) {
  return (await request(url, READ, { id })).data.ruleRun;
}

test('a rollback goes on where a killed server left it', async () => {
  const first = await spawnServer();
  const { data } = await request(first.url, '{ channels { id name } }');
  const channelId = data.channels.find(({ name }: { name: string }) => name === 'sandbox').id;
  const eur = (unit_amount: number) => ({ unit_amount, currency: 'EUR' });
  const targets = Array.from({ length: COUNT }, (_, index) => ({
    externalId: `item-${index}`,
    before: eur(1_000 + index),
    after: eur(2_000 + index),
  }));
  const { id } = await ask(first.url, 'createRuleRun', 'CreateRuleRunInput', { channelId, targets });
  await ask(first.url, 'queueRuleRun', 'RuleRunInput', { runId: id });
  await until(
    () => runOf(first.url, id),
    ({ status }) => status === 'APPLIED',
  );
  await ask(first.url, 'rollBackRuleRun', 'RollBackRuleRunInput', { runId: id });
  const { rollback } = await until(
    () => runOf(first.url, id),
    ({ counts }) => counts.rolledBack > 0,
  );
  await first.end('SIGKILL');
  expect(rollback.underWay).toBe(true);

  const second = await spawnServer();
  const end = await until(
    () => runOf(second.url, id),
    (run) => !run.rollback.underWay,
  );
  expect(end).toMatchObject({ status: 'ROLLED_BACK', counts: { applied: 0, rolledBack: COUNT } });
  await expectInvariants(database.db, id);
  const wrong = await database.db.query(
    `SELECT external_id FROM rule_target LEFT JOIN sandbox_price AS price USING (external_id)
     WHERE run_id = $1 AND price.price IS DISTINCT FROM to_char(before_amount / 100.0, 'FM99990.00')`,
    [id],
  );
  expect(wrong).toEqual([]);
}, 120_000);
