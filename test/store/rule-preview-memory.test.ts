// A preview of a hundred thousand catalog items, in memory that does not grow with them.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import pg from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { createRuleRun } from '../../src/store/rule-run.js';
import { findRulePreviews } from '../../src/store/target-summary.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makePricingRule, newRuleRun, seedWorld, type World } from '../support/fixtures.js';

const ITEMS = 100_000;
const BYTES_PER_ITEM = 1_000;
const MIB = 1024 ** 2;

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  await database.db.query(
    `INSERT INTO catalog_item (id, tenant_id, external_id, title, unit_amount, currency, attributes)
     SELECT gen_random_uuid(), 'default', 'item-' || n, 'Item ' || n, 1000 + n % 500, 'EUR',
       jsonb_build_object('brand', 'b' || n % 10, 'text', repeat(n::text, $2 / length(n::text)))
     FROM generate_series(1, $1::int) AS n`,
    [ITEMS, BYTES_PER_ITEM],
  );
}, 60_000);
afterAll(() => database.drop());

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** What is alive, without what only waits to be collected. */
function liveBytes(): number {
  collect();
  return process.memoryUsage().heapUsed;
}

/** The most that was alive while `work` ran, looked at with every so many batches of the catalog. */
async function peakOf(work: () => Promise<unknown>): Promise<number> {
  let [fetches, peak] = [0, 0];
  const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (
    this: pg.Client,
    ...args: unknown[]
  ) {
    if (String(args[0]).startsWith('FETCH') && ++fetches % 5 === 0) peak = Math.max(peak, liveBytes());
    // The spy itself must not keep what was sent.
    spy.mockClear();
    return query.apply(this, args) as never;
  });
  try {
    await work();
  } finally {
    spy.mockRestore();
  }
  expect(fetches).toBeGreaterThan(20);
  return peak;
}

test('every item is evaluated and becomes a target, a fraction of them in memory at a time', async () => {
  const ruleId = await makePricingRule(database.db, world.home, {
    currency: 'EUR',
    match: { field: 'attributes.brand', in: ['b1', 'b2', 'b3', 'b4', 'b5', 'b6', 'b7', 'b8', 'b9', 'b0'] },
    adjust: { percent: 10 },
  });
  const before = liveBytes();
  let runId = '';
  const peak = await peakOf(async () => {
    const input = { ...newRuleRun(world.home), targets: null, ruleId };
    runId = (await createRuleRun(database.db, world.home.viewer, input)).id;
  });
  const previews = await findRulePreviews(database.db, world.home.viewer, [runId]);
  expect(previews.get(runId)).toMatchObject({ count: ITEMS, evaluated: ITEMS, matched: ITEMS });
  expect(peak - before).toBeLessThan((ITEMS * BYTES_PER_ITEM) / 4);
  expect(liveBytes() - before).toBeLessThan(10 * MIB);
}, 120_000);
