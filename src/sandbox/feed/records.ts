// The feed's records, computed from their number: a feed of any size costs no memory, and the same number
// is the same record in every process. Prices grow with the number, so a price range is a range of numbers.

export interface FeedItem {
  readonly id: string;
  /** Cents. */
  readonly price: number;
  readonly currency: string;
  readonly discount: number;
  readonly updated_at: string;
  readonly diamond: {
    readonly id: string;
    readonly image: string;
    readonly video: string;
    readonly availability: string;
    readonly certificate: Readonly<Record<string, string | number>>;
  };
}

/** When records were last changed that never were since. */
export const FIRST_CHANGE_MS = Date.UTC(2026, 0, 1);

const LOWEST_PRICE = 15_000;
const PRICE_SPREAD = 400;

const SHAPES = ['ROUND', 'OVAL', 'PRINCESS', 'EMERALD', 'PEAR', 'CUSHION', 'MARQUISE', 'RADIANT'];
const COLORS = ['D', 'E', 'F', 'G', 'H', 'I', 'J', 'K'];
const CLARITIES = ['FL', 'IF', 'VVS1', 'VVS2', 'VS1', 'VS2', 'SI1', 'SI2'];
const LABS = ['GIA', 'IGI', 'HRD', 'GCAL'];
const GRADES = ['EX', 'VG', 'G', 'F'];

export class FeedRecords {
  readonly size: number;
  /** Every record changes once in this time, each at its own moment of it; null: never. */
  readonly #periodMs: number | null;

  constructor(size: number, periodMs: number | null = null) {
    this.size = size;
    this.#periodMs = periodMs;
  }

  /** The lower a price, the more stones have it, as in a real stock. */
  priceAt(index: number): number {
    return Math.floor(LOWEST_PRICE * PRICE_SPREAD ** ((index / this.size) ** 2));
  }

  /** How many records are cheaper than `price`; also the number of the first that is not. */
  countBelow(price: number): number {
    let low = 0;
    let high = this.size;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      if (this.priceAt(middle) < price) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  changedAtMs(index: number, nowMs: number): number {
    if (this.#periodMs === null) return FIRST_CHANGE_MS;
    const phase = FIRST_CHANGE_MS + (scramble(index) % this.#periodMs);
    return phase + Math.max(0, Math.floor((nowMs - phase) / this.#periodMs)) * this.#periodMs;
  }

  /** False when no record can have changed since then: nothing need be looked at. */
  mayHaveChangedSince(sinceMs: number): boolean {
    return this.#periodMs !== null || sinceMs <= FIRST_CHANGE_MS;
  }

  item(index: number, nowMs: number): FeedItem {
    const dice = scramble(index);
    const changedAtMs = this.changedAtMs(index, nowMs);
    return {
      id: `offer-${stoneId(index)}`,
      price: this.priceAt(index),
      currency: 'USD',
      discount: -(scramble(dice ^ (changedAtMs / 1000)) % 400) / 10,
      updated_at: new Date(changedAtMs).toISOString(),
      diamond: {
        id: stoneId(index),
        image: `https://img.example.com/stones/${stoneId(index)}/still.jpg`,
        video: `https://img.example.com/stones/${stoneId(index)}/500/500`,
        availability: 'AVAILABLE',
        certificate: certificate(index, dice),
      },
    };
  }
}

/** Looks random, and no two numbers share one. */
export function stoneId(index: number): string {
  return `stone-${scramble(index).toString(16).padStart(8, '0')}`;
}

function certificate(index: number, dice: number): Readonly<Record<string, string | number>> {
  const pick = (list: readonly string[], shift: number): string => list[(dice >>> shift) % list.length]!;
  return {
    id: `cert-${index}`,
    lab: pick(LABS, 3),
    shape: pick(SHAPES, 5),
    certNumber: String(2_000_000_000 + index),
    cut: pick(GRADES, 8),
    carats: 0.3 + ((dice >>> 4) % 470) / 100,
    color: pick(COLORS, 11),
    clarity: pick(CLARITIES, 14),
    polish: pick(GRADES, 17),
    symmetry: pick(GRADES, 19),
  };
}

// Each step can be undone, so that different numbers stay different.
function scramble(index: number): number {
  let x = (index ^ 0x9e3779b9) >>> 0;
  x = Math.imul(x ^ (x >>> 16), 0x45d9f3b) >>> 0;
  x = Math.imul(x ^ (x >>> 16), 0x45d9f3b) >>> 0;
  return (x ^ (x >>> 16)) >>> 0;
}
