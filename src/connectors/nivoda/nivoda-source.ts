// A diamond supplier's GraphQL as a source: the Source port over counts and pages by price range and time of
// change. Owns how ranges are planned and what a page's end looks like. Used by the runner, one instance
// per source.

import { z } from 'zod';
import { planRanges, type PriceRange } from '../heatmap.js';
import { fingerprintOf, readRecord } from '../record.js';
import { outcomeOf, permanent, planBeganAt, tryAgain } from '../source-call.js';
import type { MappedItem, Page, PageRequest, Plan, Source, SourceFailure } from '../source.js';
import type { SourcePolicy } from '../source-policy.js';
import type { NivodaSettings } from './config.js';
import { NivodaClient } from './nivoda-client.js';
import { COUNT, COUNTED, PAGE, PAGED, toQuery } from './operations.js';
import { stoneIdOf, toItem } from './stone.js';

const RANGE = z.object({ minPrice: z.number(), maxPrice: z.number().nullable() });

export class NivodaSource implements Source {
  readonly #client: NivodaClient;
  readonly #policy: SourcePolicy;

  constructor(settings: NivodaSettings, policy: SourcePolicy) {
    this.#client = new NivodaClient(settings);
    this.#policy = policy;
  }

  plan(since: Date | null, signal: AbortSignal): Promise<Plan | SourceFailure> {
    return outcomeOf(signal, async () => {
      const sentMs = Date.now();
      let dateMs: number | null | undefined;
      const count = async (range: PriceRange): Promise<number> => {
        const query = toQuery(range, since);
        const answer = await tryAgain(this.#policy.retry, signal, () =>
          this.#client.call(COUNT, { query }, COUNTED, signal),
        );
        dateMs ??= answer.dateMs;
        return answer.data.as.diamonds_by_query_count;
      };
      const { partitions, pageSize } = this.#policy;
      const ranges = await planRanges({ count, partitions, smallest: 2 * pageSize });
      return {
        kind: 'planned',
        beganAt: planBeganAt(sentMs, dateMs ?? null),
        ranges: ranges.map(({ min, max, count: totalRecords }) => ({
          range: { minPrice: min, maxPrice: max },
          totalRecords,
        })),
      };
    });
  }

  fetchPage(
    { range, offset, limit, since }: PageRequest,
    signal: AbortSignal,
  ): Promise<Page | SourceFailure> {
    return outcomeOf(signal, async () => {
      const query = toQuery(toPriceRange(range), since);
      const place = { query, offset, limit, before: Math.max(0, offset - 1), hasBefore: offset > 0 };
      const { data } = await this.#client.call(PAGE, place, PAGED, signal);
      const { items } = data.as.diamonds_by_query;
      if (items.length > limit) throw permanent(`the source gave ${items.length} records for ${limit}`);
      const records = items.map((item) => readRecord(item, stoneIdOf(item)));
      const count = data.as.diamonds_by_query_count;
      return {
        kind: 'page',
        records,
        passed: items.length,
        cursor: null,
        isLast: items.length < limit,
        totalRecords: count,
        counted: count,
        fingerprint: fingerprintOf(records),
        before: idBefore(data.as.before?.items ?? []),
      };
    });
  }

  mapRecord(payload: unknown): MappedItem | { readonly reason: string } {
    return toItem(payload);
  }

  close(): void {}
}

function idBefore(items: readonly unknown[]): string | null {
  const [item] = items;
  return items.length === 1 ? readRecord(item, stoneIdOf(item)).externalId : null;
}

function toPriceRange(range: unknown): PriceRange {
  const parsed = RANGE.safeParse(range);
  if (!parsed.success) throw permanent('the range is none of this source: its kind was changed');
  return { min: parsed.data.minPrice, max: parsed.data.maxPrice };
}
