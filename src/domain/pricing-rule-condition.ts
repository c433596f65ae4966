// Reads the `match` of a rule's definition. Which operators a field takes, and what each compares with, is
// decided here once, so that a condition that could never hold is refused when it is written.

import type { Path } from './fault.js';
import { isObject } from './json.js';
import { isCurrency } from './money.js';
import type { Condition, Field, Operator, Scalar, Test } from './pricing-rule-match.js';
import { isGiven, type RuleReader } from './pricing-rule-reader.js';

const MAX_DEPTH = 16;
const MAX_PARTS = 200;
const MAX_VALUES = 1_000;

const COMPARISONS = ['gt', 'gte', 'lt', 'lte'] as const;
const TEXT_OPERATORS: readonly Operator[] = ['eq', 'in', 'contains', 'exists'];
const OPERATORS: Readonly<Record<Field['name'], readonly Operator[]>> = {
  externalId: TEXT_OPERATORS,
  title: TEXT_OPERATORS,
  price: ['eq', 'in', ...COMPARISONS],
  cost: ['eq', 'in', ...COMPARISONS, 'exists'],
  currency: ['eq', 'in'],
  attributes: ['eq', 'in', ...COMPARISONS, 'contains', 'exists'],
};

const FIELDS = 'externalId, title, price, cost, currency or attributes.<name>';

export function readCondition(reader: RuleReader, value: unknown, path: Path, depth = 1): Condition | null {
  if (depth > MAX_DEPTH) return reader.add(path, `is nested deeper than ${MAX_DEPTH} levels`);
  if (!isObject(value)) return reader.add(path, 'must be an object');
  // Nothing asked for: every item.
  if (Object.keys(value).length === 0) return { kind: 'all', of: [] };
  if ('field' in value) return readFieldCondition(reader, value, path);
  const object = reader.object(value, path, ['all', 'any', 'not', 'field']);
  const given = (['all', 'any', 'not'] as const).filter((key) => isGiven(value[key]));
  const [kind] = given;
  if (object === null || kind === undefined || given.length > 1) {
    return reader.add(path, 'must have exactly one of all, any, not, field');
  }
  const at = [...path, kind];
  if (kind !== 'not') return readParts(reader, kind, value[kind], at, depth);
  const inner = readCondition(reader, value[kind], at, depth + 1);
  return inner && { kind, of: inner };
}

function readParts(
  reader: RuleReader,
  kind: 'all' | 'any',
  value: unknown,
  path: Path,
  depth: number,
): Condition | null {
  if (!Array.isArray(value)) return reader.add(path, 'must be a list of conditions');
  if (value.length > MAX_PARTS) return reader.add(path, `has more than ${MAX_PARTS} conditions`);
  if (kind === 'any' && value.length === 0) return reader.add(path, 'is empty: no item would match');
  const of = value.map((part, index) => readCondition(reader, part, [...path, String(index)], depth + 1));
  return of.includes(null) ? null : { kind, of: of as Condition[] };
}

function readFieldCondition(
  reader: RuleReader,
  value: Record<string, unknown>,
  path: Path,
): Condition | null {
  const field = readField(value['field']);
  if (field === null) return reader.add([...path, 'field'], `must be ${FIELDS}`);
  const allowed = OPERATORS[field.name];
  reader.object(value, path, ['field', ...allowed]);
  const tests = allowed
    .filter((op) => isGiven(value[op]))
    .map((op) => readTest(reader, field, op, value[op], [...path, op]));
  if (tests.length === 0) return reader.add(path, `needs one of ${allowed.join(', ')}`);
  return tests.includes(null) ? null : { kind: 'field', field, tests: tests as Test[] };
}

function readField(value: unknown): Field | null {
  if (typeof value !== 'string') return null;
  const [name, ...path] = value.split('.');
  if (name === 'attributes') return path.length > 0 && !path.includes('') ? { name, path } : null;
  if (path.length > 0 || !Object.hasOwn(OPERATORS, name!)) return null;
  return { name: name as Exclude<Field['name'], 'attributes'> };
}

function readTest(reader: RuleReader, field: Field, op: Operator, value: unknown, path: Path): Test | null {
  switch (op) {
    case 'exists':
      return typeof value === 'boolean' ? { op, value } : reader.add(path, 'must be true or false');
    case 'in':
      return readIn(reader, field, value, path);
    case 'eq': {
      const scalar = readScalar(reader, field, value, path);
      return scalar === null ? null : { op, value: scalar };
    }
    case 'contains':
      return readContains(reader, field, value, path);
    default: {
      const number = readNumber(reader, field, value, path);
      return number === null ? null : { op, value: number };
    }
  }
}

function readIn(reader: RuleReader, field: Field, value: unknown, path: Path): Test | null {
  if (!Array.isArray(value) || value.length === 0 || value.length > MAX_VALUES) {
    return reader.add(path, `must be a list of 1 to ${MAX_VALUES} values`);
  }
  const values = value.map((each, index) => readScalar(reader, field, each, [...path, String(index)]));
  return values.includes(null) ? null : { op: 'in', values: new Set(values as Scalar[]) };
}

function readContains(reader: RuleReader, field: Field, value: unknown, path: Path): Test | null {
  // Every text contains the empty one.
  if (value === '') return reader.add(path, 'must not be empty');
  const scalar = readScalar(reader, field, value, path);
  return scalar === null ? null : { op: 'contains', value: scalar };
}

function readScalar(reader: RuleReader, field: Field, value: unknown, path: Path): Scalar | null {
  switch (field.name) {
    case 'price':
    case 'cost':
      return readNumber(reader, field, value, path);
    case 'currency':
      return isCurrency(value) ? value : reader.add(path, 'must be an ISO 4217 currency code such as EUR');
    case 'attributes':
      return isScalar(value) ? value : reader.add(path, 'must be a text, a number, true or false');
    default:
      return typeof value === 'string' ? value : reader.add(path, 'must be a text');
  }
}

function readNumber(reader: RuleReader, field: Field, value: unknown, path: Path): number | null {
  if (field.name === 'price' || field.name === 'cost') {
    const amount = reader.amount(value, path);
    return amount === null ? null : Number(amount);
  }
  return typeof value === 'number' ? value : reader.add(path, 'must be a number');
}

function isScalar(value: unknown): value is Scalar {
  return ['string', 'number', 'boolean'].includes(typeof value);
}
