// A pipeline run from its start to its end, over real HTTP against the sandbox's feed.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { stoneId } from '../../src/sandbox/feed/records.js';
import type { FeedCall, RunnerObserver } from '../../src/runner/observer.js';
import { savePricingRule } from '../../src/store/pricing-rule.js';
import { FeedWorld } from '../support/feed-world.js';

let world: FeedWorld;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());

describe('the first run', () => {
  test('is full, reads everything once, and leaves the instant of its plan as the watermark', async () => {
    const feed = await world.feed({ size: 700 });
    const before = new Date();
    const { id } = await world.start(feed);
    expect(await world.find(id)).toMatchObject({
      status: 'CREATED',
      runType: 'full',
      watermarkBefore: null,
      expectedWorkers: 0,
    });
    const worker = world.worker();
    expect(await worker.step(worker.plans)).toBe(true);
    const planned = await world.find(id);
    expect(planned.status).toBe('WORKERS_RUNNING');
    expect(planned.expectedWorkers).toBeGreaterThan(5);
    const afterPlan = new Date();
    await worker.drain();
    const run = await world.find(id);
    expect(run).toMatchObject({
      status: 'COMPLETED',
      completedWorkers: planned.expectedWorkers,
      failedWorkers: 0,
      recordsProcessed: 700,
      recordsConsolidated: 700,
      recordsDuplicated: 0,
      recordsRejected: 0,
      recordsMissing: 0,
      recordsDeleted: 0,
      error: null,
    });
    // The source's clock shows whole seconds.
    expect(run.watermarkAfter!.getTime()).toBeGreaterThan(before.getTime() - 1_000);
    expect(run.watermarkAfter!.getTime()).toBeLessThanOrEqual(afterPlan.getTime());
    expect(await world.watermark(feed)).toEqual(run.watermarkAfter);
    expect((await world.items(feed)).size).toBe(700);
    await world.expectSound(id);
  });

  test('has a line for every step, in order', async () => {
    const feed = await world.feed({ size: 40 });
    const { id } = await world.run(feed);
    expect((await world.lines(id)).map(({ type }) => type)).toEqual([
      'pipeline_run.create',
      'pipeline_run.start',
      'partition.start',
      'partition.complete',
      'pipeline_run.consolidate',
      'pipeline_run.complete',
    ]);
  });

  test('tells of every call to its source and of every settlement', async () => {
    const feed = await world.feed({ size: 40 });
    const { id } = await world.start(feed);
    const calls: FeedCall[] = [];
    const settled: [string, object][] = [];
    const observer: RunnerObserver = {
      onFeedCall: (call) => calls.push(call),
      onSettle: ({ kind, runId, events }) => settled.push([`${kind} ${runId}`, events]),
    };
    await world.worker('w1', { observer }).drain();
    const ids = { runId: id, correlationId: id, sourceId: feed.sourceId, ms: expect.any(Number) as number };
    expect(calls[0]).toEqual({ ...ids, purpose: 'plan', outcome: 'planned' });
    expect(calls[1]).toEqual({
      ...ids,
      purpose: 'page',
      outcome: 'page',
      partitionId: 'partition-0',
      offset: 0,
    });
    const pages = calls.slice(1).map(() => [`pipeline_page ${id}`, { settled: 1 }]);
    expect(settled).toEqual([
      [`pipeline_plan ${id}`, { start: 1 }],
      ...pages,
      [`pipeline_consolidation ${id}`, { consolidate: 40 }],
    ]);
  });

  test('of a feed with nothing in it completes', async () => {
    const run = await world.run(await world.feed({ size: 0 }));
    expect(run).toMatchObject({ status: 'COMPLETED', expectedWorkers: 0, recordsConsolidated: 0 });
    expect(run.watermarkAfter).not.toBeNull();
  });
});

describe('a page', () => {
  test('is all that one claim does; the partition is free after it', async () => {
    const feed = await world.feed({ size: 100 }, { partitions: 1 });
    const { id } = await world.start(feed);
    const worker = world.worker();
    await worker.step(worker.plans);
    const offsets: number[] = [];
    while (await worker.step(worker.pages)) {
      const [partition] = await world.partitions(id);
      offsets.push(partition!.nextOffset);
      const [row] = await world.db.query('SELECT lease_owner FROM worker_runs WHERE run_id = $1', [id]);
      expect(row).toEqual({ lease_owner: null });
    }
    expect(offsets).toEqual([30, 60, 90, 100]);
    expect((await world.partitions(id))[0]).toMatchObject({
      status: 'completed',
      completed: true,
      attempts: 0,
    });
    await worker.drain();
  });

  test('has the length that the source is configured with', async () => {
    const feed = await world.feed({ size: 100 }, { partitions: 1, pageSize: 45 });
    const { id } = await world.start(feed);
    const worker = world.worker();
    await worker.step(worker.plans);
    await worker.step(worker.pages);
    expect((await world.partitions(id))[0]).toMatchObject({ nextOffset: 45, payload: { limit: 45 } });
    await worker.drain();
  });

  test('that is full and the last is followed by an empty one', async () => {
    const run = await world.run(await world.feed({ size: 60 }, { partitions: 1 }));
    expect(run).toMatchObject({ status: 'COMPLETED', recordsProcessed: 60 });
  });
});

describe('later runs', () => {
  test('are incremental from the watermark, and read only what changed', async () => {
    const feed = await world.feed({ size: 200 });
    const first = await world.run(feed);
    feed.changes.setPrice(5, 12_345, Date.now());
    const added = feed.changes.add(200, 99_900, Date.now());
    const second = await world.run(feed);
    expect(second).toMatchObject({ runType: 'incremental', recordsProcessed: 2, status: 'COMPLETED' });
    expect(second.watermarkBefore).toEqual(first.watermarkAfter);
    expect(second.watermarkAfter!.getTime()).toBeGreaterThanOrEqual(first.watermarkAfter!.getTime());
    const items = await world.items(feed);
    expect(items.get(stoneId(5))).toBe(12_345);
    expect(items.get(added)).toBe(99_900);
    expect(items.size).toBe(201);
  });

  test('without any change complete and move the watermark', async () => {
    const feed = await world.feed({ size: 50 });
    const first = await world.run(feed);
    await world.db.query(`UPDATE source SET watermark = watermark - interval '1 hour' WHERE id = $1`, [
      feed.sourceId,
    ]);
    const second = await world.run(feed);
    expect(second).toMatchObject({ runType: 'incremental', status: 'COMPLETED', expectedWorkers: 0 });
    expect(second.watermarkAfter!.getTime()).toBeGreaterThanOrEqual(first.watermarkAfter!.getTime());
  });

  test('may be full when asked, and take out what is gone; what comes back is back', async () => {
    const feed = await world.feed({ size: 300 });
    const own = feed.changes.add(5_000, 19_000, Date.now());
    await world.run(feed);
    feed.changes.remove(5_000, Date.now());
    const second = await world.run(feed, 'full');
    expect(second).toMatchObject({ runType: 'full', recordsProcessed: 300, recordsDeleted: 1 });
    expect((await world.items(feed)).has(own)).toBe(false);
    feed.changes.setPrice(5_000, 20_000, Date.now());
    await world.run(feed);
    expect((await world.items(feed)).get(own)).toBe(20_000);
  });

  test('may be incremental when asked, even the first', async () => {
    const run = await world.run(await world.feed({ size: 40 }), 'incremental');
    expect(run).toMatchObject({ runType: 'incremental', recordsProcessed: 40, status: 'COMPLETED' });
  });

  test('never take out items that were imported, or are another source’s', async () => {
    const feed = await world.feed({ size: 20 });
    const [imported, others, own] = [6_000, 6_000, 6_000].map((size) =>
      feed.changes.add(size, 20_000, Date.now()),
    );
    await world.run(feed);
    await world.db.query('UPDATE catalog_item SET source_id = NULL WHERE external_id = $1', [imported]);
    const other = await world.feed({ size: 20 });
    await world.db.query('UPDATE catalog_item SET source_id = $2 WHERE external_id = $1', [
      others,
      other.sourceId,
    ]);
    for (const index of [6_000, 6_001, 6_002]) feed.changes.remove(index, Date.now());
    expect(await world.run(feed, 'full')).toMatchObject({ recordsDeleted: 1 });
    const rows = await world.db.query(
      'SELECT external_id FROM catalog_item WHERE external_id = ANY($1) AND deleted_at IS NOT NULL',
      [[imported, others, own]],
    );
    expect(rows).toEqual([{ external_id: own }]);
  });

  test('that are full and find nothing at all any more fail, instead of emptying the catalog', async () => {
    const feed = await world.feed({ size: 20 });
    await world.run(feed);
    await world.pointAt(feed.name, { size: 0 });
    const run = await world.run(feed, 'full');
    expect(run).toMatchObject({ status: 'FAILED', error: expect.stringContaining('no records at all') });
    expect((await world.items(feed)).size).toBe(20);
  });
});

describe('two sources with the same record', () => {
  test('that one of them loses: it is the other’s, until that has lost it too', async () => {
    const [a, b] = [await world.feed({ size: 20 }), await world.feed({ size: 20 })];
    const anHourAgo = Date.now() - 3_600_000;
    const id = a.changes.add(7_000, 20_000, anHourAgo);
    b.changes.add(7_000, 30_000, anHourAgo);
    await world.run(a);
    await world.run(b);
    expect((await world.items(b)).get(id)).toBe(30_000);
    b.changes.remove(7_000, Date.now());
    const lost = await world.run(b, 'full');
    expect(lost).toMatchObject({ status: 'COMPLETED', recordsDeleted: 0 });
    expect((await world.lines(lost.id)).map(({ type }) => type)).toContain('pipeline_run.hand_over');
    expect((await world.items(a)).has(id)).toBe(true);
    expect(await world.run(a)).toMatchObject({ recordsProcessed: 0, recordsConsolidated: 1 });
    expect((await world.items(a)).get(id)).toBe(20_000);
    a.changes.remove(7_000, Date.now());
    expect(await world.run(a, 'full')).toMatchObject({ recordsDeleted: 1 });
    expect((await world.items(a)).has(id)).toBe(false);
  });
});

describe('the watermark', () => {
  test('does not skip a record that changes after its page was read', async () => {
    const feed = await world.feed({ size: 90 }, { partitions: 1 });
    await world.start(feed);
    const worker = world.worker();
    await worker.step(worker.plans);
    await worker.step(worker.pages);
    // It was on the page that is in; the run will complete without having seen this.
    feed.changes.setPrice(2, 77_700, Date.now());
    await worker.drain();
    expect((await world.items(feed)).get(stoneId(2))).not.toBe(77_700);
    await world.run(feed);
    expect((await world.items(feed)).get(stoneId(2))).toBe(77_700);
  });

  test('does not skip what changed between the plan and the end of a run', async () => {
    const feed = await world.feed({ size: 30 });
    const { id } = await world.start(feed);
    const worker = world.worker();
    await worker.step(worker.plans);
    const changedAt = new Date();
    await worker.drain();
    expect((await world.find(id)).watermarkAfter!.getTime()).toBeLessThanOrEqual(changedAt.getTime());
  });
});

describe('pricing rules', () => {
  test('that are enabled price the items, the highest priority first', async () => {
    const projectId = 'priced';
    const rule = { projectId, expectedVersion: null, id: null };
    const save = (name: string, priority: number, enabled: boolean, definition: object) =>
      savePricingRule(world.db, world.viewer, { ...rule, name, priority, enabled, definition });
    await save('all', 0, true, { adjust: { marginPercent: 20 } });
    await save('first', 10, true, {
      currency: 'USD',
      match: { field: 'externalId', eq: stoneId(0) },
      adjust: { set: 4_200 },
    });
    await save('off', 99, false, { currency: 'USD', adjust: { set: 1 } });
    const feed = await world.feed({ size: 3 });
    await world.start(feed, null, { projectId });
    await world.worker().drain();
    const rows = await world.db.query(
      `SELECT external_id, unit_amount::int, cost_amount::int FROM catalog_item WHERE source_id = $1`,
      [feed.sourceId],
    );
    expect(new Set(rows)).toEqual(
      new Set([
        { external_id: stoneId(0), unit_amount: 4_200, cost_amount: 15_000 },
        ...[1, 2].map((index) => {
          const cost = Math.floor(15_000 * 400 ** ((index / 3) ** 2));
          return { external_id: stoneId(index), unit_amount: Math.round(cost * 1.2), cost_amount: cost };
        }),
      ]),
    );
  });

  test('that cannot be read fail the consolidation, and the run can be consolidated again', async () => {
    const projectId = 'broken';
    await world.db.query(
      `INSERT INTO pricing_rule (id, tenant_id, project_id, name, definition)
       VALUES (gen_random_uuid(), 'default', $1, 'x', '{"adjust": {}}')`,
      [projectId],
    );
    const feed = await world.feed({ size: 3 });
    const { id } = await world.start(feed, null, { projectId });
    await world.worker().drain();
    const run = await world.find(id);
    expect(run).toMatchObject({ status: 'FAILED', error: expect.stringContaining('consolidation broke') });
    expect(await world.watermark(feed)).toBeNull();
    expect((await world.lines(id)).filter(({ level }) => level === 'ERROR').map(({ type }) => type)).toEqual([
      'pipeline_run.fail',
      'pipeline_run.alert',
    ]);
  });
});
