// Which items a pricing rule is for: a tree of conditions over an item's fields. A value that is not there,
// or is of another kind than the test asks for, fails every test but `exists: false`.

/** What a rule sees of a catalog item. */
export interface RuledItem {
  readonly externalId: string;
  readonly title: string;
  readonly unitAmount: number;
  readonly costAmount: number | null;
  readonly currency: string;
  readonly attributes: unknown;
}

export type Scalar = string | number | boolean;

export type Test =
  | { readonly op: 'eq' | 'contains'; readonly value: Scalar }
  | { readonly op: 'in'; readonly values: ReadonlySet<Scalar> }
  | { readonly op: 'gt' | 'gte' | 'lt' | 'lte'; readonly value: number }
  | { readonly op: 'exists'; readonly value: boolean };

export type Operator = Test['op'];

export type Field =
  | { readonly name: 'externalId' | 'title' | 'price' | 'cost' | 'currency' }
  | { readonly name: 'attributes'; readonly path: readonly string[] };

export type Condition =
  | { readonly kind: 'all' | 'any'; readonly of: readonly Condition[] }
  | { readonly kind: 'not'; readonly of: Condition }
  /** Every test must hold. */
  | { readonly kind: 'field'; readonly field: Field; readonly tests: readonly Test[] };

export function isMatch(condition: Condition, item: RuledItem): boolean {
  switch (condition.kind) {
    case 'all':
      return condition.of.every((each) => isMatch(each, item));
    case 'any':
      return condition.of.some((each) => isMatch(each, item));
    case 'not':
      return !isMatch(condition.of, item);
    case 'field': {
      const value = readField(condition.field, item);
      return condition.tests.every((test) => holds(test, value));
    }
  }
}

function readField(field: Field, item: RuledItem): unknown {
  switch (field.name) {
    case 'price':
      return item.unitAmount;
    case 'cost':
      return item.costAmount;
    case 'attributes':
      return field.path.reduce(readOwn, item.attributes);
    default:
      return item[field.name];
  }
}

// Only what the item was given: not `constructor`, nor the length of a list.
function readOwn(value: unknown, key: string): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : undefined;
}

function holds(test: Test, value: unknown): boolean {
  switch (test.op) {
    case 'eq':
      return value === test.value;
    case 'in':
      return test.values.has(value as Scalar);
    case 'exists':
      return (value !== undefined && value !== null) === test.value;
    case 'contains':
      return contains(value, test.value);
    case 'gt':
      return typeof value === 'number' && value > test.value;
    case 'gte':
      return typeof value === 'number' && value >= test.value;
    case 'lt':
      return typeof value === 'number' && value < test.value;
    case 'lte':
      return typeof value === 'number' && value <= test.value;
  }
}

/** A text contains a text whatever the case of its letters; a list contains an element that is equal. */
function contains(value: unknown, sought: Scalar): boolean {
  if (Array.isArray(value)) return value.includes(sought);
  if (typeof value !== 'string' || typeof sought !== 'string') return false;
  return value.toLowerCase().includes(sought.toLowerCase());
}
