import { describe, expect, test } from 'vitest';
import { FieldMapping, MAPPING_SETTINGS } from '../../src/connectors/field-mapping.js';

function mapping(settings: unknown = {}): FieldMapping {
  return new FieldMapping(MAPPING_SETTINGS.parse(settings));
}

test('maps by paths; the rest are attributes', () => {
  const fields = {
    id: 'sku',
    title: 'names.en',
    price: 'offer.price',
    cost: 'cost',
    currency: 'offer.currency',
  };
  const record = {
    sku: 'a',
    names: { en: 'Ring' },
    offer: { price: '19.99', currency: 'EUR' },
    cost: 12,
    color: 'red',
  };
  expect(mapping({ fields }).map(record)).toEqual({
    title: 'Ring',
    unitAmount: 1999,
    costAmount: 1200,
    currency: 'EUR',
    attributes: { names: { en: 'Ring' }, offer: { price: '19.99', currency: 'EUR' }, color: 'red' },
  });
});

test.each([
  ['JPY', '1500', 1500],
  ['KWD', '1.234', 1234],
  ['USD', 19.9, 1990],
])('%s %s is %i minor units', (currency, price, unitAmount) => {
  expect(mapping().map({ title: 'x', price, currency })).toMatchObject({
    unitAmount,
    costAmount: unitAmount,
  });
});

test('minor units and a default currency', () => {
  const settings = { priceUnit: 'minor', defaultCurrency: 'USD' };
  expect(mapping(settings).map({ title: 'x', price: '1500' })).toMatchObject({
    unitAmount: 1500,
    currency: 'USD',
  });
});

test.each([
  [{ title: 'x', price: 1, currency: 'XYZ' }, 'currency: "XYZ" is no currency'],
  [{ title: 'x', price: 1 }, 'currency: nothing is no currency'],
  [{ title: 'x', price: -1, currency: 'EUR' }, 'price: -1 is no amount of EUR'],
  [{ title: 'x', price: '1.999', currency: 'EUR' }, 'price: "1.999" is no amount of EUR'],
  [{ title: 'x', price: 'free', currency: 'EUR' }, 'price: "free" is no amount of EUR'],
  [{ title: 'x', currency: 'EUR' }, 'price: nothing is no amount of EUR'],
  [{ price: 1, currency: 'EUR' }, 'title: there is none'],
])('%j is refused: %s', (record, reason) => {
  expect(mapping().map(record)).toEqual({ reason });
});

test('what changed is told by its own time, and what tells none may have', () => {
  const at = mapping({ fields: { updatedAt: 'at' } });
  const since = new Date('2026-05-01T00:00:00Z');
  expect(at.mayHaveChangedSince({ at: '2026-05-01T00:00:00Z' }, since)).toBe(true);
  expect(at.mayHaveChangedSince({ at: '2026-04-30T23:59:59Z' }, since)).toBe(false);
  expect(at.mayHaveChangedSince({ at: 'yesterday' }, since)).toBe(true);
  expect(at.mayHaveChangedSince({}, null)).toBe(true);
  expect(mapping().mayHaveChangedSince({ at: '2020-01-01' }, since)).toBe(true);
});

describe('whether a record changed since 10:20:30.450', () => {
  const since = new Date('2026-06-01T10:20:30.450Z');
  const mayHave = (at: unknown): boolean =>
    mapping({ fields: { updatedAt: 'at' } }).mayHaveChangedSince({ at }, since);

  test.each([
    '2026-06-01T10:20:30.450Z',
    '2026-06-01T10:20:30.4509Z',
    '2026-06-01T10:20:30.4Z',
    '2026-06-01T10:20:30Z',
    '2026-06-01T10:20Z',
    '2026-06-01T12:20:30.450+02:00',
    '2026-06-01 12:20:30.450+02',
    '2026-06-01 12:20:30.450+0200',
  ])('%s: it may have', (at) => expect(mayHave(at)).toBe(true));

  test.each([
    '2026-06-01T10:20:30.449Z',
    '2026-06-01T10:20:30.3Z',
    '2026-06-01T10:20:29Z',
    '2026-06-01T10:19Z',
    '2026-06-01T12:20:30.449+02:00',
    '2026-06-01 12:20:29+02',
    '2026-06-01 12:20:29+0200',
  ])('%s: it has not', (at) => expect(mayHave(at)).toBe(false));

  test.each([
    ['a day', '2026-05-31'],
    ['a time without a zone', '2026-05-31T10:20:30'],
    ['a day and a month that may be the other way round', '01/06/2025'],
    ['a time of no calendar', '2025-13-45T10:20:30Z'],
    ['a time in words', 'Sat, 31 May 2025 10:20:30 GMT'],
    ['a number', 1_000],
    ['nothing', undefined],
  ])('%s does not tell', (_, at) => expect(mayHave(at)).toBe(true));
});
