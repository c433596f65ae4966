// The scalars beyond GraphQL's own, under one name each. A DateTime travels as RFC 3339 with its offset; JSON
// is any JSON value; SafeInt is an integer up to 2^53 - 1, which money needs and Int cannot hold.

export {
  GraphQLDateTime as DateTimeScalar,
  GraphQLJSON as JsonScalar,
  GraphQLSafeInt as SafeIntScalar,
} from 'graphql-scalars';
