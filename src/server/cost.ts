// What an operation costs: about the number of fields the server may have to produce for it. A field may
// state its own price as `complexity`; otherwise it costs 1, and a page (`first`) costs its content times its
// length. Called by apollo and subscription, for a document that is already valid.

import {
  getNamedType,
  getOperationAST,
  GraphQLError,
  validate,
  type DocumentNode,
  type GraphQLSchema,
} from 'graphql';
import {
  createComplexityRule,
  fieldExtensionsEstimator,
  type ComplexityEstimator,
  type ComplexityEstimatorArgs,
} from 'graphql-query-complexity';
import { requestError } from './errors.js';

export interface Operation {
  readonly schema: GraphQLSchema;
  readonly document: DocumentNode;
  readonly operationName: string | null | undefined;
  readonly variables: Readonly<Record<string, unknown>> | null | undefined;
}

const LONGEST_PAGE = 1_000;
const declared = fieldExtensionsEstimator();

const priceOfField: ComplexityEstimator = (args) => {
  if (isFree(args)) return 0;
  const price = declared(args) ?? priceByShape(args);
  // A negative price (first: -1000) would pay for other fields.
  return Math.max(price, 1);
};

/** What comes with its object or its page anyway. */
function isFree({ field, type }: ComplexityEstimatorArgs): boolean {
  const pageInfo = 'PageInfo';
  return field.name === '__typename' || type.name === pageInfo || getNamedType(field.type).name === pageInfo;
}

function priceByShape({ args, childComplexity }: ComplexityEstimatorArgs): number {
  const first: unknown = args['first'];
  const length = typeof first === 'number' ? Math.min(Math.max(first, 1), LONGEST_PAGE) : 1;
  return 1 + length * childComplexity;
}

/**
 * An operation that cannot be found, or whose variables do not fit, costs nothing here: execution refuses it
 * before it does any work, and says why.
 */
export function measureCost(operation: Operation): number {
  const definition = getOperationAST(operation.document, operation.operationName);
  if (!definition) return 0;
  let cost = 0;
  const rule = createComplexityRule({
    maximumComplexity: Number.MAX_SAFE_INTEGER,
    estimators: [priceOfField],
    variables: { ...operation.variables },
    ...(definition.name ? { operationName: definition.name.value } : {}),
    onComplete: (sum) => void (cost = sum),
  });
  try {
    validate(operation.schema, operation.document, [rule]);
  } catch (error) {
    if (!(error instanceof GraphQLError)) throw error;
    throw requestError('BAD_USER_INPUT', 'The fragments of the operation unfold to too many fields.');
  }
  return cost;
}

export function assertAffordable(cost: number, maximum: number): void {
  if (cost <= maximum) return;
  throw requestError(
    'BAD_USER_INPUT',
    `The operation costs ${cost}; at most ${maximum} is allowed. Ask for fewer fields or shorter pages.`,
  );
}
