// Guardrails through the store: a run beyond them is queued only with the hash of what it would do, and a
// preview that is no longer true is not queued at all.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Guardrails } from '../../src/domain/guardrail.js';
import { importCatalogItems } from '../../src/store/catalog-item.js';
import { findGuardrails, saveGuardrails } from '../../src/store/guardrail.js';
import { findRuleRun } from '../../src/store/rule-run-row.js';
import { addRuleTargets, createRuleRun, queueRuleRun } from '../../src/store/rule-run.js';
import { findRulePreviews } from '../../src/store/target-summary.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
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
import { faultOf } from './rows.js';

const DEFAULTS: Guardrails = { maxTargets: 1_000_000, maxChangePercent: 5000 };

let database: TestDatabase;
let world: World;
let home: Tenant;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  home = world.home;
});
afterAll(() => database.drop());
beforeEach(() => limit({}));

const limit = (guardrails: Partial<Guardrails>, tenant = home) =>
  saveGuardrails(database.db, tenant.viewer, { ...DEFAULTS, ...guardrails });
const queue = (runId: string, confirm: string | null = null, idempotencyKey: string | null = null) =>
  queueRuleRun(database.db, home.viewer, { runId, confirm, idempotencyKey });
const hashOf = async (runId: string) =>
  (await findRulePreviews(database.db, home.viewer, [runId])).get(runId)!.hash;

/** The refusal, after which the run is what it was. */
async function refusalOf(runId: string, confirm: string | null = null) {
  const before = await findRuleRun(database.db, home.viewer, runId);
  const fault = await faultOf(queue(runId, confirm));
  expect(await findRuleRun(database.db, home.viewer, runId)).toEqual(before);
  return fault;
}

const eur = (unitAmount: number) => ({ unit_amount: unitAmount, currency: 'EUR' });
const changing = (before: number, after: number) =>
  makeRuleRun(database.db, home, {
    targets: [{ externalId: 'sku', before: eur(before), after: eur(after) }],
  });

test('a tenant begins with generous ones, and each has its own', async () => {
  const fresh = await createTestDatabase();
  const { home: tenant } = await seedWorld(fresh.db);
  expect(await findGuardrails(fresh.db, tenant.viewer)).toEqual(DEFAULTS);
  await fresh.drop();
  expect(await limit({ maxTargets: 5, maxChangePercent: 12.5 })).toEqual({
    maxTargets: 5,
    maxChangePercent: 12.5,
  });
  expect(await findGuardrails(database.db, world.other.viewer)).toEqual(DEFAULTS);
});

test.each([
  [{ maxTargets: -1 }, 'maxTargets'],
  [{ maxChangePercent: -0.5 }, 'maxChangePercent'],
  [{ maxChangePercent: Number.POSITIVE_INFINITY }, 'maxChangePercent'],
])('%j is refused', async (guardrails, field) => {
  expect(await faultOf(limit(guardrails))).toMatchObject({ code: 'INVALID_INPUT', field: ['input', field] });
  expect(await findGuardrails(database.db, home.viewer)).toEqual(DEFAULTS);
});

describe('the number of targets', () => {
  test('up to the limit goes through, and keeps its preview', async () => {
    await limit({ maxTargets: 3 });
    const run = await makeRuleRun(database.db, home, { targets: targetsOf(3) });
    const hash = await hashOf(run.id);
    const queued = await queue(run.id);
    expect(queued).toMatchObject({ status: 'QUEUED', preview: { count: 3, hash } });
    await expectInvariants(database.db, run.id);
  });

  test('beyond it is refused, until it is confirmed', async () => {
    await limit({ maxTargets: 2 });
    const run = await makeRuleRun(database.db, home, { targets: targetsOf(3) });
    const confirm = await hashOf(run.id);
    expect(await refusalOf(run.id)).toMatchObject({
      code: 'GUARDRAIL',
      field: ['input', 'confirm'],
      message: 'Beyond the guardrails: 3 targets are more than 2.',
      details: { exceeded: [{ guardrail: 'MAX_TARGETS', limit: 2, actual: 3 }], confirm },
    });
    expect(await queue(run.id, confirm)).toMatchObject({ status: 'QUEUED' });
  });
});

describe('the change of a price', () => {
  test.each([
    [1000, 1100, true],
    [1000, 1101, false],
    [1000, 900, true],
    [1000, 899, false],
    // Exact where a float is not: a billionth of a per cent too much.
    [8_000_000_000_000_000, 8_800_000_000_000_000, true],
    [8_000_000_000_000_000, 8_800_000_000_000_001, false],
    // A price that rises from zero is beyond any percentage.
    [0, 1000, false],
    [0, 0, true],
  ])('from %d to %d is within 10 %%: %s', async (before, after, isWithin) => {
    await limit({ maxChangePercent: 10 });
    const run = await changing(before, after);
    if (isWithin) expect(await queue(run.id)).toMatchObject({ status: 'QUEUED' });
    else expect(await refusalOf(run.id)).toMatchObject({ code: 'GUARDRAIL' });
  });

  test('from zero is named as what it is, and can be confirmed', async () => {
    await limit({ maxChangePercent: 1_000_000_000 });
    const run = await changing(0, 1);
    const confirm = await hashOf(run.id);
    expect(await refusalOf(run.id)).toMatchObject({
      message: expect.stringContaining('rises from zero'),
      details: { exceeded: [{ guardrail: 'MAX_CHANGE', actual: null }], confirm },
    });
    expect(await queue(run.id, confirm)).toMatchObject({ status: 'QUEUED' });
  });

  test('both limits are named when both are passed', async () => {
    await limit({ maxTargets: 0, maxChangePercent: 49 });
    const run = await changing(1000, 500);
    expect(await refusalOf(run.id)).toMatchObject({
      details: {
        exceeded: [
          { guardrail: 'MAX_TARGETS', limit: 0, actual: 1 },
          { guardrail: 'MAX_CHANGE', limit: 49, actual: 50 },
        ],
      },
    });
  });
});

describe('a confirmation', () => {
  test('stands for exactly these targets', async () => {
    await limit({ maxTargets: 2 });
    const run = await makeRuleRun(database.db, home, { targets: targetsOf(3) });
    const seen = await hashOf(run.id);
    await addRuleTargets(database.db, home.viewer, { runId: run.id, targets: targetsOf(1, 'late') });
    const confirm = await hashOf(run.id);
    expect(await refusalOf(run.id, seen)).toMatchObject({
      code: 'GUARDRAIL',
      field: ['input', 'confirm'],
      details: { stale: true, confirm },
    });
    expect(await queue(run.id, confirm)).toMatchObject({ status: 'QUEUED' });
  });

  test('of something else is refused even within the guardrails', async () => {
    const run = await changing(1000, 1100);
    const twin = await changing(1000, 1100);
    expect(await refusalOf(run.id, await hashOf(twin.id))).toMatchObject({ code: 'GUARDRAIL' });
    expect(await refusalOf(run.id, 'nonsense')).toMatchObject({ code: 'GUARDRAIL' });
  });

  test('after a refusal, the same idempotency key goes on', async () => {
    await limit({ maxTargets: 0 });
    const run = await changing(1000, 1100);
    expect(await faultOf(queue(run.id, null, 'key'))).toMatchObject({ code: 'GUARDRAIL' });
    const confirm = await hashOf(run.id);
    expect(await queue(run.id, confirm, 'key')).toMatchObject({ status: 'QUEUED' });
    expect(await queue(run.id, confirm, 'key')).toMatchObject({ status: 'QUEUED' });
    expect(await faultOf(queue(run.id, 'another', 'key'))).toMatchObject({ code: 'IDEMPOTENCY_MISMATCH' });
  });
});

test('a run that cannot be queued any more is told so, not its size', async () => {
  const run = await changing(1000, 1100);
  await queue(run.id);
  await limit({ maxTargets: 0 });
  expect(await refusalOf(run.id)).toMatchObject({ code: 'ILLEGAL_TRANSITION' });
});

describe('a preview made from a rule', () => {
  const item = { externalId: 'a', title: 'A', unitAmount: 1000, costAmount: 500, currency: 'EUR' };
  const bystander = { ...item, externalId: 'b', unitAmount: 1050 };
  const importItems = (...items: (typeof item)[]) => importCatalogItems(database.db, home.viewer, items);

  async function preview() {
    await database.db.query('DELETE FROM catalog_item');
    await importItems(item, bystander);
    const ruleId = await makePricingRule(database.db, home, { currency: 'EUR', adjust: { set: 1050 } });
    return createRuleRun(database.db, home.viewer, { ...newRuleRun(home), targets: null, ruleId });
  }

  test('is queued as long as its items are what they were', async () => {
    const run = await preview();
    await importItems(item);
    expect(await queue(run.id)).toMatchObject({ status: 'QUEUED', preview: run.preview });
  });

  test.each([{ unitAmount: 1001 }, { costAmount: 600 }, { title: 'Another' }])(
    'is stale once an item of it changes by %j, confirmed or not',
    async (change) => {
      const run = await preview();
      await importItems({ ...item, ...change });
      const stale = { code: 'GUARDRAIL', field: ['input', 'runId'], details: { stale: true } };
      expect(await refusalOf(run.id)).toMatchObject(stale);
      expect(await refusalOf(run.id, await hashOf(run.id))).toMatchObject(stale);
    },
  );

  test('is stale once an item of it is taken out', async () => {
    const run = await preview();
    await database.db.query(`UPDATE catalog_item SET deleted_at = now() WHERE external_id = 'a'`);
    expect(await refusalOf(run.id)).toMatchObject({ details: { stale: true } });
  });

  test('does not mind what becomes of other items', async () => {
    const run = await preview();
    await importItems({ ...bystander, unitAmount: 7 });
    expect(await queue(run.id)).toMatchObject({ status: 'QUEUED' });
  });

  test('beyond the guardrails goes through when confirmed', async () => {
    await limit({ maxChangePercent: 4 });
    const run = await preview();
    const refusal = await refusalOf(run.id);
    expect(refusal).toMatchObject({
      details: {
        exceeded: [{ guardrail: 'MAX_CHANGE', limit: 4, actual: 5 }],
        confirm: await hashOf(run.id),
      },
    });
    const { confirm } = (refusal as unknown as { details: { confirm: string } }).details;
    expect(await queue(run.id, confirm)).toMatchObject({ status: 'QUEUED' });
  });
});
