// Whatever is wrong with what a caller sends is told by a code, with the place of the fault; nothing is
// written, and the server goes on.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import type { CreateRuleRunInput, RuleTargetInput } from '../generated/graphql.js';
import { makeRowIn, targetsOf } from '../support/fixtures.js';
import { add, create, inputFor, makeRun, queue } from './rule-run-documents.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

const NOWHERE = '00000000-0000-7000-8000-000000000000';

let api: TestApi;
let admin: ApiClient;

beforeAll(async () => {
  api = await startApi();
  admin = await api.client();
});
afterAll(() => api.stop());

async function countRows(): Promise<unknown> {
  return api.db.query(
    `SELECT (SELECT count(*) FROM rule_run) AS runs, (SELECT count(*) FROM rule_target) AS targets,
       (SELECT count(*) FROM run_event) AS events, (SELECT count(*) FROM idempotency_key) AS keys`,
  );
}

interface Payload {
  readonly ruleRun?: unknown;
  readonly userErrors: { code: string; message: string; field?: string[] | null; details?: unknown }[];
}

/** The one user error of a mutation, which has left every table as it was. */
async function refusal(mutation: () => Promise<Payload>) {
  const before = await countRows();
  const { ruleRun, userErrors } = await mutation();
  expect(await countRows()).toEqual(before);
  expect(ruleRun).toBeNull();
  expect(userErrors).toHaveLength(1);
  return userErrors[0]!;
}

const refusalOfCreate = (overrides: Partial<CreateRuleRunInput>) =>
  refusal(() => create(admin, inputFor(api.world.home, overrides)));

describe('unknown ids', () => {
  test.each([NOWHERE, 'garbage', '', '1', `${NOWHERE}'; DROP TABLE rule_run; --`])('%j', async (id) => {
    const { channelId } = api.world.home;
    expect(await refusalOfCreate({ channelId: id })).toMatchObject({
      code: 'NOT_FOUND',
      field: ['input', 'channelId'],
    });
    const notFound = { code: 'NOT_FOUND', field: ['input', 'runId'] };
    expect(await refusal(() => add(admin, id, targetsOf(1)))).toMatchObject(notFound);
    expect(await refusal(() => queue(admin, id))).toMatchObject(notFound);
    // The id of something else is the id of no run.
    expect(await refusal(() => queue(admin, channelId))).toMatchObject(notFound);
  });
});

describe('illegal transitions', () => {
  test.each(ruleRunMachine.states.filter((state) => state !== 'PREVIEW'))('queue while %s', async (state) => {
    const { id } = await makeRowIn(api.db, api.world.home, ruleRunMachine, state);
    const allowed = Object.entries(ruleRunMachine.events)
      .filter(([, { from }]) => (from as readonly string[]).includes(state))
      .map(([event]) => event);
    const { code, message, details } = await refusal(() => queue(admin, id));
    expect(code).toBe('ILLEGAL_TRANSITION');
    expect(message).toContain(state);
    expect(details).toEqual({ machine: 'rule_run', event: 'queue', from: state, allowed });
  });

  test('targets are added in PREVIEW only', async () => {
    const id = await makeRun(admin, api.world.home);
    await queue(admin, id);
    expect(await refusal(() => add(admin, id, targetsOf(1, 'late')))).toMatchObject({
      code: 'ILLEGAL_TRANSITION',
      field: ['input', 'runId'],
      details: { machine: 'rule_run', event: 'add_targets', from: 'QUEUED', allowed: ['start', 'cancel'] },
    });
  });

  test('a run without targets cannot be queued', async () => {
    const id = await makeRun(admin, api.world.home, { targets: [] });
    expect(await refusal(() => queue(admin, id))).toMatchObject({ code: 'INVALID_INPUT' });
  });
});

describe('targets', () => {
  const good = targetsOf(1)[0]!;
  const eur = (unit_amount: unknown) => ({ unit_amount, currency: 'EUR' });
  const cases: [string, Partial<RuleTargetInput>, string[]][] = [
    ['no unit_amount', { after: { currency: 'EUR' } }, ['after', 'unit_amount']],
    ['a negative amount', { after: eur(-1) }, ['after', 'unit_amount']],
    ['a fraction', { before: eur(19.99) }, ['before', 'unit_amount']],
    ['an amount in a string', { after: eur('1999') }, ['after', 'unit_amount']],
    ['an amount beyond 2^53', { after: eur(2 ** 53) }, ['after', 'unit_amount']],
    ['null for an amount', { after: eur(null) }, ['after', 'unit_amount']],
    ['no currency', { before: { unit_amount: 1 } }, ['before', 'currency']],
    ['an unknown currency', { before: { unit_amount: 1, currency: 'EURO' } }, ['before', 'currency']],
    ['a price that is a number', { before: 1999 }, ['before']],
    ['a price that is a list', { after: [] }, ['after']],
    ['a price that is a string of JSON', { after: '{"unit_amount": 1' }, ['after']],
    ['a field that no price has', { after: { ...eur(1), unitAmount: 1 } }, ['after', 'unitAmount']],
    ['no external id', { externalId: ' ' }, ['externalId']],
    ['a very long external id', { externalId: 'x'.repeat(256) }, ['externalId']],
    ['a NUL in the external id', { externalId: 'a\0b' }, ['externalId']],
    ['half a character in the external id', { externalId: 'a\ud800b' }, ['externalId']],
  ];

  test.each(cases)('with %s', async (_name, fault, path) => {
    const targets = [good, { ...good, externalId: 'second', ...fault }];
    const expected = { code: 'INVALID_INPUT', field: ['input', 'targets', '1', ...path] };
    expect(await refusalOfCreate({ targets })).toMatchObject(expected);
    const id = await makeRun(admin, api.world.home, { targets: [] });
    expect(await refusal(() => add(admin, id, targets))).toMatchObject(expected);
  });

  test('with two currencies: within a call, within a target, and against the run', async () => {
    const usd = { unit_amount: 1, currency: 'USD' };
    const other = { externalId: 'other', before: usd, after: usd };
    const mixed = await refusalOfCreate({ targets: [good, other] });
    expect(mixed).toMatchObject({
      code: 'INVALID_INPUT',
      field: ['input', 'targets', '1', 'before', 'currency'],
    });
    expect(mixed.message).toContain("USD is not the run's currency, EUR");
    expect(await refusalOfCreate({ targets: [{ ...good, after: usd }] })).toMatchObject({
      code: 'INVALID_INPUT',
    });
    const id = await makeRun(admin, api.world.home);
    expect(await refusal(() => add(admin, id, [other]))).toMatchObject({ code: 'INVALID_INPUT' });
  });

  test('given twice: within a call, and against the run', async () => {
    expect(await refusalOfCreate({ targets: [good, good] })).toMatchObject({
      code: 'INVALID_INPUT',
      field: ['input', 'targets', '1', 'externalId'],
    });
    const id = await makeRun(admin, api.world.home);
    expect(await refusal(() => add(admin, id, [...targetsOf(2, 'new'), good]))).toMatchObject({
      code: 'CONFLICT',
      field: ['input', 'targets'],
      details: { duplicates: 1 },
    });
  });

  test('of which all are wrong are told together, the first in front', async () => {
    const bad = targetsOf(30).map((target) => ({ ...target, after: eur(-1) }));
    const { field, details } = await refusalOfCreate({ targets: bad });
    expect(field).toEqual(['input', 'targets', '0', 'after', 'unit_amount']);
    expect(details).toMatchObject({ faultCount: 30 });
  });

  test('10,000 go in at once, 10,001 do not', async () => {
    const limit = { code: 'LIMIT_EXCEEDED', field: ['input', 'targets'] };
    expect(await refusalOfCreate({ targets: targetsOf(10_001) })).toMatchObject(limit);
    const { ruleRun, userErrors } = await create(
      admin,
      inputFor(api.world.home, { targets: targetsOf(10_000) }),
    );
    expect(userErrors).toEqual([]);
    expect(ruleRun!.counts.total).toBe(10_000);
    expect(await refusal(() => add(admin, ruleRun!.id, targetsOf(10_001, 'b')))).toMatchObject(limit);
  });
});

describe('labels', () => {
  test.each([
    ['projectId', ''],
    ['projectId', 'x'.repeat(256)],
    ['correlationId', ' '],
    ['correlationId', 'a\0b'],
    ['idempotencyKey', ''],
    ['idempotencyKey', 'x'.repeat(256)],
    ['metadata', []],
    ['metadata', 'text'],
    ['metadata', 7],
  ])('%s: %j', async (field, value) => {
    expect(await refusalOfCreate({ [field]: value })).toMatchObject({
      code: 'INVALID_INPUT',
      field: ['input', field],
    });
  });

  test('a text that PostgreSQL cannot hold', async () => {
    expect(await refusalOfCreate({ metadata: { note: 'a\0b' } })).toMatchObject({ code: 'INVALID_INPUT' });
    expect(await refusalOfCreate({ metadata: { note: '\ud800' } })).toMatchObject({ code: 'INVALID_INPUT' });
  });
});
