// A feed's stock as it is now: the computed records, and what was changed by hand on top of them. Owns the
// changes; answers how many records a query finds and which of them stand at an offset. Records keep their
// order whatever changes, as in a feed that is sorted by the time of creation.

import { FIRST_CHANGE_MS, FeedRecords, stoneId, type FeedItem } from './records.js';

export interface StockQuery {
  /** Cents, both ends included. */
  readonly minPrice: number;
  readonly maxPrice: number;
  readonly sinceMs: number | null;
}

interface Change {
  readonly price: number;
  readonly removed: boolean;
  readonly atMs: number;
}

/** What changes by hand outlive the request that sees them; the computed records come with each request. */
export class StockChanges {
  readonly #changes = new Map<number, Change>();
  #added = 0;

  /** Numbers in order. */
  get indices(): readonly number[] {
    return [...this.#changes.keys()].sort((a, b) => a - b);
  }

  get(index: number): Change | undefined {
    return this.#changes.get(index);
  }

  setPrice(index: number, price: number, atMs: number): void {
    this.#changes.set(index, { price, removed: false, atMs });
  }

  remove(index: number, atMs: number): void {
    this.#changes.set(index, { price: 0, removed: true, atMs });
  }

  /** A record that was not there before, behind all others. */
  add(size: number, price: number, atMs: number): string {
    const index = size + this.#added;
    this.#added += 1;
    this.setPrice(index, price, atMs);
    return stoneId(index);
  }
}

export class Stock {
  readonly #records: FeedRecords;
  readonly #changes: StockChanges;
  readonly #nowMs: number;

  constructor(records: FeedRecords, changes: StockChanges, nowMs: number) {
    this.#records = records;
    this.#changes = changes;
    this.#nowMs = nowMs;
  }

  count(query: StockQuery): number {
    if (query.sinceMs !== null && query.sinceMs > FIRST_CHANGE_MS) return this.#scan(query).length;
    const { from, to, inside, outside } = this.#span(query);
    return to - from - inside.length + outside.length;
  }

  /** The numbers of up to `limit` records from `offset` on. */
  select(query: StockQuery, offset: number, limit: number): number[] {
    if (query.sinceMs !== null && query.sinceMs > FIRST_CHANGE_MS) {
      return this.#scan(query).slice(offset, offset + limit);
    }
    const { from, to, inside, outside } = this.#span(query);
    const before = outside.filter((index) => index < from);
    const behind = outside.filter((index) => index >= to);
    const gone = new Set(inside);
    const page = before.slice(offset, offset + limit);
    for (
      let index = skipTo(from, Math.max(0, offset - before.length), inside);
      index < to && page.length < limit;
      index += 1
    ) {
      if (!gone.has(index)) page.push(index);
    }
    const untouched = before.length + (to - from) - inside.length;
    const start = Math.max(0, offset - untouched);
    return [...page, ...behind.slice(start, start + limit - page.length)];
  }

  item(index: number): FeedItem {
    const item = this.#records.item(index, this.#nowMs);
    const change = this.#changes.get(index);
    if (!change) return item;
    return { ...item, price: change.price, updated_at: new Date(change.atMs).toISOString() };
  }

  // Computed records [from, to) lie in the price range; `inside` of it some do not any more, `outside` some do.
  #span(query: StockQuery): { from: number; to: number; inside: number[]; outside: number[] } {
    const from = this.#records.countBelow(query.minPrice);
    const to = Math.max(from, this.#records.countBelow(query.maxPrice + 1));
    const inside: number[] = [];
    const outside: number[] = [];
    for (const index of this.#changes.indices) {
      const isInside = index >= from && index < to;
      const matches = this.#matches(index, query);
      if (isInside && !matches) inside.push(index);
      if (!isInside && matches) outside.push(index);
    }
    return { from, to, inside, outside };
  }

  #scan(query: StockQuery): number[] {
    const changed = this.#changes.indices;
    if (!this.#records.mayHaveChangedSince(query.sinceMs!)) {
      return changed.filter((index) => this.#matches(index, query));
    }
    const all = Array.from({ length: this.#records.size }, (_, index) => index);
    const added = changed.filter((index) => index >= this.#records.size);
    return [...all, ...added].filter((index) => this.#matches(index, query));
  }

  #matches(index: number, { minPrice, maxPrice, sinceMs }: StockQuery): boolean {
    const change = this.#changes.get(index);
    if (change?.removed) return false;
    const price = change?.price ?? this.#records.priceAt(index);
    if (price < minPrice || price > maxPrice) return false;
    return sinceMs === null || (change?.atMs ?? this.#records.changedAtMs(index, this.#nowMs)) >= sinceMs;
  }
}

/** The number of the record that stands `offset` behind `from` when those in `gone` (in order) do not count. */
function skipTo(from: number, offset: number, gone: readonly number[]): number {
  let index = from + offset;
  for (const each of gone) {
    if (each > index) break;
    index += 1;
  }
  return index;
}
