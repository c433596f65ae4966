// The catalog over HTTP: imported in bulk, the same import again is nothing new, all of it or none, read page
// by page.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { graphql } from '../generated/gql.js';
import type { CatalogItemInput } from '../generated/graphql.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

const ImportCatalogItems = graphql(`
  mutation ImportCatalogItems($items: [CatalogItemInput!]!) {
    importCatalogItems(input: { items: $items }) {
      imported
      created
      updated
      userErrors {
        code
        message
        field
        details
      }
    }
  }
`);

const CatalogItems = graphql(`
  query CatalogItems($first: Int, $after: String) {
    catalogItems(first: $first, after: $after) {
      nodes {
        id
        externalId
        title
        unitAmount
        costAmount
        currency
        attributes
        updatedAt
      }
      pageInfo {
        hasNextPage
        hasPreviousPage
        endCursor
      }
      totalCount
    }
  }
`);

const CatalogItemNode = graphql(`
  query CatalogItemNode($id: ID!) {
    node(id: $id) {
      ... on CatalogItem {
        externalId
      }
    }
  }
`);

let api: TestApi;
let admin: ApiClient;
let stranger: ApiClient;
beforeAll(async () => {
  api = await startApi();
  admin = await api.client();
  stranger = await api.client('ADMIN', 'other');
});
afterAll(() => api.stop());
beforeEach(() => api.db.query('DELETE FROM catalog_item'));

const itemsOf = (count: number, overrides: Partial<CatalogItemInput> = {}): CatalogItemInput[] =>
  Array.from({ length: count }, (_, index) => ({
    externalId: `sku-${String(index).padStart(5, '0')}`,
    title: `Item ${index}`,
    unitAmount: 1000 + index,
    currency: 'EUR',
    ...overrides,
  }));

async function importItems(items: CatalogItemInput[], client = admin) {
  return (await client.ask(ImportCatalogItems, { items })).importCatalogItems;
}
const list = async (first = 100, after: string | null = null, client = admin) =>
  (await client.ask(CatalogItems, { first, after })).catalogItems;

test('an item is what was given', async () => {
  const item = {
    externalId: 'gid://shop/Variant/1',
    title: 'Linen shirt',
    unitAmount: Number.MAX_SAFE_INTEGER,
    costAmount: 0,
    currency: 'JPY',
    attributes: { brand: 'Acme', tags: ['a', 'b'] },
  };
  const answer = await importItems([
    item,
    { ...item, externalId: 'bare', costAmount: null, attributes: null },
  ]);
  expect(answer).toEqual({ imported: 2, created: 2, updated: 0, userErrors: [] });
  const { nodes, totalCount } = await list();
  expect(totalCount).toBe(2);
  expect(nodes).toMatchObject([
    { ...item, externalId: 'bare', costAmount: null, attributes: {} },
    { ...item, externalId: 'gid://shop/Variant/1' },
  ]);
});

test('the same import again changes nothing, not even a timestamp', async () => {
  const items = itemsOf(3, { attributes: { b: 1, a: [1, 2] } });
  await importItems(items);
  const before = await list();
  const again = items.map((item) => ({ ...item, attributes: { a: [1, 2], b: 1 } }));
  expect(await importItems(again)).toMatchObject({ imported: 3, created: 0, updated: 0 });
  expect(await list()).toEqual(before);
});

test.each([
  { title: 'Another' },
  { unitAmount: 7 },
  { costAmount: 7 },
  { currency: 'USD' },
  { attributes: { brand: 'Acme' } },
])('a change of %j is seen, and only there', async (change) => {
  const items = itemsOf(3);
  await importItems(items);
  const before = await list();
  const changed = items.map((item, index) => (index === 1 ? { ...item, ...change } : item));
  expect(await importItems(changed)).toMatchObject({ imported: 3, created: 0, updated: 1 });
  const after = await list();
  expect(after.nodes[1]).toMatchObject({ id: before.nodes[1]!.id, ...change });
  expect(Date.parse(after.nodes[1]!.updatedAt)).toBeGreaterThan(Date.parse(before.nodes[1]!.updatedAt));
  expect([after.nodes[0], after.nodes[2]]).toEqual([before.nodes[0], before.nodes[2]]);
});

test('an item that was taken out comes back', async () => {
  await importItems(itemsOf(2));
  await api.db.query(`UPDATE catalog_item SET deleted_at = now() WHERE external_id = 'sku-00001'`);
  expect(await list()).toMatchObject({ nodes: [{ externalId: 'sku-00000' }], totalCount: 1 });
  expect(await importItems(itemsOf(2))).toMatchObject({ imported: 2, created: 0, updated: 1 });
  expect((await list()).totalCount).toBe(2);
});

describe('refused as a whole', () => {
  async function refusalOf(items: CatalogItemInput[]) {
    await importItems(itemsOf(1));
    const before = await list();
    const { imported, userErrors } = await importItems(items);
    expect(imported).toBe(0);
    expect(await list()).toEqual(before);
    return userErrors[0]!;
  }

  test('each fault has its path', async () => {
    const [good, bad, twin] = itemsOf(3) as [CatalogItemInput, CatalogItemInput, CatalogItemInput];
    const refusal = await refusalOf([
      good,
      { ...bad, title: '', unitAmount: -1, costAmount: -1, currency: 'EURO', attributes: [1] },
      { ...twin, externalId: good.externalId },
      { ...twin, externalId: ' ' },
    ]);
    expect(refusal).toMatchObject({ code: 'INVALID_INPUT', field: ['input', 'items', '1', 'title'] });
    const { faults } = refusal.details as { faults: { field: string[] }[] };
    expect(faults.map(({ field }) => field.slice(2).join('.'))).toEqual([
      '1.title',
      '1.unitAmount',
      '1.costAmount',
      '1.currency',
      '1.attributes',
      '2.externalId',
      '3.externalId',
    ]);
  });

  test.each([
    ['externalId', { externalId: 'x'.repeat(256) }],
    ['externalId', { externalId: 'a\0b' }],
    ['title', { title: 'x'.repeat(1001) }],
    ['title', { title: 'a\0b' }],
    ['attributes', { attributes: 'text' }],
  ])('%s of %j', async (name, change) => {
    const items = itemsOf(1, change);
    expect(await refusalOf(items)).toMatchObject({
      code: 'INVALID_INPUT',
      field: ['input', 'items', '0', name],
    });
  });

  test('a character in the attributes that cannot be stored', async () => {
    expect(await refusalOf(itemsOf(2, { attributes: { text: 'a\0b' } }))).toMatchObject({
      code: 'INVALID_INPUT',
    });
  });

  test('attributes that no list could show a hundred of', async () => {
    const refusal = await refusalOf(itemsOf(2, { attributes: { text: 'x'.repeat(256 * 1024) } }));
    expect(refusal).toMatchObject({ code: 'INVALID_INPUT', field: ['input', 'items', '0', 'attributes'] });
    expect(refusal.details).toMatchObject({ faultCount: 2 });
    const { imported } = await importItems(itemsOf(1, { attributes: { text: 'x'.repeat(255 * 1024) } }));
    expect(imported).toBe(1);
  });

  test('more than one call takes', async () => {
    expect(await refusalOf(itemsOf(10_001))).toMatchObject({
      code: 'LIMIT_EXCEEDED',
      field: ['input', 'items'],
      details: { limit: 10_000, given: 10_001 },
    });
  });
});

test('ten thousand items go in at once, and are read page by page in order', async () => {
  const items = itemsOf(10_000);
  expect(await importItems(items)).toMatchObject({ imported: 10_000, created: 10_000, userErrors: [] });
  const seen: string[] = [];
  let after: string | null = null;
  for (let page = 0; page < 3; page += 1) {
    const { nodes, pageInfo, totalCount } = await list(100, after);
    expect(totalCount).toBe(10_000);
    expect(pageInfo).toMatchObject({ hasNextPage: true, hasPreviousPage: page > 0 });
    seen.push(...nodes.map(({ externalId }) => externalId));
    after = pageInfo.endCursor!;
  }
  expect(seen).toEqual(items.slice(0, 300).map(({ externalId }) => externalId));
});

test('imports of the same items at the same time do not deadlock, and the last one wins everywhere', async () => {
  const forward = itemsOf(500, { title: 'forward' });
  const backward = itemsOf(500, { title: 'backward' }).reverse();
  const answers = await Promise.all(
    [forward, backward, forward, backward].map((items) => importItems(items)),
  );
  expect(answers.map(({ imported }) => imported)).toEqual([500, 500, 500, 500]);
  const titles = await api.db.query('SELECT DISTINCT title FROM catalog_item');
  expect(titles).toHaveLength(1);
});

test.each([0, 101, -1])('a page of %d items is refused', async (first) => {
  const { errors } = await admin.send(CatalogItems.toString(), { first });
  expect(errors![0]!.extensions.code).toBe('BAD_USER_INPUT');
});

test('a cursor of another list is refused', async () => {
  const { errors } = await admin.send(CatalogItems.toString(), { after: 'nonsense' });
  expect(errors![0]!.extensions.code).toBe('BAD_USER_INPUT');
});

test('tenants have catalogs of their own, with the same external ids', async () => {
  await importItems(itemsOf(2));
  await importItems(itemsOf(1, { title: 'theirs' }), stranger);
  expect((await list()).nodes.map(({ title }) => title)).toEqual(['Item 0', 'Item 1']);
  expect((await list(100, null, stranger)).nodes).toMatchObject([{ title: 'theirs' }]);
  const { id, externalId } = (await list()).nodes[0]!;
  expect(await admin.ask(CatalogItemNode, { id })).toEqual({ node: { externalId } });
  expect(await stranger.ask(CatalogItemNode, { id })).toEqual({ node: null });
});
