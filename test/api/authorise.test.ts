// Roles, with real keys: every field of Query, Mutation and Subscription is called as each role, whatever
// fields there are. What a role may not call is FORBIDDEN before anything else is looked at.
import {
  buildSchema,
  isEnumType,
  isInputObjectType,
  isLeafType,
  isListType,
  isNonNullType,
  getNamedType,
  isRequiredArgument,
  isRequiredInputField,
  type GraphQLField,
  type GraphQLInputType,
  type GraphQLObjectType,
} from 'graphql';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROLES, type Role } from '../../src/domain/viewer.js';
import { authoriseSchema } from '../../src/resolvers/authorise.js';
import { buildGraphqlSchema } from '../../src/resolvers/schema.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

/** All that a worker of ops runs needs. */
const FOR_WORKERS = new Set([
  'Query.opsRun',
  'Query.opsRuns',
  'Mutation.queueOpsRun',
  'Mutation.claimNextOpsRun',
  'Mutation.appendOpsRunEvent',
  'Mutation.heartbeatOpsRun',
  'Mutation.finishOpsRun',
  'Mutation.cancelOpsRun',
  'Subscription.opsRunProgress',
]);

/** What changes the tenant's own setup rather than a run. */
const FOR_ADMINS = new Set([
  'Mutation.saveChannel',
  'Mutation.saveSource',
  'Mutation.testChannel',
  'Mutation.savePricingRule',
  'Mutation.importCatalogItems',
  'Mutation.saveGuardrails',
  'Mutation.saveAlertPolicy',
  'Mutation.saveAlertSink',
  'Mutation.testAlertSink',
  'Mutation.deleteAlertSink',
  'Mutation.saveSchedule',
  'Mutation.deleteSchedule',
  'Mutation.saveWebhookEndpoint',
  'Mutation.switchWebhookEndpoint',
  'Mutation.testWebhookEndpoint',
  'Mutation.replayWebhook',
  'Mutation.deleteWebhookEndpoint',
  'Mutation.saveRetentionPolicy',
]);

const MAY_CALL: Readonly<Record<Role, (field: string) => boolean>> = {
  VIEWER: (field) => !field.startsWith('Mutation.'),
  OPERATOR: (field) => !FOR_ADMINS.has(field),
  ADMIN: () => true,
  WORKER: (field) => FOR_WORKERS.has(field),
};

const SCALARS: Readonly<Record<string, string>> = {
  ID: '"x"',
  String: '"x"',
  Boolean: 'true',
  JSON: '{}',
  DateTime: '"2030-01-01T00:00:00Z"',
};

/** The shortest value that fits a type; ids are those of nothing. */
function literalOf(type: GraphQLInputType): string {
  if (isNonNullType(type)) return literalOf(type.ofType);
  if (isListType(type)) return '[]';
  if (isEnumType(type)) return type.getValues()[0]!.name;
  if (isInputObjectType(type)) {
    const fields = Object.values(type.getFields()).filter(isRequiredInputField);
    return `{ ${fields.map((field) => `${field.name}: ${literalOf(field.type)}`).join(', ')} }`;
  }
  return SCALARS[type.name] ?? '1';
}

function callOf(kind: string, field: GraphQLField<unknown, unknown>): string {
  const args = field.args.filter(isRequiredArgument).map(({ name, type }) => `${name}: ${literalOf(type)}`);
  const selection = isLeafType(getNamedType(field.type)) ? '' : ' { __typename }';
  return `${kind} { ${field.name}${args.length > 0 ? `(${args.join(', ')})` : ''}${selection} }`;
}

function fieldsOf(root: GraphQLObjectType | null | undefined): { name: string; call: string }[] {
  return Object.values(root?.getFields() ?? {}).map((field) => ({
    name: `${root!.name}.${field.name}`,
    call: callOf(root!.name.toLowerCase(), field),
  }));
}

const schema = buildGraphqlSchema();
const overHttp = [...fieldsOf(schema.getQueryType()), ...fieldsOf(schema.getMutationType())];
const overSockets = fieldsOf(schema.getSubscriptionType());

let api: TestApi;
const clients = new Map<Role, ApiClient>();

beforeAll(async () => {
  api = await startApi();
  for (const role of ROLES) clients.set(role, await api.client(role));
});
afterAll(() => api.stop());

describe.each(ROLES)('%s', (role) => {
  test.each(overHttp)('$name', async ({ name, call }) => {
    const { errors } = await clients.get(role)!.send(call);
    const forbidden = errors?.[0]?.extensions.code === 'FORBIDDEN';
    expect(forbidden).toBe(!MAY_CALL[role](name));
    for (const error of errors ?? []) expect(error.extensions.code).not.toBe('INTERNAL');
  });

  // A subscription that is let through to something that exists would wait for its first event.
  const telling = overSockets.filter(({ name, call }) => !MAY_CALL[role](name) || call.includes('"x"'));
  test.each(telling)('$name', async ({ name, call }) => {
    const { value } = await clients.get(role)!.stream(call).next();
    const code = MAY_CALL[role](name) ? 'NOT_FOUND' : 'FORBIDDEN';
    expect(value.errors).toMatchObject([{ extensions: { code } }]);
  });
});

test('a field that does not say what it needs stops the schema', () => {
  const open = buildSchema('type Query { secret: String } type Mutation { change: Int }');
  expect(() => authoriseSchema(open)).toThrow('Query.secret does not declare the access it needs');
});
