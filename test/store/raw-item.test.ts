// What a page writes over what was there: the newer of two readings stays, by a clock that may be put back.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Connection } from '../../src/store/db.js';
import { newId } from '../../src/store/id.js';
import { noteSeen, wasRead, writeRawItems } from '../../src/store/raw-item.js';
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

/** What two pages of one run count that write the same records at once; `first` is the one that is written first. */
async function meet(first: readonly string[], second: readonly string[]): Promise<number[]> {
  const runId = newId();
  const claimedAt = new Date().toISOString();
  const page = (connection: Connection, ids: readonly string[]): Promise<number> =>
    writeRawItems(
      connection,
      { runId, sourceId, claimedAt },
      ids.map((externalId) => ({ externalId, json: '{}' })),
    );
  let late!: Promise<number>;
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
  expect(await meet(['m-1', 'm-2', 'm-3'], ['m-2', 'm-3', 'm-4'])).toEqual([0, 2]);
  // They were there before, from another run.
  expect(await meet(['m-1', 'm-2', 'm-3'], ['m-2', 'm-3', 'm-4', 'm-5'])).toEqual([0, 2]);
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
