// What the log is told of mutations: each that was asked for, with how it ended.
import { buildSchema, graphql } from 'graphql';
import { expect, test } from 'vitest';
import { AppError } from '../../src/errors.js';
import { authoriseSchema } from '../../src/resolvers/authorise.js';

const lines: Record<string, unknown>[] = [];
const operationLog = {
  debug: (details: object, message: string) => void lines.push({ ...details, message }),
};

const PAYLOADS: Readonly<Record<string, () => unknown>> = {
  done: () => ({ run: { id: 'run-1', correlationId: 'sale' }, userErrors: [] }),
  refused: () => ({ run: null, userErrors: [{ code: 'CONFLICT' }] }),
  away: () => {
    throw new AppError('UNAVAILABLE', 'The database does not answer.');
  },
  broken: () => Promise.reject(new TypeError('a fault of ours')),
};

const schema = buildSchema(`
  type Query { none: Int }
  type Run { id: ID }
  type Payload { run: Run }
  type Mutation { done: Payload refused: Payload away: Payload broken: Payload }`);
for (const root of [schema.getQueryType()!, schema.getMutationType()!]) {
  for (const field of Object.values(root.getFields())) {
    field.extensions = { access: root.name === 'Query' ? 'READ' : 'OPERATE' };
    field.resolve = () => PAYLOADS[field.name]!();
  }
}
authoriseSchema(schema);

test.each([
  ['done', 'OPERATOR', { runId: 'run-1', runCorrelationId: 'sale' }],
  ['refused', 'OPERATOR', { refused: ['CONFLICT'] }],
  ['away', 'OPERATOR', { refused: ['UNAVAILABLE'] }],
  ['broken', 'OPERATOR', { refused: ['INTERNAL'] }],
  ['done', 'VIEWER', { refused: ['FORBIDDEN'] }],
])('%s, asked for by an %s', async (mutation, role, outcome) => {
  const viewer = { tenantId: 'acme', role, actor: 'test', keyId: null };
  const contextValue = { viewer, correlationId: 'request-1', operationLog };
  const { errors } = await graphql({
    schema,
    source: `mutation { ${mutation} { run { id } } }`,
    contextValue,
  });
  expect(errors === undefined).toBe(role === 'OPERATOR' && ['done', 'refused'].includes(mutation));
  expect(lines.splice(0)).toEqual([
    {
      message: 'mutation',
      mutation,
      correlationId: 'request-1',
      tenantId: 'acme',
      ms: expect.any(Number) as number,
      ...outcome,
    },
  ]);
});
