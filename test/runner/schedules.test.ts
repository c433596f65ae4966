// Schedules at work: a tick starts one run over all replicas and restarts, a missed one starts one or none, and
// whatever one of them meets keeps no other waiting.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ScheduleRequest } from '../../src/domain/schedule.js';
import { Schedules } from '../../src/runner/schedules.js';
import { importCatalogItems } from '../../src/store/catalog-item.js';
import { saveGuardrails } from '../../src/store/guardrail.js';
import { savePricingRule } from '../../src/store/pricing-rule.js';
import { findRuleRun } from '../../src/store/rule-run-row.js';
import { queueRuleRun } from '../../src/store/rule-run.js';
import {
  listSchedules,
  saveSchedule,
  upcomingTimes,
  type ScheduleInput,
  type ScheduleRow,
} from '../../src/store/schedule.js';
import { until } from '../support/app.js';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
import { seedWorld, type World } from '../support/fixtures.js';
import { KeptLog } from './support.js';

const NEVER = new AbortController().signal;

let database: TestDatabase;
let world: World;
let rule: ScheduleRequest;
let log: KeptLog;

beforeEach(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  log = new KeptLog();
  const { viewer, channelId } = world.home;
  const item = {
    externalId: 'sku-1',
    title: 'One',
    unitAmount: 1000,
    costAmount: null,
    currency: 'EUR',
    attributes: null,
  };
  await importCatalogItems(database.db, viewer, [item]);
  const { id: ruleId } = await savePricingRule(database.db, viewer, {
    id: null,
    projectId: 'default',
    name: 'ten per cent off',
    enabled: true,
    priority: 0,
    definition: { adjust: { percent: -10 } },
    expectedVersion: null,
  });
  rule = { kind: 'RULE', ruleId, channelId };
});
afterEach(() => database.drop());

const query = (sql: string, values: unknown[] = []) => database.db.query(sql, values);
const work = () => new Schedules(database.db, log).run(NEVER);

function save(overrides: Partial<ScheduleInput> = {}): Promise<ScheduleRow> {
  return saveSchedule(database.db, world.home.viewer, {
    id: null,
    projectId: 'nightly',
    name: 'prices',
    request: rule,
    cron: '0 3 * * *',
    timeZone: 'Europe/Berlin',
    missed: 'SKIP',
    enabled: true,
    ...overrides,
  });
}

/** As if its time had come so long ago; whole seconds, which is as exact as a tick is kept. */
function makeDue(minutesAgo = 0): Promise<unknown> {
  return query(`UPDATE schedule SET next_at = date_trunc('second', now()) - $1 * interval '1 minute'`, [
    minutesAgo,
  ]);
}

const ruleRuns = () =>
  query('SELECT status, source, actor, project_id, metadata, total_count FROM rule_run ORDER BY id');
const only = async () => (await listSchedules(database.db, world.home.viewer))[0]!;

describe('a tick', () => {
  test('starts a rule run, queued, and the next one is set', async () => {
    await save();
    const before = await only();
    expect(before.nextAt!.getTime()).toBeGreaterThan(Date.now());
    await work();
    expect(await ruleRuns()).toEqual([]);
    await makeDue();
    await work();
    const after = await only();
    expect(await ruleRuns()).toMatchObject([
      {
        status: 'QUEUED',
        source: 'schedule',
        actor: 'schedule:prices',
        project_id: 'nightly',
        total_count: 1,
        metadata: { scheduleId: after.id },
      },
    ]);
    expect(after).toMatchObject({
      nextAt: before.nextAt,
      lastRunId: expect.any(String) as string,
      lastError: null,
    });
    await work();
    expect(await ruleRuns()).toHaveLength(1);
  });

  test('starts a pipeline run', async () => {
    await save({ request: { kind: 'PIPELINE', sourceId: world.home.sourceId, runType: 'full' } });
    await makeDue();
    await work();
    expect(await query('SELECT status, run_type, actor FROM run_metadata')).toEqual([
      { status: 'CREATED', run_type: 'full', actor: 'schedule:prices' },
    ]);
  });

  test('starts one run, however many replicas look at once', async () => {
    await save();
    await makeDue();
    await Promise.all(Array.from({ length: 6 }, () => work()));
    expect(await ruleRuns()).toHaveLength(1);
    expect((await only()).nextAt!.getTime()).toBeGreaterThan(Date.now());
  });

  test('that was cut short after its run was made goes on with that run', async () => {
    await save();
    await makeDue();
    await work();
    // As if the process had died before it could move the schedule on.
    await query('UPDATE schedule SET next_at = last_at, last_at = NULL, last_run_id = NULL');
    await work();
    const [run] = await query('SELECT id FROM rule_run');
    expect(await ruleRuns()).toHaveLength(1);
    expect((await only()).lastRunId).toBe(run!['id']);
  });
});

describe('ticks that were missed', () => {
  test('start one run for all of them, if the schedule says so', async () => {
    await save({ cron: '*/5 * * * *', missed: 'ONCE' });
    await makeDue(60);
    await work();
    await work();
    expect(await ruleRuns()).toHaveLength(1);
    expect((await only()).nextAt!.getTime()).toBeGreaterThan(Date.now());
  });

  test('start none, if the schedule says so', async () => {
    await save({ cron: '*/5 * * * *', missed: 'SKIP' });
    await makeDue(60);
    await work();
    expect(await ruleRuns()).toEqual([]);
    expect(await only()).toMatchObject({
      lastRunId: null,
      lastError: null,
      lastAt: expect.any(Date) as Date,
    });
    expect((await only()).nextAt!.getTime()).toBeGreaterThan(Date.now());
    expect(log.entries.at(-1)?.message).toBe('a missed tick was passed over');
  });

  test('were not, where the run was made before whoever made it was cut short', async () => {
    await save({ missed: 'ONCE' });
    await makeDue(60);
    await work();
    const { lastRunId } = await only();
    await query(`UPDATE schedule SET missed = 'SKIP', next_at = last_at, last_run_id = NULL`);
    await work();
    expect(await ruleRuns()).toHaveLength(1);
    expect((await only()).lastRunId).toBe(lastRunId);
  });
});

describe('a run that is not seen before it is queued', () => {
  test('is of one state of the catalog, whatever is written meanwhile', async () => {
    await save();
    await makeDue();
    const gate = await connect(database.url);
    await gate.query('SELECT pg_advisory_lock(1)');
    await query(`
      CREATE FUNCTION wait_long() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
      CREATE TRIGGER wait_long BEFORE INSERT ON rule_run FOR EACH ROW EXECUTE FUNCTION wait_long()`);
    const working = work();
    await until(
      () => query(`SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`),
      (waits) => waits.length > 0,
    );
    await query(`UPDATE catalog_item SET title = 'Another'`);
    await gate.end();
    await working;
    expect(await ruleRuns()).toMatchObject([{ status: 'QUEUED' }]);
    expect((await only()).lastError).toBeNull();
  });

  test('waits for a person when it is beyond the guardrails; the next one takes its place', async () => {
    const { viewer } = world.home;
    await save({ missed: 'ONCE' });
    await saveGuardrails(database.db, viewer, { maxTargets: 0, maxChangePercent: null });
    const tick = async (minutesAgo: number) => {
      await makeDue(minutesAgo);
      await work();
      return only();
    };
    const first = await tick(1);
    expect(first.lastError).toMatch(/guardrails/);
    expect(await query('SELECT id, status FROM rule_run')).toEqual([
      { id: first.lastRunId, status: 'PREVIEW' },
    ]);
    expect(log.entries.at(-1)?.message).toBe('a schedule made a run that waits to be confirmed');
    const second = await tick(0);
    expect(second.lastRunId).not.toBe(first.lastRunId);
    expect((await ruleRuns()).map(({ status }) => status)).toEqual(['CANCELLED', 'PREVIEW']);
    // Cut short before the schedule was moved on: heard again, of the same run.
    await query('UPDATE schedule SET next_at = last_at, last_run_id = NULL, last_error = NULL');
    await work();
    expect(await only()).toMatchObject({ lastRunId: second.lastRunId, lastError: second.lastError });
    const { preview } = (await findRuleRun(database.db, viewer, second.lastRunId!))!;
    const confirm = (preview as { hash: string }).hash;
    await queueRuleRun(database.db, viewer, { runId: second.lastRunId!, idempotencyKey: null, confirm });
    await saveGuardrails(database.db, viewer, { maxTargets: 10, maxChangePercent: null });
    await query(`UPDATE schedule SET next_at = date_trunc('second', now()) - interval '30 seconds'`);
    await work();
    expect((await ruleRuns()).map(({ status }) => status)).toEqual(['CANCELLED', 'QUEUED', 'QUEUED']);
  });

  test('without a target is not made at all', async () => {
    await query('UPDATE catalog_item SET deleted_at = now()');
    await save();
    await makeDue();
    await work();
    expect(await ruleRuns()).toEqual([]);
    expect((await only()).lastError).toMatch(/no targets/);
  });
});

describe('trouble', () => {
  test('a refusal is kept on the schedule, and its next tick comes', async () => {
    await save();
    await query('UPDATE pricing_rule SET enabled = false');
    await makeDue();
    await work();
    expect(await ruleRuns()).toEqual([]);
    expect((await only()).lastError).toMatch(/disabled/i);
    await query('UPDATE pricing_rule SET enabled = true');
    await makeDue();
    await work();
    expect(await only()).toMatchObject({ lastError: null });
    expect(await ruleRuns()).toHaveLength(1);
  });

  test('one that breaks keeps no other waiting, and loses no tick', async () => {
    await save({ name: 'breaks' });
    await save({ name: 'works' });
    await makeDue();
    await query(`
      CREATE FUNCTION fall_over() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'out of order'; END $$;
      CREATE TRIGGER fall_over BEFORE INSERT ON rule_run FOR EACH ROW
        WHEN (NEW.actor = 'schedule:breaks') EXECUTE FUNCTION fall_over()`);
    await work();
    expect(await ruleRuns()).toMatchObject([{ actor: 'schedule:works' }]);
    expect(log.entries.filter(({ level }) => level === 'error')).toHaveLength(1);
    expect(await query('SELECT name FROM schedule WHERE next_at <= now()')).toEqual([{ name: 'breaks' }]);
  });

  test('one in a time zone that this server does not know waits, and says so; the others are worked', async () => {
    await save({ name: 'lost' });
    await save({ name: 'works' });
    await makeDue();
    await query(`UPDATE schedule SET time_zone = 'Mars/Olympus' WHERE name = 'lost'`);
    await work();
    await work();
    expect(await ruleRuns()).toMatchObject([{ actor: 'schedule:works' }]);
    const [lost] = await listSchedules(database.db, world.home.viewer);
    expect(lost).toMatchObject({
      name: 'lost',
      lastError: expect.stringContaining('Mars/Olympus') as string,
    });
    expect(upcomingTimes(lost!, 5)).toEqual([lost!.nextAt]);
    expect(log.entries.filter(({ level }) => level !== 'info')).toMatchObject([{ level: 'warn' }]);
    // As with a server beside it that knows the zone.
    await query(`UPDATE schedule SET time_zone = 'UTC' WHERE name = 'lost'`);
    await work();
    expect(await ruleRuns()).toHaveLength(2);
  });

  test('one whose run takes long keeps no other waiting, nor makes it late', async () => {
    await save({ name: 'slow' });
    await save({ name: 'quick' });
    const gate = await connect(database.url);
    await gate.query('SELECT pg_advisory_lock(1)');
    await query(`
      CREATE FUNCTION wait_long() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
      CREATE TRIGGER wait_long BEFORE INSERT ON rule_run FOR EACH ROW
        WHEN (NEW.actor = 'schedule:slow') EXECUTE FUNCTION wait_long()`);
    const makeDueNow = (name: string) =>
      query(`UPDATE schedule SET next_at = date_trunc('second', now()) WHERE name = $1`, [name]);
    await makeDueNow('slow');
    const working = work();
    await until(
      () => query(`SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`),
      (waits) => waits.length > 0,
    );
    // It comes due while the other is still being made, in the only process that there is.
    await makeDueNow('quick');
    await until(ruleRuns, (runs) => runs.length > 0);
    expect(await ruleRuns()).toMatchObject([{ actor: 'schedule:quick' }]);
    // Another replica takes the slow one for missed meanwhile; its run is kept on the schedule all the same.
    await query(
      `UPDATE schedule SET last_at = next_at, next_at = next_at + interval '1 day' WHERE name = 'slow'`,
    );
    await gate.end();
    await working;
    const [slow] = await query(`SELECT last_run_id FROM schedule WHERE name = 'slow'`);
    const [run] = await query(`SELECT id FROM rule_run WHERE actor = 'schedule:slow'`);
    expect(slow!['last_run_id']).toBe(run!['id']);
  });

  test('many at once are all worked', async () => {
    for (let index = 0; index < 10; index += 1) await save({ name: `schedule-${index}` });
    await makeDue();
    await work();
    expect(await ruleRuns()).toHaveLength(10);
  });

  test('a clock that is put back by an hour starts no tick again', async () => {
    await save();
    await makeDue();
    await work();
    const { lastAt } = await only();
    // As it stands for whoever looks an hour earlier: that tick is the next one again.
    await query('UPDATE schedule SET next_at = $1', [lastAt]);
    await work();
    expect(await ruleRuns()).toHaveLength(1);
    expect((await only()).nextAt!.getTime()).toBeGreaterThan(Date.now());
  });

  test('a clock that had run ahead by a year and was put right', async () => {
    await save();
    const { nextAt } = await only();
    await query(`UPDATE schedule SET next_at = next_at + interval '1 year'`);
    await work();
    expect((await only()).nextAt).toEqual(nextAt);
  });

  test('a disabled schedule starts nothing', async () => {
    await save({ enabled: false });
    expect((await only()).nextAt).toBeNull();
    await work();
    expect(await ruleRuns()).toEqual([]);
  });
});
