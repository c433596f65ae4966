// The gate's state in the channel's row, with many at it at once: one rate, one breaker, one limit of batches.
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { admitBatch, countStreaks } from '../../src/domain/channel-gate.js';
import {
  enterChannel,
  freeSlots,
  keepSlot,
  leaveChannel,
  noteAnswers,
  type GateRequest,
} from '../../src/store/channel-gate.js';
import { findClaimableRun, nextClaimDelayMs } from '../../src/store/claim.js';
import type { Connection, Database } from '../../src/store/db.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, type World } from '../support/fixtures.js';
import { linesOf, type Row } from './rows.js';

const HOUR = 3_600_000;
const RULE = { toleratedThrottles: 5, openMs: HOUR };

let database: TestDatabase;
let world: World;
let channelId: string;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  channelId = world.home.channelId;
});
beforeEach(() =>
  database.db.query(
    `UPDATE channel SET bucket_tokens = NULL, bucket_capacity = NULL, bucket_restore_per_s = NULL, bucket_at = NULL,
       circuit = 'CLOSED', circuit_open_until = NULL, consecutive_429 = 0, slots = '{}', config = '{}'`,
  ),
);
afterAll(() => database.drop());

async function row(): Promise<Row> {
  return (await database.db.query<Row>('SELECT * FROM channel WHERE id = $1', [channelId]))[0]!;
}

interface Entry {
  readonly slot?: string;
  readonly wanted?: number;
  readonly bucket?: GateRequest['bucket'];
  readonly concurrency?: number | null;
}

function enter({ slot = 'w#1', wanted = 10, bucket = null, concurrency = null }: Entry = {}) {
  const request = { channelId, slot, leaseMs: HOUR, bucket, limitsBatches: concurrency !== null };
  const costOf = (items: number) => items;
  return enterChannel(database.db, request, (state) => admitBatch(state, { concurrency, costOf }, wanted));
}

const note = (...isThrottled: boolean[]) =>
  noteAnswers(database.db, channelId, countStreaks(isThrottled), RULE);
const leave = (slot = 'w#1', overrides = {}) =>
  leaveChannel(database.db, {
    channelId,
    slot,
    refund: 0,
    reported: null,
    isUnansweredProbe: false,
    ...overrides,
  });
const passTime = () =>
  database.db.query(`UPDATE channel SET circuit_open_until = clock_timestamp() WHERE id = $1`, [channelId]);

describe('tokens', () => {
  test('a bucket starts full and is shared by all who come at once', async () => {
    // It restores next to nothing, so what goes out is what was in it.
    const bucket = { capacity: 35, restorePerSecond: 0.000001 };
    const entries = await Promise.all(Array.from({ length: 12 }, () => enter({ bucket })));
    const items = entries.flatMap((entry) => entry?.items ?? []);
    expect(items.reduce((sum, count) => sum + count, 0)).toBe(35);
    expect(items.toSorted((a, b) => b - a)).toEqual([10, 10, 10, 5]);
    await leave('w#1', { refund: 4 });
    expect(await enter({ bucket })).toMatchObject({ items: 4 });
  });

  test('what the channel reports counts from then on; an unknown budget is none', async () => {
    expect(await enter({ wanted: 500 })).toMatchObject({ items: 500 });
    await leave('w#1', { reported: { available: 7, capacity: 100, restorePerSecond: 0.000001 } });
    expect(await row()).toMatchObject({ bucket_tokens: 7, bucket_capacity: 100 });
    expect(await enter()).toMatchObject({ items: 7 });
    expect(await enter()).toBeNull();
  });

  test('they come back with time, up to the capacity', async () => {
    await leave('w#1', { reported: { available: 0, capacity: 10, restorePerSecond: 1 } });
    await database.db.query(`UPDATE channel SET bucket_at = bucket_at - interval '4.5 seconds'`);
    expect(await enter({ wanted: 4 })).toMatchObject({ items: 4 });
    await database.db.query(`UPDATE channel SET bucket_at = bucket_at - interval '1 hour'`);
    expect(await enter({ wanted: 50 })).toMatchObject({ items: 10 });
  });

  test('a run whose channel has no second of budget left is due when it has', async () => {
    const run = await makeQueuedRun(database.db, world.home);
    await leave('w#1', { reported: { available: 10, capacity: 1000, restorePerSecond: 50 } });
    await database.db.query(`UPDATE channel SET bucket_at = bucket_at + interval '1 hour' WHERE id = $1`, [
      channelId,
    ]);
    expect(await findClaimableRun(database.db)).toBeNull();
    expect(await nextClaimDelayMs(database.db)).toBeGreaterThan(HOUR / 2);
    await database.db.query(`UPDATE channel SET bucket_at = bucket_at - interval '1 hour 1 second'`);
    expect(await findClaimableRun(database.db)).toMatchObject({ runId: run.id, isGuarded: true });
    await database.db.query('UPDATE rule_run SET paused = true');
  });
});

describe('circuit', () => {
  test('more than five throttled answers in a row open it, whoever got them', async () => {
    const run = await makeQueuedRun(database.db, world.home);
    expect(await note(true, true, true)).toBe('CLOSED');
    expect(await note(true, true)).toBe('CLOSED');
    expect(await row()).toMatchObject({ consecutive_429: 5, circuit: 'CLOSED' });
    expect(await note(true)).toBe('OPEN');
    expect(await row()).toMatchObject({ consecutive_429: 6, circuit: 'OPEN' });
    expect(await enter()).toBeNull();
    expect(await findClaimableRun(database.db)).toBeNull();
    expect(await nextClaimDelayMs(database.db)).toBeGreaterThan(HOUR / 2);
    const line = (await linesOf(database.db, run.id)).at(-1);
    expect(line).toMatchObject({
      type: 'channel.open_circuit',
      level: 'WARN',
      payload: { channelId, circuit: 'OPEN' },
    });
    await database.db.query('UPDATE rule_run SET paused = true');
  });

  test('every throttled answer is counted for the alerts, in between others and while the circuit is open', async () => {
    await database.db.query('DELETE FROM channel_throttle');
    const counted = async () =>
      (
        await database.db.query('SELECT sum(count)::int AS n FROM channel_throttle WHERE channel_id = $1', [
          channelId,
        ])
      )[0];
    await note(true, false, true, false);
    await note(false);
    expect(await counted()).toEqual({ n: 2 });
    expect(await note(true, true, true, true, true, true)).toBe('OPEN');
    expect(await note(true, true)).toBe('OPEN');
    expect(await counted()).toEqual({ n: 10 });
  });

  test('an answer of another kind ends the count', async () => {
    await note(true, true, true, true, true);
    expect(await note(false, true, true)).toBe('CLOSED');
    expect(await row()).toMatchObject({ consecutive_429: 2 });
    expect(await note(true, true, false)).toBe('CLOSED');
    expect(await row()).toMatchObject({ consecutive_429: 0 });
  });

  test('a streak within one batch opens it as well', async () => {
    expect(await note(false, true, true, true, true, true, true, false)).toBe('OPEN');
  });

  test('when the wait is over exactly one batch is let through, and its answer decides', async () => {
    for (const answer of [true, false]) {
      await note(true, true, true, true, true, true);
      await passTime();
      const entries = await Promise.all(Array.from({ length: 8 }, (_, n) => enter({ slot: `w#${n}` })));
      expect(entries.filter((entry) => entry !== null)).toEqual([{ items: 10, cost: 10, isProbe: true }]);
      expect(await row()).toMatchObject({ circuit: 'HALF_OPEN' });
      expect(await note(answer)).toBe(answer ? 'OPEN' : 'CLOSED');
      expect(await enter()).toEqual(answer ? null : { items: 10, cost: 10, isProbe: false });
      await passTime();
    }
    expect(await row()).toMatchObject({ consecutive_429: 0, circuit: 'CLOSED' });
  });

  test('late answers of earlier batches do not close an open circuit', async () => {
    await note(true, true, true, true, true, true);
    expect(await note(false, false)).toBe('OPEN');
    expect(await row()).toMatchObject({ circuit: 'OPEN', consecutive_429: 6 });
  });

  test('a probe that got no answer leaves it to the next; one that died does when its lease is over', async () => {
    await note(true, true, true, true, true, true);
    await passTime();
    await enter();
    await leave('w#1', { isUnansweredProbe: true });
    expect(await enter()).toMatchObject({ isProbe: true });
    expect(await enter()).toBeNull();
    await passTime();
    expect(await enter()).toMatchObject({ isProbe: true });
  });
});

describe('slots', () => {
  test('no more batches at once than the policy says', async () => {
    const entries = await Promise.all(
      Array.from({ length: 8 }, (_, n) => enter({ slot: `w-${n}#x`, concurrency: 3 })),
    );
    expect(entries.filter((entry) => entry !== null)).toHaveLength(3);
    const [taken] = Object.keys((await row())['slots'] as object);
    await leave(taken);
    expect(await enter({ slot: 'next#x', concurrency: 3 })).not.toBeNull();
    expect(await enter({ slot: 'last#x', concurrency: 3 })).toBeNull();
  });

  test('slots of the dead are freed, and one that is over frees itself', async () => {
    await enter({ slot: 'dead#1', concurrency: 1 });
    await freeSlots(database.db, ['other']);
    expect(await enter({ slot: 'w#2', concurrency: 1 })).toBeNull();
    await freeSlots(database.db, ['dead']);
    expect(await enter({ slot: 'w#2', concurrency: 1 })).not.toBeNull();
    await keepSlot(database.db, channelId, 'w#2', -1);
    expect(await enter({ slot: 'w#3', concurrency: 1 })).not.toBeNull();
    expect(Object.keys((await row())['slots'] as object)).toEqual(['w#3']);
  });

  test('a run whose channel has no slot free is not due', async () => {
    await database.db.query(`UPDATE channel SET config = '{"policy": {"concurrency": 1}}' WHERE id = $1`, [
      channelId,
    ]);
    const run = await makeQueuedRun(database.db, world.home);
    await enter({ concurrency: 1 });
    expect(await findClaimableRun(database.db)).toBeNull();
    await leave();
    expect(await findClaimableRun(database.db)).toMatchObject({ runId: run.id });
    await database.db.query('UPDATE rule_run SET paused = true');
  });
});

describe('while a run of the channel is being made', () => {
  /** Somebody moves the row, and lets go of it when all of `works` wait; answers how often they were tried. */
  async function countTries(works: readonly ((db: Database) => Promise<unknown>)[]): Promise<number> {
    let tries = 0;
    const db = new Proxy(database.db, {
      get(real, key) {
        if (key !== 'transaction') {
          const value: unknown = Reflect.get(real, key, real);
          return typeof value === 'function' ? value.bind(real) : value;
        }
        return (actor: string, work: (connection: Connection) => Promise<unknown>) =>
          real.transaction(actor, (connection) => {
            tries += 1;
            return work(connection);
          });
      },
    });
    await database.db.transaction('maker', async (maker) => {
      // As the foreign key of a new run has it, until all its targets are there.
      await maker.query('SELECT 1 FROM channel WHERE id = $1 FOR KEY SHARE', [channelId]);
      const { working } = await database.db.transaction('mover', async (mover) => {
        await mover.query('UPDATE channel SET consecutive_429 = consecutive_429 WHERE id = $1', [channelId]);
        const started = Promise.all(works.map((work) => work(db)));
        await untilLocksWait(works.length);
        return { working: started };
      });
      await working;
    });
    return tries;
  }

  async function untilLocksWait(count: number): Promise<void> {
    const waiting = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    while ((await database.db.query(waiting)).length < count) await setTimeout(5);
  }

  test('answers that are noted at once do not lock each other out', async () => {
    const noting = (db: Database) => noteAnswers(db, channelId, countStreaks([true]), RULE);
    expect(await countTries([noting, noting, noting])).toBe(3);
    expect(await row()).toMatchObject({ consecutive_429: 3 });
  });

  test('nor do those who free the slots of the same dead worker', async () => {
    await enter({ slot: 'dead#1', concurrency: 5 });
    const freeing = (db: Database) => freeSlots(db, ['dead']);
    expect(await countTries([freeing, freeing, freeing])).toBe(3);
    expect(await row()).toMatchObject({ slots: {} });
  });
});
