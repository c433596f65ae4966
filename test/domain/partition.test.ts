import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { delayOfNextDelivery, MAX_RETRY_AFTER_MS } from '../../src/domain/partition.js';
import {
  findEndlessness,
  findPageFault,
  judgeEnd,
  FIRST_READING,
  MAX_UNCOUNTED,
  positionOf,
  lastOf,
  takePage,
} from '../../src/domain/partition-reading.js';
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';

const READING = { position: 0, duplicated: 0, total: null, limit: 30, lead: 0, reading: FIRST_READING };

describe('the next delivery', () => {
  const delay = (retryAfterMs: number): number | null =>
    delayOfNextDelivery(
      { kind: 'transient', throttled: true, retryAfterMs },
      1,
      DEFAULT_RETRY_POLICY,
      () => 0,
    );

  test('comes when the source wants it, within an hour', () => {
    expect(delay(1_500)).toBe(1_500);
    expect(delay(999_999_999_000)).toBe(MAX_RETRY_AFTER_MS);
  });
});

describe('a source without end', () => {
  test('that counts nothing is read up to a limit', () => {
    expect(findEndlessness({ ...READING, position: MAX_UNCOUNTED - 1 })).toBeNull();
    expect(findEndlessness({ ...READING, position: MAX_UNCOUNTED })).toContain('does not end');
    // A file on disk, which was counted.
    expect(findEndlessness({ ...READING, total: MAX_UNCOUNTED, position: MAX_UNCOUNTED })).toBeNull();
  });

  test('is not one that goes far back into what lies before', () => {
    const reading = { ...FIRST_READING, goneBack: 5_000 };
    const back = { ...READING, position: -5_000, total: 60, reading };
    expect(findEndlessness({ ...back, lead: 100_000 })).toBeNull();
    expect(findEndlessness({ ...back, lead: 0 })).toContain('changes faster');
  });
});

describe('a page', () => {
  const page = { passed: 30, isLast: false, cursor: null, counted: null, fingerprint: 'a' };
  const former = (fingerprint: string | null, counted: number | null = null) => ({ fingerprint, counted });

  test('is kept when it is another than the one before', () => {
    expect(findPageFault(page, former('b'))).toBeNull();
    expect(findPageFault(page, former(null))).toBeNull();
    expect(findPageFault(page, former('a'))).toContain('the same as the one before');
  });

  test('may be the same when as many records have come in before it', () => {
    expect(findPageFault({ ...page, counted: 130 }, former('a', 100))).toBeNull();
    expect(findPageFault({ ...page, counted: 129 }, former('a', 100))).toContain('the same');
    expect(findPageFault({ ...page, counted: 130 }, former('a'))).toContain('the same');
  });

  test('of what is sure to end may be the same', () => {
    expect(findPageFault({ ...page, fingerprint: null }, former(null))).toBeNull();
  });

  test('that is empty is the last', () => {
    expect(findPageFault({ ...page, passed: 0, isLast: true }, former('a'))).toBeNull();
    expect(findPageFault({ ...page, passed: 0 }, former('b'))).toContain('empty page');
  });

  test('has a cursor that can be kept', () => {
    expect(findPageFault({ ...page, cursor: 'x'.repeat(4_096) }, former('b'))).toBeNull();
    for (const cursor of ['x'.repeat(4_097), 'a\0', '\ud800']) {
      expect(findPageFault({ ...page, cursor }, former('b'))).toContain('cursor that cannot be kept');
    }
  });
});

describe('a feed that shrinks', () => {
  const place = { offset: 60, limit: 30, lead: 0, reading: { ...FIRST_READING, counted: 100 } };
  const page = { passed: 30, isLast: false, counted: 100, fingerprint: 'a' };

  test.each([
    ['as many as before', place, { counted: 100 }],
    ['more', place, { counted: 110 }],
    ['not counted any more', place, { counted: null }],
    ['not counted before', { ...place, reading: FIRST_READING }, { counted: 10 }],
    ['fewer, but nothing was read before', { ...place, offset: 0 }, { counted: 10 }],
  ])('%s: the page is kept', (_, at, counts) => {
    expect(takePage(at, { ...page, ...counts })).toMatchObject({ kind: 'keep', expectedTwice: 0 });
  });

  test.each([
    ['fewer', place, 93, 7 + 14],
    ['fewer by much', place, 50, 50 + 10],
    ['fewer by more than was read', place, 10, 60],
    ['fewer by more than was read, with records before the range', { ...place, lead: 1_000 }, 10, 90 + 15],
  ])('%s: goes back, and further than that', (_, at, counted, by) => {
    expect(takePage(at, { ...page, counted })).toMatchObject({ kind: 'retreat', by });
  });

  // One record before the reader is taken away with every call, and one more is read for each that moved.
  test.each([0, 1, 5, 15])(
    'by %i with every page is read to its end, and no record is passed over',
    (rate) => {
      let feed = Array.from({ length: 1_000 }, (_, index) => index);
      const read = new Set<number>();
      let [offset, reading, calls] = [0, { ...FIRST_READING, counted: feed.length as number | null }, 0];
      for (let isLast = false; !isLast; calls += 1) {
        const at = { offset, limit: 30, lead: 0, reading };
        const position = positionOf(at);
        feed = [...feed.slice(0, Math.max(0, position - rate)), ...feed.slice(Math.max(0, position))];
        const records = feed.slice(position, position + 30);
        isLast = records.length < 30;
        const step = takePage(at, {
          passed: records.length,
          isLast,
          counted: feed.length,
          fingerprint: null,
        });
        reading = step.reading as typeof reading;
        if (step.kind === 'retreat') isLast = false;
        else {
          for (const record of records) read.add(record);
          offset += records.length;
        }
      }
      expect(feed.filter((record) => !read.has(record))).toEqual([]);
      expect(calls).toBeLessThan(150);
    },
  );
});

describe('a feed that moves though it counts as many as before', () => {
  const reading = { ...FIRST_READING, counted: 100, last: 'z' };
  const place = { offset: 60, limit: 30, lead: 0, reading };
  const page = { passed: 30, isLast: false, counted: 100, fingerprint: 'a', last: 'y' };
  const moved = { ...page, hasGapBefore: true };

  test('goes back by a page and a little, and knows of one at least that has left', () => {
    const step = takePage(place, moved);
    expect(step).toMatchObject({ kind: 'retreat', by: 32, reading: { left: 1, last: 'z', counted: 100 } });
    expect(step).toMatchObject({ reason: 'the source has other records before position 60 than were read' });
    // And by another, where that was not enough.
    const again = takePage({ ...place, reading: step.reading }, moved);
    expect(again).toMatchObject({ kind: 'retreat', by: 28, reading: { goneBack: 60 } });
  });

  test('and counts fewer besides goes back by the larger of both', () => {
    expect(takePage(place, { ...moved, counted: 95 })).toMatchObject({ by: 40, reading: { left: 5 } });
    expect(takePage(place, { ...moved, counted: 60 })).toMatchObject({ by: 55, reading: { left: 40 } });
  });

  test('remembers what a page that is kept ended with', () => {
    expect(takePage(place, page)).toMatchObject({ kind: 'keep', reading: { last: 'y', lookback: 0 } });
    expect(lastOf(['a', 'b'])).toBe('b');
    for (const ids of [[], ['a', null], ['a', 'b', 'a']]) expect(lastOf(ids)).toBeNull();
  });
});

/** A list that changes before every page: what comes is put somewhere behind, or before, what goes. */
function readWhileItMoves(size: number, changes: readonly (readonly [number, number])[]) {
  const feed = Array.from({ length: size }, (_, index) => `r${index}`);
  const read = new Set<string>();
  let [offset, reading, isLast] = [0, { ...FIRST_READING, counted: size as number | null }, false];
  for (let calls = 0; !isLast; calls += 1) {
    const [from, to] = changes[calls] ?? [size, size];
    if (from < feed.length) {
      feed.splice(from, 1);
      feed.splice(to, 0, `new${calls}`);
    }
    const at = { offset, limit: 10, lead: 0, reading };
    const position = positionOf(at);
    const records = feed.slice(position, position + 10);
    isLast = records.length < 10;
    const before = feed[position - 1];
    const hasGapBefore = before !== undefined && before !== reading.last && !read.has(before);
    const page = { passed: records.length, isLast, counted: feed.length, fingerprint: null };
    const step = takePage(at, { ...page, last: lastOf(records), hasGapBefore });
    reading = step.reading as typeof reading;
    if (step.kind === 'retreat') {
      isLast = false;
      continue;
    }
    for (const record of records) read.add(record);
    offset += records.length;
  }
  return { feed, read };
}

test('one that goes and one that comes, wherever and between whichever pages, hide none that stays', () => {
  const place = fc.nat({ max: 60 });
  fc.assert(
    fc.property(fc.array(fc.tuple(place, place), { maxLength: 30 }), (changes) => {
      const { feed, read } = readWhileItMoves(60, changes);
      expect(feed.filter((id) => id.startsWith('r') && !read.has(id))).toEqual([]);
    }),
  );
});

describe('the end of a partition', () => {
  const end = { position: 100, duplicated: 0, listedTwice: 0, total: 100, planned: 100, isFixed: false };

  test.each([
    ['that gave everything', end, 0, 0],
    ['that gave more than was planned', { ...end, position: 130, total: 130 }, 0, 0],
    ['that counts nothing', { ...end, total: null, planned: null, duplicated: 50 }, 0, 0],
    ['that lacks a few', { ...end, duplicated: 10 }, 10, 10],
    ['that has listed some twice', { ...end, duplicated: 50, listedTwice: 50 }, 0, 0],
    ['that has listed some twice, and lacks a few', { ...end, duplicated: 50, listedTwice: 43 }, 7, 7],
    ['that lacks most of a few', { ...end, position: 5, duplicated: 4, total: 5, planned: 5 }, 4, 4],
    ['that grew before the reader', { ...end, position: 150, duplicated: 50, total: 150 }, 50, 0],
    ['that was not counted at first', { ...end, planned: null, duplicated: 5 }, 5, 5],
    [
      'that stays as it is, with records that are there twice',
      { ...end, duplicated: 50, isFixed: true },
      0,
      0,
    ],
  ])('%s is no fault', (_, ending, missing, lacking) => {
    expect(judgeEnd(ending)).toEqual({ missing, lacking, fault: null });
  });

  test.each([
    ['that lacks many', { ...end, duplicated: 11 }, 11, 'counts 100 records and gave 89'],
    ['that grew, and lacks many of the first', { ...end, duplicated: 20, total: 150 }, 70, 'counts 100'],
    ['that shrank, and lacks many of the rest', { ...end, position: 60, total: 80 }, 20, 'counts 80'],
    [
      'that was not counted at first, and lacks many',
      { ...end, planned: null, duplicated: 50 },
      50,
      'counts 100',
    ],
    ['that stays as it is, and is cut short', { ...end, position: 50, isFixed: true }, 50, 'gave 50'],
  ])('%s is one', (_, ending, missing, words) => {
    expect(judgeEnd(ending)).toMatchObject({ missing, fault: expect.stringContaining(words) });
  });
});
