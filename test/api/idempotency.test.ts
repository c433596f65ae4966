// idempotencyKey: a repeat of a call finds what the first one made, another input under the key is refused,
// and of two at once only one does the work.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { targetsOf } from '../support/fixtures.js';
import { create, inputFor, makeRun, queue } from './rule-run-documents.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

let api: TestApi;
let operator: ApiClient;

beforeAll(async () => {
  api = await startApi();
  operator = await api.client('OPERATOR');
});
afterAll(() => api.stop());

const inputWith = (idempotencyKey: string, targets = targetsOf(3)) =>
  inputFor(api.world.home, { idempotencyKey, targets, metadata: { a: 1, b: { c: 2, d: 3 } } });

async function countRuns(): Promise<number> {
  const [row] = await api.db.query<{ count: string }>('SELECT count(*) FROM rule_run');
  return Number(row!.count);
}

test('the same key and input make one run, whatever the order of the fields', async () => {
  const first = await create(operator, inputWith('once'));
  const runs = await countRuns();
  const again = await create(operator, inputWith('once'));
  const reordered = await create(operator, { ...inputWith('once'), metadata: { b: { d: 3, c: 2 }, a: 1 } });
  expect(first.userErrors).toEqual([]);
  expect([again, reordered]).toEqual([first, first]);
  expect(await countRuns()).toBe(runs);
});

test('the same key with another input is refused, and names the run that has it', async () => {
  const { ruleRun } = await create(operator, inputWith('taken'));
  const runs = await countRuns();
  for (const change of [
    { targets: targetsOf(4) },
    { projectId: 'other' },
    { metadata: {} },
    { correlationId: 'x' },
  ]) {
    const { ruleRun: none, userErrors } = await create(operator, { ...inputWith('taken'), ...change });
    expect(none).toBeNull();
    expect(userErrors).toMatchObject([
      {
        code: 'IDEMPOTENCY_MISMATCH',
        field: ['input', 'idempotencyKey'],
        details: { runId: ruleRun!.id },
      },
    ]);
  }
  expect(await countRuns()).toBe(runs);
});

test('many at once make one run', async () => {
  const runs = await countRuns();
  const answers = await Promise.all(Array.from({ length: 8 }, () => create(operator, inputWith('race'))));
  for (const { userErrors } of answers) expect(userErrors).toEqual([]);
  expect(new Set(answers.map(({ ruleRun }) => ruleRun!.id)).size).toBe(1);
  expect(await countRuns()).toBe(runs + 1);
});

test('a refused call does not use up its key', async () => {
  const refused = await create(operator, inputWith('second-try', [...targetsOf(1), ...targetsOf(1)]));
  expect(refused.userErrors).toMatchObject([{ code: 'INVALID_INPUT' }]);
  expect(await create(operator, inputWith('second-try'))).toMatchObject({ userErrors: [], ruleRun: {} });
});

test('a key is the tenant’s own, and one for each mutation', async () => {
  const mine = await create(operator, inputWith('shared'));
  const neighbour = await api.client('OPERATOR', 'other');
  const theirs = await create(neighbour, inputFor(api.world.other, { idempotencyKey: 'shared' }));
  expect(theirs.userErrors).toEqual([]);
  expect(theirs.ruleRun!.id).not.toBe(mine.ruleRun!.id);
  expect(await queue(operator, mine.ruleRun!.id, 'shared')).toMatchObject({ userErrors: [] });
});

test('a run is queued once under its key; without one, the second time is an illegal transition', async () => {
  const id = await makeRun(operator, api.world.home);
  const first = await queue(operator, id, 'go');
  expect(first).toMatchObject({ ruleRun: { status: 'QUEUED' }, userErrors: [] });
  expect(await queue(operator, id, 'go')).toEqual(first);
  expect(await queue(operator, id)).toMatchObject({ userErrors: [{ code: 'ILLEGAL_TRANSITION' }] });
  const another = await makeRun(operator, api.world.home);
  expect(await queue(operator, another, 'go')).toMatchObject({
    userErrors: [{ code: 'IDEMPOTENCY_MISMATCH' }],
  });
});
