// The scalars beyond GraphQL's own, under one name each. A DateTime travels as RFC 3339 with its offset; JSON
// is any JSON value; SafeInt is an integer up to 2^53 - 1, which money needs and Int cannot hold.

import { GraphQLError, GraphQLScalarType } from 'graphql';
import { GraphQLJSON } from 'graphql-scalars';

export { GraphQLDateTime as DateTimeScalar, GraphQLSafeInt as SafeIntScalar } from 'graphql-scalars';

/** Far beyond what people write; what recurses over a value, here or in the database, has a stack to keep to. */
const MAX_DEPTH = 64;

const json = GraphQLJSON.toConfig();

export const JsonScalar = new GraphQLScalarType({
  ...json,
  parseValue: (value) => requireShallow(json.parseValue(value)),
  parseLiteral: (node, variables) => requireShallow(json.parseLiteral(node, variables)),
});

function requireShallow(value: unknown): unknown {
  if (isShallow(value, MAX_DEPTH)) return value;
  throw new GraphQLError(`JSON may be nested ${MAX_DEPTH} levels deep, and no deeper.`);
}

function isShallow(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return depth > 0 && Object.values(value).every((inner) => isShallow(inner, depth - 1));
}
