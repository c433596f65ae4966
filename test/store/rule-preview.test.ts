// A rule evaluated over the catalog through the store: which items become targets, what the preview says of
// them, what it refuses, and that a preview is of one state of the catalog.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { CatalogItemInput } from '../../src/domain/catalog-item.js';
import { importCatalogItems } from '../../src/store/catalog-item.js';
import { newId } from '../../src/store/id.js';
import type { PricingRuleInput } from '../../src/store/pricing-rule.js';
import { addRuleTargets, createRuleRun, queueRuleRun } from '../../src/store/rule-run.js';
import { findRulePreviews, type RulePreviewRow } from '../../src/store/target-summary.js';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
import {
  makePricingRule,
  makeRuleRun,
  newRuleRun,
  seedWorld,
  targetsOf,
  type Tenant,
  type World,
} from '../support/fixtures.js';
import { expectInvariants } from './invariants.js';
import { countRows, faultOf } from './rows.js';

let database: TestDatabase;
let world: World;
let home: Tenant;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  home = world.home;
});
afterAll(() => database.drop());
beforeEach(() => database.db.query('DELETE FROM catalog_item'));

const item = (externalId: string, overrides: Partial<CatalogItemInput> = {}): CatalogItemInput => ({
  externalId,
  title: `Item ${externalId}`,
  unitAmount: 1000,
  costAmount: 500,
  currency: 'EUR',
  ...overrides,
});
const importItems = (items: CatalogItemInput[], tenant = home) =>
  importCatalogItems(database.db, tenant.viewer, items);

const makeRule = (definition: object, overrides: Partial<PricingRuleInput> = {}) =>
  makePricingRule(database.db, home, definition, overrides);

const createFrom = (ruleId: string | null, overrides = {}) =>
  createRuleRun(database.db, home.viewer, { ...newRuleRun(home), targets: null, ruleId, ...overrides });
const previewOf = async (runId: string): Promise<RulePreviewRow> =>
  (await findRulePreviews(database.db, home.viewer, [runId])).get(runId)!;
const targetsIn = (runId: string) =>
  database.db.query(
    `SELECT external_id AS id, before_amount::int AS before, after_amount::int AS after, currency, status
     FROM rule_target WHERE run_id = $1 ORDER BY id`,
    [runId],
  );

async function refusalOf(work: () => Promise<unknown>) {
  const before = await countRows(database.db);
  const fault = await faultOf(work());
  expect(await countRows(database.db)).toEqual(before);
  return fault;
}

test('items whose price changes become targets, in the order of their ids', async () => {
  await importItems([
    item('c', { unitAmount: 3000 }),
    item('a', { unitAmount: 1000 }),
    item('b', { unitAmount: 1100 }),
    item('other', { title: 'not this one' }),
  ]);
  const match = { field: 'title', contains: 'item' };
  const ruleId = await makeRule({ currency: 'EUR', match, adjust: { set: 1100 } });
  const run = await createFrom(ruleId);
  expect(run).toMatchObject({ status: 'PREVIEW', currency: 'EUR', ruleId, totalCount: 2, previewCount: 2 });
  expect(await targetsIn(run.id)).toEqual([
    { id: 'a', before: 1000, after: 1100, currency: 'EUR', status: 'PREVIEW' },
    { id: 'c', before: 3000, after: 1100, currency: 'EUR', status: 'PREVIEW' },
  ]);
  await expectInvariants(database.db, run.id);
});

test('the run keeps the rule as it was', async () => {
  await importItems([item('a')]);
  const ruleId = await makeRule({ adjust: { percent: 10 } }, { priority: 7 });
  const run = await createFrom(ruleId);
  await makeRule({ adjust: { percent: 20 } }, { id: ruleId, name: 'renamed', enabled: false, priority: 1 });
  expect(run.priority).toBe(7);
  expect(run.ruleSnapshot).toEqual({
    id: ruleId,
    name: 'rule',
    projectId: 'default',
    enabled: true,
    priority: 7,
    version: 1,
    definition: { adjust: { percent: 10 } },
  });
});

test('the preview counts what the rule did', async () => {
  await importItems([
    item('floor', { unitAmount: 1000 }),
    item('margin', { unitAmount: 2000, costAmount: 1950 }),
    item('free', { unitAmount: 4000 }),
    item('same', { unitAmount: 900 }),
    item('costless', { costAmount: null }),
    item('torn', { unitAmount: 100, costAmount: 2000 }),
    item('yen', { currency: 'JPY' }),
    item('gift', { title: 'Gift card' }),
  ]);
  const run = await createFrom(
    await makeRule({
      currency: 'EUR',
      match: { not: { field: 'title', contains: 'gift' } },
      adjust: { percent: -20 },
      limits: { floor: 900, minMarginPercent: 0, ceiling: 3500 },
    }),
  );
  expect(run.preview).toEqual(await previewOf(run.id));
  expect(await previewOf(run.id)).toEqual({
    evaluated: 7,
    matched: 6,
    unchanged: 1,
    skipped: { NO_COST: 1 },
    limitHits: { FLOOR: 2, MIN_MARGIN: 2 },
    count: 4,
    minChangePercent: -20,
    medianChangePercent: -6.25,
    maxChangePercent: 1900,
    largestIncreases: [{ externalId: 'torn', beforeAmount: 100, afterAmount: 2000, changePercent: 1900 }],
    largestDecreases: [
      { externalId: 'free', beforeAmount: 4000, afterAmount: 3200, changePercent: -20 },
      { externalId: 'floor', beforeAmount: 1000, afterAmount: 900, changePercent: -10 },
      { externalId: 'margin', beforeAmount: 2000, afterAmount: 1950, changePercent: -2.5 },
    ],
    hash: expect.stringMatching(/^[0-9a-f]{64}$/),
  });
});

test('items that contradict the limits or fall out of range are counted as skipped', async () => {
  await importItems([item('low', { unitAmount: 10 }), item('high', { unitAmount: 5000 })]);
  const torn = await createFrom(
    await makeRule({
      currency: 'EUR',
      adjust: { amount: -100 },
      limits: { maxChangePercent: 10, ceiling: 3000 },
    }),
  );
  expect(await previewOf(torn.id)).toMatchObject({ skipped: { LIMITS_CONTRADICT: 1 }, count: 1 });
  const negative = await createFrom(await makeRule({ currency: 'EUR', adjust: { amount: -100 } }));
  expect(await previewOf(negative.id)).toMatchObject({ skipped: { OUT_OF_RANGE: 1 }, count: 1 });
});

test('more items than one batch, with the ends of the range named', async () => {
  const items = Array.from({ length: 5_003 }, (_, index) =>
    item(String(index).padStart(5, '0'), { unitAmount: 1000 + index }),
  );
  await importItems(items);
  const run = await createFrom(await makeRule({ currency: 'EUR', adjust: { set: 2000 } }));
  expect(run.totalCount).toBe(5_002);
  const { largestIncreases, largestDecreases, ...preview } = await previewOf(run.id);
  expect(preview).toMatchObject({ evaluated: 5_003, unchanged: 1, count: 5_002, maxChangePercent: 100 });
  expect(largestIncreases.map(({ externalId }) => externalId)).toEqual([
    '00000',
    '00001',
    '00002',
    '00003',
    '00004',
  ]);
  expect(largestDecreases.map(({ beforeAmount }) => beforeAmount)).toEqual([6002, 6001, 6000, 5999, 5998]);
  await expectInvariants(database.db, run.id);
});

test('an empty catalog makes a run without targets', async () => {
  const run = await createFrom(await makeRule({ adjust: { percent: 5 } }));
  expect(run).toMatchObject({ totalCount: 0, currency: null });
  expect(await previewOf(run.id)).toMatchObject({ count: 0, minChangePercent: null, largestIncreases: [] });
});

test("another tenant's items and items taken out are not evaluated", async () => {
  await importItems([item('a'), item('gone')]);
  await importItems([item('theirs')], world.other);
  await database.db.query(`UPDATE catalog_item SET deleted_at = now() WHERE external_id = 'gone'`);
  const run = await createFrom(await makeRule({ adjust: { percent: 5 } }));
  expect((await targetsIn(run.id)).map(({ id }) => id)).toEqual(['a']);
  expect(await previewOf(run.id)).toMatchObject({ evaluated: 1 });
});

test('the whole preview is of one state of the catalog, whatever is imported meanwhile', async () => {
  const items = Array.from({ length: 4_500 }, (_, index) => item(String(index).padStart(5, '0')));
  await importItems(items);
  const ruleId = await makeRule({ adjust: { percent: 10 } });
  const blocker = await connect(database.url);
  await blocker.query('BEGIN; LOCK TABLE rule_target IN SHARE MODE');
  const created = createFrom(ruleId);
  // The first batch is read and waits to be written; by then the rest of the catalog changes.
  await waitForLock();
  await importItems(items.map((each) => ({ ...each, unitAmount: 9000 })));
  await blocker.query('COMMIT');
  await blocker.end();
  const { id } = await created;
  const befores = await database.db.query(
    'SELECT DISTINCT before_amount::int AS before FROM rule_target WHERE run_id = $1',
    [id],
  );
  expect(befores).toEqual([{ before: 1000 }]);
  // Its hash is of that state too: what came meanwhile has made it stale.
  const queued = queueRuleRun(database.db, home.viewer, { runId: id, idempotencyKey: null });
  expect(await faultOf(queued)).toMatchObject({ code: 'GUARDRAIL', details: { stale: true } });
});

async function waitForLock(): Promise<void> {
  for (;;) {
    const waiting = await database.db.query('SELECT 1 FROM pg_locks WHERE NOT granted');
    if (waiting.length > 0) return;
  }
}

describe('refused, with nothing written', () => {
  test('a catalog of several currencies under a rule that names none', async () => {
    await importItems([item('a'), item('b'), item('c', { currency: 'JPY' }), item('d', { currency: 'USD' })]);
    const ruleId = await makeRule({ adjust: { percent: 5 } });
    expect(await refusalOf(() => createFrom(ruleId))).toMatchObject({
      code: 'INVALID_INPUT',
      message: expect.stringContaining('EUR (2), JPY (1), USD (1)'),
      details: { currencies: { EUR: 2, JPY: 1, USD: 1 } },
    });
  });

  test.each([
    ['names one', { currency: 'EUR', adjust: { percent: 5 } }],
    ['matches on one', { match: { field: 'currency', eq: 'EUR' }, adjust: { percent: 5 } }],
  ])('but not under a rule that %s', async (_, definition) => {
    await importItems([item('a'), item('b', { currency: 'JPY' })]);
    expect(await createFrom(await makeRule(definition))).toMatchObject({ currency: 'EUR', totalCount: 1 });
  });

  test('both a rule and targets', async () => {
    const ruleId = await makeRule({ adjust: { percent: 5 } });
    const both = await refusalOf(() => createFrom(ruleId, { targets: targetsOf(1) }));
    expect(both).toMatchObject({ code: 'INVALID_INPUT', field: ['input', 'ruleId'] });
  });

  test('a rule that is disabled, unknown or of another tenant', async () => {
    const disabled = await makeRule({ adjust: { percent: 5 } }, { enabled: false });
    expect(await refusalOf(() => createFrom(disabled))).toMatchObject({ code: 'INVALID_INPUT' });
    for (const ruleId of ['nonsense', newId()]) {
      expect(await refusalOf(() => createFrom(ruleId))).toMatchObject({
        code: 'NOT_FOUND',
        field: ['input', 'ruleId'],
      });
    }
    const ours = await makeRule({ adjust: { percent: 5 } });
    const { viewer, channelId } = world.other;
    const theirs = { ...newRuleRun(world.other), channelId, targets: null, ruleId: ours };
    expect(await refusalOf(() => createRuleRun(database.db, viewer, theirs))).toMatchObject({
      code: 'NOT_FOUND',
    });
  });

  test("targets added by hand to a rule's run", async () => {
    await importItems([item('a')]);
    const { id: runId } = await createFrom(await makeRule({ adjust: { percent: 5 } }));
    const add = () => addRuleTargets(database.db, home.viewer, { runId, targets: targetsOf(1) });
    expect(await refusalOf(add)).toMatchObject({ code: 'INVALID_INPUT', field: ['input', 'runId'] });
  });
});

test('the same idempotency key makes one run', async () => {
  await importItems([item('a')]);
  const ruleId = await makeRule({ adjust: { percent: 5 } });
  const runs = await Promise.all([1, 2, 3].map(() => createFrom(ruleId, { idempotencyKey: 'once' })));
  expect(new Set(runs.map(({ id }) => id)).size).toBe(1);
});

describe('the preview of given targets', () => {
  test('is what they are now', async () => {
    const targets = [
      { externalId: 'up', before: eur(1000), after: eur(1500) },
      { externalId: 'down', before: eur(1000), after: eur(900) },
      { externalId: 'from nothing', before: eur(0), after: eur(900) },
    ];
    const run = await makeRuleRun(database.db, home, { targets });
    const before = await previewOf(run.id);
    expect(before).toMatchObject({
      count: 3,
      minChangePercent: -10,
      medianChangePercent: 20,
      maxChangePercent: 50,
      largestIncreases: [{ externalId: 'up' }],
      largestDecreases: [{ externalId: 'down' }],
    });
    expect(before).not.toHaveProperty('evaluated');
    await addRuleTargets(database.db, home.viewer, { runId: run.id, targets: targetsOf(1) });
    const after = await previewOf(run.id);
    expect(after.count).toBe(4);
    expect(after.hash).not.toBe(before.hash);
  });

  test('several runs in one read, each with its own; none of another tenant', async () => {
    const runs = [
      await makeRuleRun(database.db, home),
      await makeRuleRun(database.db, home, { targets: [] }),
    ];
    const ids = runs.map(({ id }) => id);
    const previews = await findRulePreviews(database.db, home.viewer, [...ids, 'nonsense']);
    expect(ids.map((id) => previews.get(id)!.count)).toEqual([3, 0]);
    expect(await findRulePreviews(database.db, world.other.viewer, ids)).toEqual(new Map());
  });
});

function eur(unitAmount: number) {
  return { unit_amount: unitAmount, currency: 'EUR' };
}
