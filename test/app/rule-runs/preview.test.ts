// From a rule over the catalog to the shop: what the preview shows, what guards it, and when it is stale.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RuleRunWorld, targetsFor, type Answer } from './world.js';

const DEFAULTS = { maxTargets: 1_000_000, maxChangePercent: 5_000 };
const PREVIEW = `ruleRun { id status counts { total } rule { version definition }
  preview { count minChangePercent medianChangePercent maxChangePercent evaluated matched unchanged hash
    largestIncreases { externalId changePercent } largestDecreases { externalId changePercent }
    limitHits { limit count } skipped { reason count } }
  targets(first: 100) { nodes { externalId before after } } }`;

let world: RuleRunWorld;

beforeAll(async () => {
  world = await RuleRunWorld.start();
});
afterAll(() => world.stop());

interface Item {
  readonly externalId: string;
  readonly unitAmount: number;
  readonly costAmount?: number;
  readonly currency?: string;
  readonly attributes?: object;
}

async function importItems(...items: Item[]): Promise<void> {
  const whole = items.map((item) => ({ title: item.externalId, currency: 'EUR', ...item }));
  const { imported } = await world.do('importCatalogItems', { items: whole }, 'imported');
  expect(imported).toBe(items.length);
}

async function saveRule(definition: object, input: object = {}): Promise<string> {
  const saved = await world.do(
    'savePricingRule',
    { name: 'rule', definition, ...input },
    'pricingRule { id }',
  );
  return saved.pricingRule.id;
}

const preview = async (ruleId: string): Promise<Answer> =>
  world.do('createRuleRun', { channelId: world.channelId, ruleId }, PREVIEW);
const refusal = async (mutation: string, input: object): Promise<Answer> => {
  const { ruleRun, userErrors } = await world.ask(mutation, input);
  expect(ruleRun).toBeNull();
  return userErrors[0];
};
const guard = (input: object) =>
  world.do('saveGuardrails', input, 'guardrails { maxTargets maxChangePercent }');
const only = (brand: string) => ({ field: 'attributes.brand', eq: brand });

describe('a preview', () => {
  test('has a target for every price that changes, and tells what the rule did to the rest', async () => {
    const attributes = { brand: 'one' };
    await importItems(
      { externalId: 'one-1', unitAmount: 1000, costAmount: 500, attributes },
      { externalId: 'one-2', unitAmount: 2000, costAmount: 500, attributes },
      { externalId: 'one-3', unitAmount: 800, costAmount: 1000, attributes },
      { externalId: 'one-4', unitAmount: 1500, costAmount: 500, attributes },
      { externalId: 'one-5', unitAmount: 1000, attributes },
    );
    const definition = {
      currency: 'EUR',
      match: only('one'),
      adjust: { percent: -10 },
      limits: { floor: 1500, minMarginPercent: 20 },
    };
    const run = await preview(await saveRule(definition));
    expect(run).toMatchObject({ status: 'PREVIEW', counts: { total: 3 }, rule: { version: 1, definition } });
    const eur = (unit_amount: number) => ({ unit_amount, currency: 'EUR' });
    expect(run.targets.nodes).toEqual([
      { externalId: 'one-1', before: eur(1000), after: eur(1500) },
      { externalId: 'one-2', before: eur(2000), after: eur(1800) },
      { externalId: 'one-3', before: eur(800), after: eur(1500) },
    ]);
    expect(run.preview).toMatchObject({
      count: 3,
      minChangePercent: -10,
      medianChangePercent: 50,
      maxChangePercent: 87.5,
      largestIncreases: [
        { externalId: 'one-3', changePercent: 87.5 },
        { externalId: 'one-1', changePercent: 50 },
      ],
      largestDecreases: [{ externalId: 'one-2', changePercent: -10 }],
      matched: 5,
      unchanged: 1,
      limitHits: [{ limit: 'FLOOR', count: 3 }],
      skipped: [{ reason: 'NO_COST', count: 1 }],
    });
  });

  test('keeps the rule as it was, whatever becomes of it', async () => {
    const attributes = { brand: 'kept' };
    await importItems({ externalId: 'kept-1', unitAmount: 1000, attributes });
    const id = await saveRule({ match: only('kept'), adjust: { percent: 10 } });
    const run = await preview(id);
    await saveRule({ match: only('kept'), adjust: { percent: 50 } }, { id });
    const query =
      'query ($id: ID!) { ruleRun(id: $id) { rule { version definition } targets { nodes { after } } } }';
    const { ruleRun } = await world.read(query, { id: run.id });
    expect(ruleRun).toMatchObject({
      rule: { version: 1, definition: { adjust: { percent: 10 } } },
      targets: { nodes: [{ after: { unit_amount: 1100 } }] },
    });
    expect(await preview(id)).toMatchObject({ rule: { version: 2 } });
  });

  test.each([
    // Half a yen is no price, and three decimals are three.
    ['JPY', 1005, { percent: 10 }, {}, 1106],
    ['JPY', 1000, { percent: 10 }, { round: { step: 100, ending: 98 } }, 1098],
    ['KWD', 1005, { percent: 10 }, { round: { step: 1000, ending: 990, mode: 'up' } }, 1990],
    ['KWD', 1999, { amount: -500 }, {}, 1499],
  ])('in %s: %d by %j', async (currency, unitAmount, adjust, more, expected) => {
    const externalId = `money-${currency}-${unitAmount}-${expected}`;
    await importItems({ externalId, unitAmount, currency });
    const match = { field: 'externalId', eq: externalId };
    const run = await preview(await saveRule({ currency, match, adjust, ...more }));
    expect(run.targets.nodes).toMatchObject([{ after: { unit_amount: expected, currency } }]);
  });
});

describe('the guardrails', () => {
  test('refuse what is beyond them until it is confirmed by the preview’s own hash; then it is applied', async () => {
    const attributes = { brand: 'guarded' };
    await importItems(
      { externalId: 'guarded-1', unitAmount: 1000, attributes },
      { externalId: 'guarded-2', unitAmount: 3000, attributes },
    );
    const run = await preview(await saveRule({ match: only('guarded'), adjust: { percent: 30 } }));
    const runId = run.id;
    await guard({ maxTargets: 1, maxChangePercent: 20 });
    try {
      const { code, details } = await refusal('queueRuleRun', { runId });
      expect({ code, details }).toEqual({
        code: 'GUARDRAIL',
        details: {
          exceeded: [
            { guardrail: 'MAX_TARGETS', limit: 1, actual: 2 },
            { guardrail: 'MAX_CHANGE', limit: 20, actual: 30 },
          ],
          confirm: run.preview.hash,
        },
      });
      expect(await refusal('queueRuleRun', { runId, confirm: '0'.repeat(64) })).toMatchObject({
        code: 'GUARDRAIL',
        details: { stale: true },
      });
      expect((await world.run(runId)).status).toBe('PREVIEW');
      await world.do('queueRuleRun', { runId, confirm: run.preview.hash });
    } finally {
      await guard(DEFAULTS);
    }
    expect(await world.end(runId)).toMatchObject({ status: 'APPLIED' });
    expect([await world.price('guarded-1'), await world.price('guarded-2')]).toEqual(['13.00', '39.00']);
  });

  test('catch a preview of a rule whose items have changed since, also when it is confirmed', async () => {
    const attributes = { brand: 'stale' };
    const item = { externalId: 'stale-1', unitAmount: 1000, attributes };
    await importItems(item);
    const ruleId = await saveRule({ match: only('stale'), adjust: { percent: 10 } });
    const run = await preview(ruleId);
    await importItems({ ...item, unitAmount: 5000 });
    for (const confirm of [null, run.preview.hash]) {
      expect(await refusal('queueRuleRun', { runId: run.id, confirm })).toMatchObject({
        code: 'GUARDRAIL',
        details: { stale: true },
      });
    }
    const fresh = await preview(ruleId);
    expect(fresh.preview.hash).not.toBe(run.preview.hash);
    await world.do('queueRuleRun', { runId: fresh.id, confirm: fresh.preview.hash });
    await world.end(fresh.id);
    expect(await world.price('stale-1')).toBe('55.00');
  });

  test('catch targets that were added after somebody looked', async () => {
    const runId = await world.create(['seen-1']);
    const { hash } = (await world.run(runId)).preview;
    await world.do('addRuleTargets', { runId, targets: targetsFor(['unseen-1']) });
    expect(await refusal('queueRuleRun', { runId, confirm: hash })).toMatchObject({ code: 'GUARDRAIL' });
    const now = (await world.run(runId)).preview;
    expect(now).toMatchObject({ count: 2 });
    await world.do('queueRuleRun', { runId, confirm: now.hash });
    expect(await world.end(runId)).toMatchObject({ status: 'APPLIED' });
  });
});

describe('a run comes of a rule or of targets', () => {
  test.each<[string, () => Promise<object>, string]>([
    [
      'both',
      async () => ({ ruleId: await saveRule({ adjust: { percent: 1 } }), targets: [] }),
      'INVALID_INPUT',
    ],
    ['a rule that is not there', async () => ({ ruleId: 'nothing' }), 'NOT_FOUND'],
    [
      'a rule that is disabled',
      async () => ({ ruleId: await saveRule({ adjust: { percent: 1 } }, { enabled: false }) }),
      'INVALID_INPUT',
    ],
  ])('%s is refused', async (_, input, code) => {
    const { channelId } = world;
    expect(await refusal('createRuleRun', { channelId, ...(await input()) })).toMatchObject({ code });
  });

  test('neither makes an empty one, which takes targets and is not queued before', async () => {
    const { id: runId } = await world.do('createRuleRun', { channelId: world.channelId });
    expect(await refusal('queueRuleRun', { runId })).toMatchObject({ code: 'INVALID_INPUT' });
    await world.do('addRuleTargets', { runId, targets: targetsFor(['late-1']) });
    await world.do('queueRuleRun', { runId });
    expect(await world.end(runId)).toMatchObject({ status: 'APPLIED', counts: { total: 1 } });
  });
});
