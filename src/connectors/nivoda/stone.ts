// A stone of the supplier as an item of the catalog. Pure.

import { isCurrency, isUnitAmount } from '../../domain/money.js';
import { z } from 'zod';
import type { MappedItem } from '../source.js';

const TEXT = z.string().nullish();

const STONE = z.object({
  id: z.union([z.string(), z.number()]).nullish(),
  /** Minor units. */
  price: z.number(),
  currency: z.string().default('USD'),
  discount: z.number().nullish(),
  diamond: z.object({
    image: TEXT,
    video: TEXT,
    availability: TEXT,
    certificate: z
      .object({
        lab: TEXT,
        shape: TEXT,
        certNumber: TEXT,
        cut: TEXT,
        carats: z.number().nullish(),
        color: TEXT,
        clarity: TEXT,
        polish: TEXT,
        symmetry: TEXT,
      })
      .nullish(),
  }),
});

/** The stone's id stays the same when it is offered anew; the offer's does not. */
export function stoneIdOf(record: unknown): unknown {
  return (record as { diamond?: { id?: unknown } | null } | null)?.diamond?.id;
}

export function toItem(payload: unknown): MappedItem | { readonly reason: string } {
  const parsed = STONE.safeParse(payload);
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!;
    return { reason: `${path.join('.') || 'record'}: ${message}` };
  }
  const { id: offerId, price, currency, discount, diamond } = parsed.data;
  if (!isCurrency(currency)) return { reason: `currency: ${currency} is no currency` };
  if (!isUnitAmount(price)) return { reason: `price: ${price} is no amount of ${currency} in minor units` };
  const { certificate, ...stone } = diamond;
  return {
    title: titleOf(certificate ?? {}),
    unitAmount: price,
    costAmount: price,
    currency,
    attributes: withoutNulls({ offerId, discount, ...stone, ...certificate }),
  };
}

type Certificate = Partial<NonNullable<z.infer<typeof STONE>['diamond']['certificate']>>;

/** 1.52 ct ROUND, G VS1, GIA 2141438171 */
function titleOf({ carats, shape, color, clarity, lab, certNumber }: Certificate): string {
  const groups = [
    [carats ? `${Number(carats.toFixed(2))} ct` : null, shape],
    [color, clarity],
    [lab, certNumber],
  ];
  const parts = groups.map((group) => group.filter((part) => part).join(' ')).filter((part) => part !== '');
  return parts.join(', ') || 'Stone';
}

function withoutNulls(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== null && value !== undefined),
  );
}
