// The heatmap: how a feed that can count by price is cut into ranges of about equal size. Splits where it
// is dense until every piece is small, then joins neighbours up to the size wanted. Knows no technology:
// counting is the caller's.

/** Minor units, both ends included; no upper end: whatever is dearer. */
export interface PriceRange {
  readonly min: number;
  readonly max: number | null;
}

export interface CountedRange extends PriceRange {
  readonly count: number;
}

export interface HeatmapRequest {
  readonly count: (range: PriceRange) => Promise<number>;
  /** The most ranges that are wanted. */
  readonly partitions: number;
  /** A range is not worth having with fewer records. */
  readonly smallest: number;
}

/** Where the search for the dearest record begins; anything above it lies in the last piece. */
const PRICE_CEILING = 10 ** 12;

/** Leaves of half the size wanted end a quarter of it from where a range should, at most. */
const LEAF_SHARE = 0.5;

/** A cut that is so near was the one before. */
const CUT_SLACK = 0.5;

/** Ranges without a gap or an overlap over all prices; none when there are no records. */
export async function planRanges({ count, partitions, smallest }: HeatmapRequest): Promise<CountedRange[]> {
  const all = { min: 0, max: null };
  const total = await count(all);
  if (total === 0) return [];
  const wanted = Math.max(1, Math.min(partitions, Math.floor(total / smallest)));
  const size = total / wanted;
  const leaves = await splitDense({ ...all, count: total }, size * LEAF_SHARE, count, wanted * 8 + 40);
  return joinSmallest(joinNeighbours(leaves, size), wanted);
}

async function splitDense(
  whole: CountedRange,
  most: number,
  count: HeatmapRequest['count'],
  calls: number,
): Promise<CountedRange[]> {
  const done: CountedRange[] = [];
  const open = [whole];
  for (let left = calls; ;) {
    const range = open.pop();
    if (!range) break;
    const middle = range.count > most && left > 0 ? middleOf(range) : null;
    if (middle === null) {
      done.push(range);
      continue;
    }
    left -= 1;
    const lower = await count({ min: range.min, max: middle });
    // The feed may have changed between the two counts: what is left is at least nothing.
    open.push({ min: middle + 1, max: range.max, count: Math.max(0, range.count - lower) });
    open.push({ min: range.min, max: middle, count: lower });
  }
  return done.sort((a, b) => a.min - b.min);
}

// Prices crowd at the low end: far apart, the middle is where as many powers lie on either side.
function middleOf({ min, max }: PriceRange): number | null {
  const upper = max ?? PRICE_CEILING;
  if (upper <= min) return null;
  const isWide = upper > 4 * Math.max(1, min);
  const middle = isWide ? Math.sqrt(Math.max(1, min) * upper) : (min + upper) / 2;
  return Math.min(upper - 1, Math.max(min, Math.floor(middle)));
}

/** The neighbours that have least together become one, until there are no more than `most`. */
function joinSmallest(ranges: CountedRange[], most: number): CountedRange[] {
  while (ranges.length > most) {
    const sums = ranges.slice(1).map((range, index) => range.count + ranges[index]!.count);
    const at = sums.indexOf(Math.min(...sums));
    const [lower, upper] = [ranges[at]!, ranges[at + 1]!];
    ranges.splice(at, 2, { min: lower.min, max: upper.max, count: lower.count + upper.count });
  }
  return ranges;
}

/** Cut where the feed's parts of equal size would end, or as near to it as a leaf ends. */
function joinNeighbours(leaves: readonly CountedRange[], size: number): CountedRange[] {
  const ranges: CountedRange[] = [];
  let current: CountedRange | null = null;
  let passed = 0;
  let cut = size;
  for (const [index, leaf] of leaves.entries()) {
    current = current ? { min: current.min, max: leaf.max, count: current.count + leaf.count } : leaf;
    passed += leaf.count;
    const next = leaves[index + 1];
    if (!next || current.count === 0 || Math.abs(passed - cut) > Math.abs(passed + next.count - cut))
      continue;
    ranges.push(current);
    current = null;
    // Where one price has more than a part, cuts fall together.
    cut = size * (Math.floor(passed / size + CUT_SLACK) + 1);
  }
  if (!current) return ranges;
  const last = ranges.at(-1);
  if (!last || current.count > 0) return [...ranges, current];
  // An empty rest belongs to the range before it.
  return [...ranges.slice(0, -1), { min: last.min, max: current.max, count: last.count }];
}
