// Consolidation batch by batch: shared by replicas, undone whole when it breaks, complete only when nothing waits.
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { CONSOLIDATION_BATCH, CONSOLIDATION_BYTES } from '../../src/domain/pipeline-run.js';
import { completeIfDone } from '../../src/store/completion.js';
import {
  consolidateBatch,
  findConsolidatingRuns,
  retryConsolidation,
  type ConsolidatingRun,
  type MappedBatch,
} from '../../src/store/consolidation.js';
import type { RawItem } from '../../src/store/raw-item.js';
import { connect } from '../support/database.js';
import { FeedWorld, type TestFeed } from '../support/feed-world.js';

let world: FeedWorld;
let feed: TestFeed;
let run: ConsolidatingRun;

beforeAll(async () => {
  world = await FeedWorld.create();
});
afterAll(() => world.drop());
beforeEach(async () => {
  await world.db.query(
    `UPDATE run_metadata SET status = 'CANCELLED' WHERE status IN ('CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING')`,
  );
  // What other sources have would be handed over to them.
  await world.db.query('DELETE FROM raw_item');
  feed = await world.feed();
  run = await world.consolidating(feed);
});

async function addRaw(count: number, from = 0, text = ''): Promise<void> {
  await world.db.query(
    `INSERT INTO raw_item (source_id, external_id, run_id, payload, fetched_at)
     SELECT $1, 'r' || lpad(n::text, 6, '0'), $2, jsonb_build_object('n', n, 'text', $5::text), clock_timestamp()
     FROM generate_series($3::int, $4::int) n`,
    [feed.sourceId, run.runId, from, from + count - 1, text],
  );
}

function map(items: readonly RawItem[]): MappedBatch {
  return {
    items: items.map(({ externalId }) => ({
      externalId,
      title: externalId,
      unitAmount: 100,
      costAmount: 100,
      currency: 'EUR',
      attributes: {},
    })),
    rejected: [],
  };
}

function batch(overrides: Partial<Parameters<typeof consolidateBatch>[2]> = {}): Promise<number> {
  return consolidateBatch(world.db, run, {
    workerId: 'w1',
    after: '',
    onLocked: () => {},
    map,
    ...overrides,
  });
}

const complete = (workerId = 'w1'): Promise<boolean> =>
  completeIfDone(world.db, { runId: run.runId, workerId, leaseMs: 60_000 });

const waiting = async (): Promise<number> => {
  const [row] = await world.db.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM raw_item WHERE source_id = $1 AND consolidated_at IS NULL',
    [feed.sourceId],
  );
  return row!.count;
};

describe('a batch', () => {
  test('has 2,000 items, in order, from where the last one ended', async () => {
    await addRaw(4_500);
    const lasts: string[] = [];
    let after = '';
    const onLocked = (last: string): void => void lasts.push((after = last));
    const counts = [
      await batch({ onLocked }),
      await batch({ after, onLocked }),
      await batch({ after, onLocked }),
    ];
    expect(counts).toEqual([CONSOLIDATION_BATCH, CONSOLIDATION_BATCH, 500]);
    expect(lasts).toEqual(['r001999', 'r003999', 'r004499']);
    expect((await world.items(feed)).size).toBe(4_500);
    expect(await waiting()).toBe(0);
    expect(await world.find(run.runId)).toMatchObject({ recordsConsolidated: 4_500 });
  });

  test.each([
    ['heavy', () => randomBytes(100_000).toString('hex')],
    ['heavy only when they are unfolded', () => 'x'.repeat(200_000)],
  ])('has fewer items that are %s, and the others are taken next', async (_, textOf) => {
    await addRaw(300, 0, textOf());
    let after = '';
    const onLocked = (last: string): void => void (after = last);
    const counts = [];
    for (let count = -1; count !== 0; counts.push(count)) count = await batch({ after, onLocked });
    const full = Math.ceil(CONSOLIDATION_BYTES / 200_000);
    expect(counts).toEqual([full, full, full, 300 - 3 * full, 0]);
    expect(await waiting()).toBe(0);
  });

  test('has at least one item', async () => {
    await addRaw(2, 0, 'x'.repeat(CONSOLIDATION_BYTES));
    expect([await batch(), await batch(), await batch()]).toEqual([1, 1, 0]);
  });

  test('that breaks is undone whole', async () => {
    await addRaw(10);
    const broken = batch({
      map: (items) => ({
        ...map(items),
        items: map(items).items.map((item) => ({ ...item, currency: 'TOO LONG' })),
      }),
    });
    await expect(broken).rejects.toThrow();
    expect([await waiting(), (await world.items(feed)).size]).toEqual([10, 0]);
    expect(await batch()).toBe(10);
  });

  test('keeps what it sets aside, with its reason', async () => {
    await addRaw(3);
    await batch({
      map: (items) => ({
        items: map(items).items.slice(1),
        rejected: [{ externalId: items[0]!.externalId, reason: 'why not', json: '{}' }],
      }),
    });
    expect(await waiting()).toBe(0);
    expect(await world.find(run.runId)).toMatchObject({ recordsConsolidated: 2, recordsRejected: 1 });
    expect(await world.rejected(run.runId)).toMatchObject([{ externalId: 'r000000', reason: 'why not' }]);
  });
});

describe('several workers', () => {
  test('share the items: nobody waits, nobody does what another does', async () => {
    await addRaw(12_000);
    const taken: string[][] = [];
    const work = async (workerId: string): Promise<void> => {
      const mine: string[] = [];
      taken.push(mine);
      const keep = (items: readonly RawItem[]): MappedBatch => {
        mine.push(...items.map(({ externalId }) => externalId));
        return map(items);
      };
      while ((await batch({ workerId, map: keep })) > 0);
    };
    await Promise.all(['a', 'b', 'c'].map(work));
    expect(taken.flat()).toHaveLength(12_000);
    expect(new Set(taken.flat()).size).toBe(12_000);
    expect(await world.find(run.runId)).toMatchObject({ recordsConsolidated: 12_000 });
  });

  test('pass over what one of them holds; the run is not complete until that is done', async () => {
    await addRaw(10);
    const holder = await connect(world.database.url);
    await holder.query('BEGIN');
    await holder.query(`SELECT 1 FROM raw_item WHERE source_id = $1 AND external_id < 'r000004' FOR UPDATE`, [
      feed.sourceId,
    ]);
    expect(await batch()).toBe(6);
    expect(await batch()).toBe(0);
    expect(await complete()).toBe(false);
    // Its process is killed: the database gives the rows back.
    await holder.query('ROLLBACK');
    await holder.end();
    expect(await batch()).toBe(4);
    expect(await complete()).toBe(true);
    expect(await world.find(run.runId)).toMatchObject({ status: 'COMPLETED', recordsConsolidated: 10 });
  });

  test('complete it once', async () => {
    const done = await Promise.all(['a', 'b', 'c', 'd'].map((worker) => complete(worker)));
    expect(done).toContain(true);
    expect(await complete()).toBe(true);
    const lines = await world.lines(run.runId);
    expect(lines.filter(({ type }) => type === 'pipeline_run.complete')).toHaveLength(1);
    await world.expectSound(run.runId);
  });
});

describe('what an earlier run left waiting', () => {
  test('is consolidated by the next', async () => {
    await addRaw(5);
    await world.db.query(`UPDATE run_metadata SET status = 'CANCELLED' WHERE run_id = $1`, [run.runId]);
    run = await world.consolidating(feed);
    expect(await batch()).toBe(5);
  });
});

describe('a run that breaks', () => {
  const broken = { workerId: 'w1', message: 'it broke', delayMs: 0 };
  const current = async (): Promise<ConsolidatingRun> =>
    (await findConsolidatingRuns(world.db, [])).find(({ runId }) => runId === run.runId)!;
  const breakOnce = async (): Promise<void> =>
    retryConsolidation(world.db, { run: await current(), ...broken });

  test('is tried three times, then fails; the watermark stays, and it can be repeated', async () => {
    for (const status of ['CONSOLIDATING', 'CONSOLIDATING', 'FAILED']) {
      await breakOnce();
      expect(await world.find(run.runId)).toMatchObject({ status, error: 'it broke' });
    }
    expect(await world.watermark(feed)).toBeNull();
    expect((await world.lines(run.runId)).map(({ type }) => type).slice(-4)).toEqual([
      'pipeline_run.retry_consolidation',
      'pipeline_run.retry_consolidation',
      'pipeline_run.fail',
      'pipeline_run.alert',
    ]);
    await world.expectSound(run.runId);
  });

  test('is not given up for breaks that were overcome', async () => {
    for (let round = 0; round < 3; round += 1) {
      await breakOnce();
      await breakOnce();
      await addRaw(1, round);
      await batch();
    }
    expect(await world.find(run.runId)).toMatchObject({ status: 'CONSOLIDATING' });
  });
});

describe('batches side by side', () => {
  test('that break together are one break, after which all of them wait', async () => {
    const retry = { run, workerId: 'w1', message: 'it broke', delayMs: 60_000 };
    await Promise.all(Array.from({ length: 4 }, () => retryConsolidation(world.db, retry)));
    const [row] = await world.db.query('SELECT status, attempts FROM run_metadata WHERE run_id = $1', [
      run.runId,
    ]);
    expect(row).toEqual({ status: 'CONSOLIDATING', attempts: 1 });
    const types = (await world.lines(run.runId)).map(({ type }) => type);
    expect(types.filter((type) => type === 'pipeline_run.retry_consolidation')).toHaveLength(1);
    expect(await findConsolidatingRuns(world.db, [])).toEqual([]);
  });
});

describe('thousands that a full run did not see', () => {
  beforeEach(async () => {
    await addRaw(5_000);
    while ((await batch()) > 0);
    expect(await complete()).toBe(true);
    run = await world.consolidating(feed);
    await world.db.query('UPDATE run_metadata SET forced = true WHERE run_id = $1', [run.runId]);
    await world.db.query(
      `UPDATE raw_item SET fetched_at = clock_timestamp() WHERE source_id = $1 AND external_id < 'r000300'`,
      [feed.sourceId],
    );
  });

  test('are taken out, batch by batch', async () => {
    expect(await complete()).toBe(true);
    expect(await world.find(run.runId)).toMatchObject({ status: 'COMPLETED', recordsDeleted: 4_700 });
    expect((await world.items(feed)).size).toBe(300);
    const [row] = await world.db.query('SELECT count(*)::int AS count FROM raw_item WHERE source_id = $1', [
      feed.sourceId,
    ]);
    expect(row).toEqual({ count: 300 });
  });
});

describe('a run that is cancelled', () => {
  test('writes no batch any more, not even one that is under way', async () => {
    await addRaw(10);
    expect(await whileCancelled(() => batch())).toBe(0);
    expect([await waiting(), (await world.items(feed)).size]).toEqual([10, 0]);
    expect(await batch()).toBe(0);
    expect(await world.find(run.runId)).toMatchObject({ recordsConsolidated: 0 });
    await world.expectSound(run.runId);
  });
});

/** Does the work while somebody has the run's lock, who cancels it as soon as the work waits for that. */
async function whileCancelled<T>(work: () => Promise<T>): Promise<T> {
  const holder = await connect(world.database.url);
  await holder.query('BEGIN');
  await holder.query(`UPDATE run_metadata SET status = 'CANCELLED' WHERE run_id = $1`, [run.runId]);
  const done = work();
  const countWaiting = (): Promise<number> =>
    holder
      .query(
        `SELECT 1 FROM pg_stat_activity
         WHERE datname = current_database() AND pg_backend_pid() = ANY(pg_blocking_pids(pid))`,
      )
      .then(({ rows }) => rows.length);
  while ((await countWaiting()) === 0);
  await holder.query('COMMIT');
  await holder.end();
  return done;
}

describe('completion', () => {
  test('moves the run, its watermark and the source’s in one transaction, or none of them', async () => {
    await world.db.query(
      `CREATE FUNCTION refuse_source() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN RAISE EXCEPTION 'not now'; END $$;
       CREATE TRIGGER refuse_source BEFORE UPDATE ON source FOR EACH ROW EXECUTE FUNCTION refuse_source()`,
    );
    const marks = (): Promise<unknown[]> =>
      world.db.query(
        `SELECT status, completed_at, watermark_after, source.watermark, last_run_id
         FROM run_metadata JOIN source ON source.id = source_id WHERE run_id = $1`,
        [run.runId],
      );
    const before = await marks();
    await expect(complete()).rejects.toThrow('not now');
    expect(await marks()).toEqual(before);
    expect(before).toMatchObject([{ status: 'CONSOLIDATING', completed_at: null, watermark: null }]);
    await world.db.query('DROP TRIGGER refuse_source ON source');
    expect(await complete()).toBe(true);
    const [after] = (await marks()) as Record<string, unknown>[];
    expect(after).toMatchObject({ status: 'COMPLETED', last_run_id: run.runId });
    expect(after!['watermark']).toEqual(after!['watermark_after']);
    expect(after!['completed_at']).not.toBeNull();
  });
});
