// Catalog in, prices out: a rule over the catalog is previewed, queued with its hash, and the shop has the
// new prices. Everything through the one server, over HTTP.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestApp, until } from '../support/app.js';

let app: TestApp;

beforeAll(async () => {
  app = await TestApp.start();
});
afterAll(() => app.stop());

const ITEMS = Array.from({ length: 40 }, (_, index) => ({
  externalId: `shirt-${String(index).padStart(2, '0')}`,
  title: index % 2 === 0 ? 'Linen shirt' : 'Wool hat',
  unitAmount: 2_000 + index * 100,
  currency: 'EUR',
}));

test('from the catalog to the shop', async () => {
  const { data: imported } = await app.request(
    'mutation ($items: [CatalogItemInput!]!) { importCatalogItems(input: { items: $items }) { imported } }',
    { items: ITEMS },
  );
  expect(imported.importCatalogItems.imported).toBe(40);
  const definition = {
    currency: 'EUR',
    match: { field: 'title', contains: 'shirt' },
    adjust: { percent: 10 },
    round: { step: 100, ending: 99 },
  };
  const { data: saved } = await app.request(
    `mutation ($definition: JSON!) {
      savePricingRule(input: { name: "charm", definition: $definition }) { pricingRule { id } }
    }`,
    { definition },
  );
  const { data: channels } = await app.request('{ channels { id name } }');
  const channelId = channels.channels.find(({ name }: { name: string }) => name === 'sandbox').id;
  const { data: created } = await app.request(
    `mutation ($input: CreateRuleRunInput!) {
      createRuleRun(input: $input) { ruleRun { id preview { count hash } } userErrors { message } }
    }`,
    { input: { channelId, ruleId: saved.savePricingRule.pricingRule.id } },
  );
  const { id: runId, preview } = created.createRuleRun.ruleRun;
  expect(preview.count).toBe(20);
  await app.request(
    'mutation ($input: RuleRunInput!) { queueRuleRun(input: $input) { userErrors { message } } }',
    {
      input: { runId, confirm: preview.hash },
    },
  );
  const run = await until(
    async () =>
      (
        await app.request('query ($id: ID!) { ruleRun(id: $id) { status counts { applied } } }', {
          id: runId,
        })
      ).data.ruleRun,
    ({ status }) => !['QUEUED', 'APPLYING'].includes(status),
  );
  expect(run).toEqual({ status: 'APPLIED', counts: { applied: 20 } });
  const prices = await app.db.query(
    `SELECT external_id AS id, price FROM sandbox_price WHERE external_id IN ('shirt-00', 'shirt-02') ORDER BY 1`,
  );
  // 22.00 is nearest to 21.99, 24.20 to 23.99.
  expect(prices).toEqual([
    { id: 'shirt-00', price: '21.99' },
    { id: 'shirt-02', price: '23.99' },
  ]);
});
