// The faults that a feed's address may ask for: `?faults=down:2@120,skip:7`. Owns their names and what each
// does to a page; when a fault strikes only for so many times, the counting is the sandbox state's.

import type { FeedItem } from './records.js';

/** Strike before the page is made. */
const CALL_FAULTS = ['down', 'throttle', 'deny', 'hang', 'garble'] as const;
/** Change what is on it. */
const PAGE_FAULTS = [
  'repeat',
  'skip',
  'reorder',
  'duplicate',
  'shift',
  'garbage',
  'currency',
  'endless',
  'grow',
] as const;

export type CallFault = (typeof CALL_FAULTS)[number];
export type PageFault = (typeof PAGE_FAULTS)[number];

export interface Fault {
  readonly name: CallFault | PageFault;
  /** How often, or every how many records; each fault has a number of its own when none is given. */
  readonly count: number | null;
  /** Only pages with this record; null: all of them. */
  readonly at: number | null;
}

const PATTERN = /^([a-z]+)(?::(\d{1,6}))?(?:@(\d{1,9}))?$/;

/** Null when the text names a fault that there is not. */
export function parseFaults(text: string): Fault[] | null {
  if (text === '') return [];
  const faults = text.split(',').map(parseFault);
  return faults.every((fault) => fault !== null) ? faults : null;
}

function parseFault(text: string): Fault | null {
  const match = PATTERN.exec(text);
  const name = [...CALL_FAULTS, ...PAGE_FAULTS].find((known) => known === match?.[1]);
  if (!match || !name) return null;
  const number = (digits: string | undefined): number | null =>
    digits === undefined ? null : Number(digits);
  return { name, count: number(match[2]), at: number(match[3]) };
}

export function isCallFault(fault: Fault): fault is Fault & { readonly name: CallFault } {
  return (CALL_FAULTS as readonly string[]).includes(fault.name);
}

/** Where a page of `limit` records really begins, when the source does not keep to what it was asked. */
export function misplace(
  faults: readonly Fault[],
  { offset, limit, total, request }: PagePlace & { readonly total: number },
): number {
  const names = new Set(faults.map(({ name }) => name));
  if (names.has('repeat') && offset > 0) return Math.max(0, offset - limit);
  if (names.has('reorder') && total > 0) return (offset + request * 7) % total;
  if (names.has('endless') && offset + limit > total) return Math.max(0, total - limit);
  return offset;
}

export interface PagePlace {
  readonly offset: number;
  readonly limit: number;
  /** Another one with every request. */
  readonly request: number;
}

/** What reaches the client in place of the page's items. */
export function spoil(faults: readonly Fault[], items: readonly FeedItem[], offset: number): unknown[] {
  return faults.reduce<unknown[]>((page, fault) => spoilBy(fault, page, offset), [...items]);
}

function spoilBy({ name, count }: Fault, page: unknown[], offset: number): unknown[] {
  const every = count ?? 10;
  const strikes = (index: number): boolean => (offset + index) % every === every - 1;
  switch (name) {
    case 'skip':
      return page.filter((_, index) => !strikes(index));
    case 'duplicate':
      return page.length > 1 ? [...page.slice(0, -1), page[0]] : page;
    case 'garbage':
      return page.map((item, index) =>
        strikes(index) ? garbageFor(item as FeedItem, offset + index) : item,
      );
    case 'currency':
      return page.map((item, index) => (strikes(index) ? { ...(item as FeedItem), currency: 'XYZ' } : item));
    default:
      return page;
  }
}

function garbageFor(item: FeedItem, position: number): unknown {
  return GARBAGE[Math.floor(position / 10) % GARBAGE.length]!(item);
}

const GARBAGE: readonly ((item: FeedItem) => unknown)[] = [
  () => null,
  (item) => ({ ...item, diamond: { ...item.diamond, id: null } }),
  (item) => ({ ...item, price: -1 }),
  (item) => ({ ...item, price: 0.5 }),
  (item) => ({ ...item, diamond: { ...item.diamond, image: 'a\u0000b' } }),
  (item) => ({ ...item, diamond: { ...item.diamond, image: 'a\ud800b' } }),
  (item) => ({ ...item, diamond: null }),
];
