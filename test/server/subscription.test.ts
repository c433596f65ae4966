// What several like subscriptions are shown of the same event: one execution, unless that failed.
import { buildSchema, type GraphQLSchema } from 'graphql';
import { pino } from 'pino';
import { beforeEach, expect, test } from 'vitest';
import { ErrorPresenter } from '../../src/server/errors.js';
import { DEFAULT_LIMITS } from '../../src/server/limits.js';
import { SubscriptionExecutor, type DeliveryStream } from '../../src/server/subscription.js';

const viewer = { tenantId: 'default', role: 'VIEWER', actor: 'test', keyId: null } as const;
const EVENT = { id: 'run' };

let reads = 0;
let read: () => Promise<number>;
let executor: SubscriptionExecutor;

beforeEach(() => {
  reads = 0;
  read = async () => 2;
  executor = new SubscriptionExecutor({
    schema: makeSchema(),
    limits: DEFAULT_LIMITS,
    errors: new ErrorPresenter(pino({ level: 'silent' })),
    createContext: () => ({}),
  });
});

/** Every subscription is shown the same object. */
function makeSchema(): GraphQLSchema {
  const schema = buildSchema('type Query { now: Int } type Run { rate: Int } type Subscription { run: Run }');
  const { run } = schema.getSubscriptionType()!.getFields();
  run!.subscribe = async function* () {
    yield EVENT;
  };
  run!.resolve = (event: unknown) => event;
  (schema.getType('Run') as never as { getFields(): Record<string, { resolve: unknown }> }).getFields()[
    'rate'
  ]!.resolve = () => {
    reads += 1;
    return read();
  };
  return schema;
}

async function subscribe(): Promise<unknown> {
  const prepared = executor.prepare({ query: 'subscription { run { rate } }' }, () => viewer);
  if (!('start' in prepared)) throw new Error(String(prepared));
  const delivery = await ((await prepared.start()) as DeliveryStream).next();
  return JSON.parse(delivery!.text);
}

test('what was shown once is shown to whoever comes while the event stays the same', async () => {
  for (let n = 0; n < 3; n += 1) expect(await subscribe()).toEqual({ data: { run: { rate: 2 } } });
  expect(reads).toBe(1);
});

test('an execution that failed is shared by those who wait for it, and made anew for who comes next', async () => {
  let refuse = (_: Error): void => {};
  const refused = new Promise<number>((_, reject) => (refuse = reject));
  read = () => refused;
  const waiting = Promise.all([subscribe(), subscribe()]);
  while (reads === 0) await new Promise(setImmediate);
  read = async () => 3;
  refuse(new Error('the rate cannot be read'));
  for (const shown of await waiting) expect(shown).toMatchObject({ errors: [{ path: ['run', 'rate'] }] });
  expect(reads).toBe(1);
  expect(await subscribe()).toEqual({ data: { run: { rate: 3 } } });
  expect(reads).toBe(2);
});
