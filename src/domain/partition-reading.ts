// How a partition is read: pages by offset through a feed that changes meanwhile, and may be no good. Pure; the
// state between two pages is kept with the partition.

import { isStorable } from './text.js';

/** What is known between two pages. Positions are offsets in the range, in the feed's numbering as it was then. */
export interface Reading {
  /** Over so many positions it went back, for whatever reason; the offset less this is the position. */
  readonly goneBack: number;
  /** Everything before this position was read. */
  readonly readTo: number;
  /** What comes twice before this position was to be expected. */
  readonly rereadTo: number;
  /** So far behind what was read the next page begins, in a feed that has shrunk before. */
  readonly lookback: number;
  /** What the source counted with the page before; null before the first, and when it counts nothing. */
  readonly counted: number | null;
  /** So many records went away from what is counted while it was read. */
  readonly left: number;
  /** So many came twice because their source lists them more than once. */
  readonly listedTwice: number;
  /** Of the page before; null when any page may follow. */
  readonly fingerprint: string | null;
  /** The id of the last record of the page before, which the next one should stand right behind; null: unknown. */
  readonly last: string | null;
}

export const FIRST_READING: Reading = {
  goneBack: 0,
  readTo: 0,
  rereadTo: 0,
  lookback: 0,
  counted: null,
  left: 0,
  listedTwice: 0,
  fingerprint: null,
  last: null,
};

/** Where a page stands that was asked for. */
export interface PagePlace {
  /** Records that the pages before went past. */
  readonly offset: number;
  readonly limit: number;
  /** The furthest that a position can be below 0. */
  readonly lead: number;
  readonly reading: Reading;
}

export interface CountedPage {
  readonly passed: number;
  readonly isLast: boolean;
  readonly counted: number | null;
  readonly fingerprint: string | null;
  readonly last?: string | null;
  /** The record right before it was never read: records went away before it, however many there are now. */
  readonly hasGapBefore?: boolean;
}

export type PageStep =
  | { readonly kind: 'keep'; readonly reading: Reading; readonly expectedTwice: number }
  | { readonly kind: 'retreat'; readonly reading: Reading; readonly by: number; readonly reason: string };

export function positionOf({ offset, reading }: Pick<PagePlace, 'offset' | 'reading'>): number {
  return offset - reading.goneBack;
}

/**
 * What becomes of a page. When the source counts fewer records than before, others may have moved from behind what
 * was read to before it: a page is kept only if it begins before any of them. Else it is asked for again from further
 * back, and the next ones look back as well, so that a feed which shrinks all the time is still read to its end. A gap
 * before the page does not say how many have moved: it goes back by a page, and if need be by another.
 */
export function takePage(place: PagePlace, page: CountedPage): PageStep {
  const { limit, lead, reading } = place;
  const { last = null, hasGapBefore = false } = page;
  const position = positionOf(place);
  const readTo = Math.max(reading.readTo, position);
  const rereadTo = Math.max(reading.rereadTo, position);
  const isFewer = (page.counted ?? Infinity) < (reading.counted ?? 0);
  const fewest = hasGapBefore ? 1 : 0;
  const drop = Math.max(fewest, (reading.counted ?? 0) - (page.counted ?? Infinity));
  const sureTo = Math.max(-lead, Math.min(readTo - drop, hasGapBefore ? position - limit : Infinity));
  const { listedTwice } = reading;
  const counts = { counted: page.counted ?? reading.counted, left: reading.left + drop, listedTwice };
  if (position > sureTo) {
    const lookback = Math.min(Math.floor(limit / 2), 2 * Math.max(reading.lookback, drop));
    const by = position - Math.max(-lead, sureTo - lookback);
    const goneBack = reading.goneBack + by;
    // The page before may well come again.
    return {
      kind: 'retreat',
      by,
      reason: isFewer
        ? `the source counts only ${counts.counted} records any more`
        : `the source has other records before position ${position} than were read`,
      reading: {
        goneBack,
        readTo: sureTo,
        rereadTo,
        lookback,
        ...counts,
        fingerprint: null,
        last: reading.last,
      },
    };
  }
  const end = position + page.passed;
  const back = page.isLast ? 0 : Math.min(reading.lookback, Math.floor(page.passed / 2));
  return {
    kind: 'keep',
    expectedTwice: Math.max(0, Math.min(rereadTo - position, page.passed)),
    reading: {
      goneBack: reading.goneBack + back,
      readTo: Math.max(sureTo, end),
      rereadTo: Math.max(rereadTo, end),
      lookback: reading.lookback,
      ...counts,
      fingerprint: page.fingerprint,
      last,
    },
  };
}

/** What a page that has these ids ends with; null when that may be where another one stands, or cannot be known. */
export function lastOf(ids: readonly (string | null)[]): string | null {
  const last = ids.at(-1) ?? null;
  return ids.indexOf(last) === ids.length - 1 ? last : null;
}

/** What is known of a partition between two of its pages. */
export interface PartitionReading {
  /** The position in its range that it has come to; below 0 when it went back into what lies before. */
  readonly position: number;
  /** Records that the run had before, and that were not to be expected again. */
  readonly duplicated: number;
  /** As counted by the source; null when it does not count. */
  readonly total: number | null;
  readonly limit: number;
  /** The furthest that the position can be below 0. */
  readonly lead: number;
  readonly reading: Pick<Reading, 'goneBack'>;
}

const TOLERATED_PAGES = 10;

/** More than any feed has: where nobody counts, reading ends here. */
export const MAX_UNCOUNTED = 10_000_000;

/** Why reading on would never end; null while there is no sign of it. */
export function findEndlessness(partition: PartitionReading): string | null {
  const { position, duplicated, total, limit, lead, reading } = partition;
  const { goneBack } = reading;
  const tolerated = TOLERATED_PAGES * limit;
  if (duplicated > tolerated && duplicated > position - duplicated) {
    return `the source repeats itself: ${duplicated} of the ${position} records it gave had been read before`;
  }
  if (total === null && position >= MAX_UNCOUNTED) {
    return `the source does not end: it counts nothing and has given ${position} records`;
  }
  if (total !== null && position > 2 * total + tolerated) {
    return `the source does not end: it counted ${total} records and has given ${position}`;
  }
  if (goneBack > 2 * Math.max(position, total ?? 0) + lead + tolerated) {
    return `the source changes faster than it can be read: ${goneBack} records were gone back over`;
  }
  return null;
}

/** What a page is known by. */
export interface PageReading {
  readonly passed: number;
  readonly isLast: boolean;
  readonly cursor: string | null;
  readonly counted: number | null;
  readonly fingerprint: string | null;
}

/** Why a page cannot be kept, whatever is on it; null when it can. `former` is what is known of the one before. */
export function findPageFault(
  page: PageReading,
  former: Pick<Reading, 'fingerprint' | 'counted'>,
): string | null {
  if (page.passed === 0 && !page.isLast)
    return 'the source gave an empty page and says that it is not the last';
  // As many new records before it, and a page moves to where the next one was.
  const mayHaveMoved = page.counted !== null && page.counted - (former.counted ?? Infinity) >= page.passed;
  if (
    page.passed > 0 &&
    page.fingerprint !== null &&
    page.fingerprint === former.fingerprint &&
    !mayHaveMoved
  ) {
    return 'the source repeats itself: the page is the same as the one before';
  }
  if (page.cursor !== null && (page.cursor.length > MAX_CURSOR_LENGTH || !isStorable(page.cursor))) {
    return `the source gave a cursor that cannot be kept: ${JSON.stringify(page.cursor.slice(0, 40))}`;
  }
  return null;
}

const MAX_CURSOR_LENGTH = 4_096;

/** So many records, or this share of them, may be missing at the end of a partition. */
const TOLERATED_MISSING = { records: 10, share: 0.01 };

/** How its source counts a range that has come to its end. */
export interface RangeCount {
  /** By now; null when it does not count. */
  readonly total: number | null;
  /** When the run was planned. */
  readonly planned: number | null;
  /** Its records stay where they are, as those of a file: one that comes twice is there twice, and hides none. */
  readonly isFixed: boolean;
}

export interface PartitionEnd {
  /** Records that the source counted and did not give. */
  readonly missing: number;
  /** Of those, the ones that it counted at first: the watermark would pass over them. */
  readonly lacking: number;
  /** Why those are too many; null when they are not. */
  readonly fault: string | null;
}

/**
 * What a partition has come to when its source says that there are no more records. A feed that changes while
 * it is read lacks some: a record that moves into the range shifts the others, so that one comes twice and one
 * not at all; it changed since the plan, and the next run will see it. However many those are, they fail nothing.
 */
export function judgeEnd({
  position,
  duplicated,
  listedTwice,
  total,
  planned,
  isFixed,
}: Pick<PartitionReading, 'position' | 'duplicated'> &
  Pick<Reading, 'listedTwice'> &
  RangeCount): PartitionEnd {
  // What is listed twice is counted twice, and hides nothing.
  const given = Math.max(0, isFixed ? position : position - duplicated + listedTwice);
  const missing = Math.max(0, (total ?? 0) - given);
  const expected = Math.min(total ?? 0, planned ?? Infinity);
  const lacking = Math.max(0, expected - given);
  const tolerated = Math.max(TOLERATED_MISSING.records, Math.floor(expected * TOLERATED_MISSING.share));
  const fault =
    lacking <= tolerated ? null : `the source counts ${expected} records and gave ${given} different ones`;
  return { missing, lacking, fault };
}
