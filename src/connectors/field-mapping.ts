// From a record of any shape to an item of the catalog, by the paths that a source's config names. Pure.

import { z } from 'zod';
import { fromDecimal, isCurrency, isUnitAmount } from '../domain/money.js';
import type { MappedItem } from './source.js';

const PATH = z.string().regex(/^[^.]+(\.[^.]+)*$/, 'must be a path like price or offer.price');

export const MAPPING_SETTINGS = z.strictObject({
  fields: z
    .strictObject({
      id: PATH.default('id'),
      title: PATH.default('title'),
      price: PATH.default('price'),
      /** The supplier's own price where it is another than the one to sell at. */
      cost: PATH.exactOptional(),
      currency: PATH.default('currency'),
      /** Without it, an incremental run reads everything. */
      updatedAt: PATH.exactOptional(),
    })
    .prefault({}),
  /** For records that name none. */
  defaultCurrency: z.string().refine(isCurrency, 'is no currency').exactOptional(),
  /** 19.99 is major, 1999 is minor. */
  priceUnit: z.enum(['major', 'minor']).default('major'),
});

type MappingSettings = z.infer<typeof MAPPING_SETTINGS>;

export class FieldMapping {
  readonly #settings: MappingSettings;
  readonly #mapped: ReadonlySet<string>;

  constructor({ fields, priceUnit, ...rest }: MappingSettings) {
    this.#settings = { fields, priceUnit, ...rest };
    this.#mapped = new Set(Object.values(fields).filter((path) => path !== undefined));
  }

  idOf(record: unknown): unknown {
    return readPath(record, this.#settings.fields.id);
  }

  /** A record that does not tell for certain when it changed may have changed. */
  mayHaveChangedSince(record: unknown, since: Date | null): boolean {
    const path = this.#settings.fields.updatedAt;
    const stamp = since === null || path === undefined ? null : readStamp(readPath(record, path));
    // What a stamp leaves out may have been any time of its second, or minute.
    return stamp === null || stamp.ms > since!.getTime() - stamp.lengthMs;
  }

  map(record: unknown): MappedItem | { readonly reason: string } {
    const { fields, defaultCurrency } = this.#settings;
    const currency = readPath(record, fields.currency) ?? defaultCurrency;
    if (!isCurrency(currency)) return { reason: `${fields.currency}: ${show(currency)} is no currency` };
    const unitAmount = this.#amountAt(record, fields.price, currency);
    if (typeof unitAmount !== 'number') return unitAmount;
    const costAmount = fields.cost === undefined ? unitAmount : this.#amountAt(record, fields.cost, currency);
    if (typeof costAmount !== 'number') return costAmount;
    const title = readPath(record, fields.title);
    if (typeof title !== 'string' || title.trim() === '') return { reason: `${fields.title}: there is none` };
    return { title, unitAmount, costAmount, currency, attributes: this.#attributesOf(record) };
  }

  #amountAt(record: unknown, path: string, currency: string): number | { readonly reason: string } {
    const value = readPath(record, path);
    const amount = this.#settings.priceUnit === 'minor' ? readMinor(value) : readMajor(value, currency);
    return amount ?? { reason: `${path}: ${show(value)} is no amount of ${currency}` };
  }

  #attributesOf(record: unknown): Record<string, unknown> {
    return Object.fromEntries(
      Object.entries(record as object).filter(([name, value]) => !this.#mapped.has(name) && value !== null),
    );
  }
}

export function readPath(record: unknown, path: string): unknown {
  let value = record;
  for (const name of path.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

// ISO 8601 with its time and zone: what stands without them, or in another order, is not the same time to everybody.
const STAMP = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(\.\d+)?(Z|[+-]\d\d)(?::?(\d\d))?$/;

/** When it began, and how long it may have been. */
function readStamp(value: unknown): { readonly ms: number; readonly lengthMs: number } | null {
  const parts = typeof value === 'string' ? STAMP.exec(value) : null;
  if (!parts) return null;
  const [, date, minute, second = '', fraction = '', hours, minutes = '00'] = parts;
  const zone = hours === 'Z' ? hours : `${hours}:${minutes}`;
  const ms = Date.parse(`${date}T${minute}${second}${fraction}${zone}`);
  const lengthMs = second === '' ? 60_000 : Math.max(1, 10 ** (4 - (fraction.length || 1)));
  return Number.isNaN(ms) ? null : { ms, lengthMs };
}

function readMinor(value: unknown): number | null {
  const amount = typeof value === 'string' && /^\d{1,16}$/.test(value) ? Number(value) : value;
  return isUnitAmount(amount) ? amount : null;
}

function readMajor(value: unknown, currency: string): number | null {
  if (typeof value !== 'string' && typeof value !== 'number') return null;
  return fromDecimal(String(value).trim(), currency);
}

function show(value: unknown): string {
  return value === undefined ? 'nothing' : JSON.stringify(value).slice(0, 40);
}
