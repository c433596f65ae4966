// What a page writes over what was there: the newer of two readings stays, by a clock that may be put back.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Connection } from '../../src/store/db.js';
import { newId } from '../../src/store/id.js';
import { noteSeen, noteTwice, wasRead, writeRawItems } from '../../src/store/raw-item.js';
import { writeRejected } from '../../src/store/rejected-record.js';
import { FeedWorld } from '../support/feed-world.js';
import { untilBlocked } from './locks.js';

let world: FeedWorld;
let sourceId: string;

beforeAll(async () => {
  world = await FeedWorld.create();
  ({ sourceId } = await world.feed());
});
afterAll(() => world.drop());

const HOUR = 3_600_000;

/** What two pages of one run say comes again that write the same records at once; `first` is the one that is written first. */
async function meet(first: readonly string[], second: readonly string[]): Promise<string[][]> {
  const runId = newId();
  const claimedAt = new Date().toISOString();
  const page = (connection: Connection, ids: readonly string[]): Promise<string[]> =>
    writeRawItems(
      connection,
      { runId, sourceId, claimedAt, since: null },
      ids.map((externalId) => ({ externalId, json: '{}' })),
    );
  let late!: Promise<string[]>;
  const early = await world.db.transaction('test', async (connection) => {
    const twice = await page(connection, first);
    late = world.db.transaction('test', (other) => page(other, second));
    await untilBlocked(world.db, 1);
    return twice;
  });
  return [early, await late];
}

/** Of a page that was claimed so many hours from now. */
const reading = (hours: number) => ({
  runId: newId(),
  sourceId,
  since: null,
  claimedAt: new Date(Date.now() + hours * HOUR).toISOString(),
});

const write = (id: string, hours: number, text: string): Promise<unknown> =>
  world.db.transaction('test', (connection) =>
    writeRawItems(connection, reading(hours), [{ externalId: id, json: JSON.stringify(text) }]),
  );

async function find(id: string): Promise<{ payload: string; hours: number; waiting: boolean }> {
  const [row] = await world.db.query<{ payload: string; hours: number; waiting: boolean }>(
    `SELECT payload, round(extract(epoch FROM fetched_at - now()) / 3600)::integer AS hours,
       consolidated_at IS NULL AS waiting
     FROM raw_item WHERE source_id = $1 AND external_id = $2`,
    [sourceId, id],
  );
  return row!;
}

test('a record that comes with two pages of a run at once comes twice', async () => {
  expect(await meet(['m-1', 'm-2', 'm-3'], ['m-2', 'm-3', 'm-4'])).toEqual([[], ['m-2', 'm-3']]);
  // They were there before, from another run.
  expect(await meet(['m-1', 'm-2', 'm-3'], ['m-2', 'm-3', 'm-4', 'm-5'])).toEqual([[], ['m-2', 'm-3']]);
});

describe('a record that comes twice', () => {
  /** A run that reads the pages, or of them what changed; answers how many were known to be listed twice. */
  async function listedIn(pages: readonly (readonly string[])[], since: Date | null = null): Promise<number> {
    const run = { ...reading(0), since };
    let listed = 0;
    for (const ids of pages) {
      await world.db.transaction('test', async (connection) => {
        const records = ids.map((externalId) => ({ externalId, json: '{}' }));
        listed += await noteTwice(connection, run, await writeRawItems(connection, run, records));
      });
    }
    return listed;
  }
  const changed = new Date();

  test('is listed twice when it came twice before, on one page or on two', async () => {
    expect(await listedIn([['t-1', 't-2', 't-1'], ['t-2']])).toBe(0);
    expect(await listedIn([['t-1', 't-2'], ['t-2', 't-1', 't-3'], ['t-3']])).toBe(2);
    expect(await listedIn([['t-3', 't-3', 't-4']])).toBe(1);
  });

  test('is not when it came once in between', async () => {
    for (const expected of [0, 0]) {
      expect(await listedIn([['u-1', 'u-1']])).toBe(expected);
      expect(await listedIn([['u-1']])).toBe(0);
    }
  });

  test('is also when of its two entries one had changed in between', async () => {
    await listedIn([['v-1', 'v-1']]);
    expect(await listedIn([['v-1']], changed)).toBe(0);
    expect(await listedIn([['v-1', 'v-1']], changed)).toBe(1);
    expect(await listedIn([['v-1', 'v-1']])).toBe(1);
  });
});

test('an older page does not undo a newer one', async () => {
  await write('a', -1, 'newer');
  await write('a', -2, 'older');
  expect(await find('a')).toEqual({ payload: 'newer', hours: -1, waiting: true });
});

test('what a clock wrote that ran ahead is written over', async () => {
  await write('b', 24, 'ahead');
  await world.db.query('UPDATE raw_item SET consolidated_at = clock_timestamp()');
  await write('b', 0, 'right');
  expect(await find('b')).toEqual({ payload: 'right', hours: 0, waiting: true });
  await write('b', -1, 'older');
  expect(await find('b')).toMatchObject({ payload: 'right' });
});

test('so is the time at which it was seen, and nobody’s else', async () => {
  await write('c', 24, 'ahead');
  await write('d', -1, 'seen');
  const see = (hours: number): Promise<void> =>
    world.db.transaction('test', (connection) =>
      noteSeen(connection, reading(hours), [{ externalId: 'c' }, { externalId: 'd' }]),
    );
  await see(-2);
  expect([(await find('c')).hours, (await find('d')).hours]).toEqual([-2, -1]);
  await see(0);
  expect([(await find('c')).hours, (await find('d')).hours]).toEqual([0, 0]);
});

test('a record was read by the run that kept it or set it aside, and by no other', async () => {
  const { id: runId } = await world.start({ sourceId });
  const own = { ...reading(0), runId };
  await world.db.transaction('test', async (connection) => {
    await writeRawItems(connection, own, [{ externalId: 'kept', json: '{}' }]);
    const rejected = [{ externalId: 'aside', json: '{}', reason: 'no' }];
    await writeRejected(connection, { runId, tenantId: 'default' }, 'partition-0', rejected);
  });
  const ids = ['kept', 'aside', 'never'];
  const readBy = (run: { runId: string; sourceId: string }): Promise<boolean[]> =>
    Promise.all(ids.map((id) => wasRead(world.db, run, id)));
  expect(await readBy(own)).toEqual([true, true, false]);
  expect(await readBy(reading(0))).toEqual([false, false, false]);
});
