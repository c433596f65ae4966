// Preview and guardrails over HTTP: a rule is previewed over the catalog, looked at, refused, confirmed.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { graphql } from '../generated/gql.js';
import type { CreateRuleRunInput, RuleRunInput } from '../generated/graphql.js';
import { importCatalogItems } from '../../src/store/catalog-item.js';
import { makePricingRule } from '../support/fixtures.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

const CreatePreview = graphql(`
  mutation CreatePreview($input: CreateRuleRunInput!) {
    createRuleRun(input: $input) {
      ruleRun {
        id
        status
        counts {
          total
          preview
        }
        rule {
          id
          name
          version
          definition
        }
        preview {
          count
          minChangePercent
          medianChangePercent
          maxChangePercent
          largestIncreases {
            externalId
            beforeAmount
            afterAmount
            changePercent
          }
          largestDecreases {
            externalId
          }
          evaluated
          matched
          unchanged
          skipped {
            reason
            count
          }
          limitHits {
            limit
            count
          }
          hash
        }
        targets(first: 10) {
          nodes {
            externalId
            before
            after
          }
        }
      }
      userErrors {
        code
        field
        details
      }
    }
  }
`);

const QueuePreview = graphql(`
  mutation QueuePreview($input: RuleRunInput!) {
    queueRuleRun(input: $input) {
      ruleRun {
        status
        preview {
          hash
        }
      }
      userErrors {
        code
        field
        details
      }
    }
  }
`);

const SaveGuardrails = graphql(`
  mutation SaveGuardrails($input: SaveGuardrailsInput!) {
    saveGuardrails(input: $input) {
      guardrails {
        maxTargets
        maxChangePercent
      }
      userErrors {
        code
        field
      }
    }
  }
`);

const ReadGuardrails = graphql(`
  query ReadGuardrails {
    guardrails {
      maxTargets
      maxChangePercent
    }
  }
`);

const PreviewsOfAll = graphql(`
  query PreviewsOfAll {
    ruleRuns(first: 100) {
      nodes {
        id
        preview {
          count
        }
      }
    }
  }
`);

let api: TestApi;
let operator: ApiClient;
let ruleId: string;

beforeAll(async () => {
  api = await startApi();
  operator = await api.client('OPERATOR');
  const { viewer } = api.world.home;
  const item = (externalId: string, unitAmount: number, costAmount: number | null) => ({
    externalId,
    title: externalId,
    unitAmount,
    costAmount,
    currency: 'EUR',
  });
  await importCatalogItems(api.db, viewer, [
    item('a', 1000, 500),
    item('b', 2000, 500),
    item('c', 3000, null),
    item('d', 3999, 500),
  ]);
  const definition = {
    currency: 'EUR',
    adjust: { percent: 10 },
    round: { step: 100, ending: 99 },
    limits: { ceiling: 3999, minMarginPercent: 0 },
  };
  ruleId = await makePricingRule(api.db, api.world.home, definition, { name: 'charm' });
});
afterAll(() => api.stop());

async function create(input: Partial<CreateRuleRunInput>) {
  const { channelId } = api.world.home;
  return (await operator.ask(CreatePreview, { input: { channelId, ...input } })).createRuleRun;
}
const queue = async (input: RuleRunInput) => (await operator.ask(QueuePreview, { input })).queueRuleRun;

test('a rule previewed over the catalog', async () => {
  const { ruleRun, userErrors } = await create({ ruleId });
  expect(userErrors).toEqual([]);
  expect(ruleRun).toMatchObject({
    status: 'PREVIEW',
    counts: { total: 2, preview: 2 },
    rule: { id: ruleId, name: 'charm', version: 1, definition: { adjust: { percent: 10 } } },
    preview: {
      count: 2,
      minChangePercent: 9.9,
      medianChangePercent: 9.925,
      maxChangePercent: 9.95,
      largestIncreases: [
        { externalId: 'b', beforeAmount: 2000, afterAmount: 2199, changePercent: 9.95 },
        { externalId: 'a', beforeAmount: 1000, afterAmount: 1099, changePercent: 9.9 },
      ],
      largestDecreases: [],
      evaluated: 4,
      matched: 4,
      unchanged: 1,
      skipped: [{ reason: 'NO_COST', count: 1 }],
      limitHits: [{ limit: 'CEILING', count: 1 }],
    },
    targets: {
      nodes: [
        {
          externalId: 'a',
          before: { unit_amount: 1000, currency: 'EUR' },
          after: { unit_amount: 1099, currency: 'EUR' },
        },
        { externalId: 'b', after: { unit_amount: 2199, currency: 'EUR' } },
      ],
    },
  });
});

test('beyond the guardrails, a run is queued only with the hash of its preview', async () => {
  const admin = await api.client('ADMIN');
  const saved = await admin.ask(SaveGuardrails, { input: { maxChangePercent: 9.92 } });
  expect(saved.saveGuardrails).toEqual({
    guardrails: { maxTargets: 1_000_000, maxChangePercent: 9.92 },
    userErrors: [],
  });
  const { ruleRun } = await create({ ruleId });
  const { id: runId, preview } = ruleRun!;
  expect(await queue({ runId })).toEqual({
    ruleRun: null,
    userErrors: [
      {
        code: 'GUARDRAIL',
        field: ['input', 'confirm'],
        details: {
          exceeded: [{ guardrail: 'MAX_CHANGE', limit: 9.92, actual: 9.95 }],
          confirm: preview.hash,
        },
      },
    ],
  });
  expect(await queue({ runId, confirm: preview.hash })).toEqual({
    ruleRun: { status: 'QUEUED', preview: { hash: preview.hash } },
    userErrors: [],
  });
  await admin.ask(SaveGuardrails, { input: { maxChangePercent: 5000 } });
});

test('guardrails are seen by all and refuse nonsense', async () => {
  const viewer = await api.client('VIEWER');
  const before = await viewer.ask(ReadGuardrails, {});
  expect(before.guardrails).toEqual({ maxTargets: 1_000_000, maxChangePercent: 5000 });
  const admin = await api.client('ADMIN');
  const refused = await admin.ask(SaveGuardrails, { input: { maxTargets: -1, maxChangePercent: 1 } });
  expect(refused.saveGuardrails).toMatchObject({
    guardrails: null,
    userErrors: [{ code: 'INVALID_INPUT', field: ['input', 'maxTargets'] }],
  });
  expect(await viewer.ask(ReadGuardrails, {})).toEqual(before);
});

test('a rule and targets are refused together; without either a run is empty', async () => {
  const both = await create({ ruleId: 'x', targets: [] });
  expect(both).toMatchObject({ ruleRun: null, userErrors: [{ code: 'INVALID_INPUT' }] });
  const neither = await create({});
  expect(neither).toMatchObject({ ruleRun: { status: 'PREVIEW', counts: { total: 0 } }, userErrors: [] });
});

test('previews of a list of runs, kept and computed', async () => {
  const eur = (unitAmount: number) => ({ unit_amount: unitAmount, currency: 'EUR' });
  const given = await create({ targets: [{ externalId: 'x', before: eur(1), after: eur(2) }] });
  const empty = await create({ targets: [] });
  const { ruleRuns } = await operator.ask(PreviewsOfAll, {});
  const countOf = (id: string) => ruleRuns.nodes.find((run) => run.id === id)!.preview.count;
  expect(countOf(given.ruleRun!.id)).toBe(1);
  expect(countOf(empty.ruleRun!.id)).toBe(0);
  expect(ruleRuns.nodes.some(({ preview }) => preview.count === 2)).toBe(true);
});
