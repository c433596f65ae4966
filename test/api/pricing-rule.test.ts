// Pricing rules over HTTP: saved by version, listed by project, refused with the path of each fault.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { graphql } from '../generated/gql.js';
import type { SavePricingRuleInput } from '../generated/graphql.js';
import { newId } from '../../src/store/id.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

const SavePricingRule = graphql(`
  mutation SavePricingRule($input: SavePricingRuleInput!) {
    savePricingRule(input: $input) {
      pricingRule {
        id
        name
        projectId
        enabled
        priority
        version
        definition
      }
      userErrors {
        code
        message
        field
        details
      }
    }
  }
`);

const PricingRules = graphql(`
  query PricingRules($projectId: String) {
    pricingRules(projectId: $projectId) {
      id
      name
      version
    }
  }
`);

const PricingRuleNode = graphql(`
  query PricingRuleNode($id: ID!) {
    node(id: $id) {
      __typename
      id
      ... on PricingRule {
        name
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

const RAISE = { adjust: { percent: 5 } };

async function save(input: Partial<SavePricingRuleInput>, client = admin) {
  const { savePricingRule } = await client.ask(SavePricingRule, {
    input: { name: 'raise', definition: RAISE, ...input },
  });
  return savePricingRule;
}

const refusalOf = async (input: Partial<SavePricingRuleInput>, client = admin) => {
  const before = await admin.ask(PricingRules, {});
  const { pricingRule, userErrors } = await save(input, client);
  expect(pricingRule).toBeNull();
  expect(await admin.ask(PricingRules, {})).toEqual(before);
  return userErrors[0]!;
};

test('a new rule has the defaults and version 1', async () => {
  const { pricingRule, userErrors } = await save({});
  expect(userErrors).toEqual([]);
  expect(pricingRule).toMatchObject({
    name: 'raise',
    projectId: 'default',
    enabled: true,
    priority: 0,
    version: 1,
    definition: RAISE,
  });
});

test('a save with its id is the next version, and replaces what it was', async () => {
  const { id } = (await save({ projectId: 'spring', priority: 5, enabled: false })).pricingRule!;
  const definition = { currency: 'EUR', adjust: { set: 100 }, limits: { floor: 50 } };
  const { pricingRule } = await save({ id, projectId: 'spring', name: 'fixed', definition });
  expect(pricingRule).toEqual({
    id,
    name: 'fixed',
    projectId: 'spring',
    enabled: true,
    priority: 0,
    version: 2,
    definition,
  });
  expect((await admin.ask(PricingRules, { projectId: 'spring' })).pricingRules).toEqual([
    { id, name: 'fixed', version: 2 },
  ]);
});

test('rules come by priority, then by name', async () => {
  const projectId = 'order';
  await save({ projectId, name: 'b' });
  await save({ projectId, name: 'a' });
  await save({ projectId, name: 'c', priority: 9 });
  const { pricingRules } = await admin.ask(PricingRules, { projectId });
  expect(pricingRules.map(({ name }) => name)).toEqual(['c', 'a', 'b']);
});

test('a save from an older version is refused when it says so', async () => {
  const { id } = (await save({})).pricingRule!;
  await save({ id, name: 'second', expectedVersion: 1 });
  expect(await refusalOf({ id, name: 'late', expectedVersion: 1 })).toMatchObject({
    code: 'CONFLICT',
    field: ['input', 'expectedVersion'],
    details: { version: 2 },
  });
  expect((await save({ id, name: 'third', expectedVersion: 2 })).pricingRule).toMatchObject({ version: 3 });
});

test('saves at the same time each get a version of their own', async () => {
  const { id } = (await save({})).pricingRule!;
  const saved = await Promise.all(Array.from({ length: 8 }, (_, index) => save({ id, name: `n${index}` })));
  expect(saved.every(({ userErrors }) => userErrors.length === 0)).toBe(true);
  expect((await save({ id })).pricingRule!.version).toBe(10);
});

test('a bad definition is refused with the path of each fault', async () => {
  const definition = { adjust: { percent: 5, set: 100 }, limits: { flor: 1 }, match: { field: 'colour' } };
  expect(await refusalOf({ definition })).toEqual({
    code: 'INVALID_INPUT',
    message:
      'input.definition.match.field must be externalId, title, price, cost, currency or attributes.<name>',
    field: ['input', 'definition', 'match', 'field'],
    details: {
      faultCount: 3,
      faults: [
        { field: ['input', 'definition', 'match', 'field'], message: expect.any(String) },
        { field: ['input', 'definition', 'adjust'], message: expect.stringContaining('exactly one of') },
        { field: ['input', 'definition', 'limits', 'flor'], message: expect.stringContaining('not known') },
      ],
    },
  });
});

test.each([
  [{ name: '  ' }, 'INVALID_INPUT', ['input', 'name']],
  [{ projectId: 'x'.repeat(256) }, 'INVALID_INPUT', ['input', 'projectId']],
  [{ definition: [RAISE] }, 'INVALID_INPUT', ['input', 'definition']],
  [
    { definition: { ...RAISE, match: { field: 'title', eq: 'x'.repeat(70_000) } } },
    'LIMIT_EXCEEDED',
    ['input', 'definition'],
  ],
  [{ id: 'no-such-rule' }, 'NOT_FOUND', ['input', 'id']],
  [{ id: newId() }, 'NOT_FOUND', ['input', 'id']],
])('%j is refused with %s', async (input, code, field) => {
  const answer = await admin.send<{ savePricingRule: { userErrors: object[] } }>(SavePricingRule.toString(), {
    input: { name: 'raise', definition: RAISE, ...input },
  });
  expect(answer.errors).toBeUndefined();
  expect(answer.data!.savePricingRule.userErrors).toMatchObject([{ code, field }]);
});

test('a definition of null does not fit the schema, which says so itself', async () => {
  const input = { name: 'raise', definition: null };
  const { errors } = await admin.send(SavePricingRule.toString(), { input });
  expect(errors![0]!.extensions.code).toBe('BAD_USER_INPUT');
});

test('node finds it, and nobody else sees or changes it', async () => {
  const { id } = (await save({ name: 'ours' })).pricingRule!;
  expect(await admin.ask(PricingRuleNode, { id })).toEqual({
    node: { __typename: 'PricingRule', id, name: 'ours' },
  });
  expect(await stranger.ask(PricingRuleNode, { id })).toEqual({ node: null });
  expect((await stranger.ask(PricingRules, {})).pricingRules).toEqual([]);
  expect(await refusalOf({ id, name: 'theirs' }, stranger)).toMatchObject({ code: 'NOT_FOUND' });
});
