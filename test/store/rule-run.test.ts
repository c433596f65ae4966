// Rule runs through the store: made, added to, queued, listed; keys that make a request happen once; and
// nothing of another tenant.
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { newId } from '../../src/store/id.js';
import { countsOf, findRuleRun } from '../../src/store/rule-run-row.js';
import { addRuleTargets, createRuleRun, queueRuleRun } from '../../src/store/rule-run.js';
import { countRuleRuns, listRuleRuns, runCursor, type RuleRunFilter } from '../../src/store/rule-run-list.js';
import { listRuleTargets, targetCursor, type TargetPageRequest } from '../../src/store/rule-target.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import {
  makeQueuedRun,
  makeRuleRun,
  newRuleRun,
  seedWorld,
  targetsOf,
  type Tenant,
  type World,
} from '../support/fixtures.js';
import { expectInvariants } from './invariants.js';
import { countRows, faultOf } from './rows.js';

const HOUR = 3_600_000;
const LONG = { note: 'x'.repeat(256 * 1024) };

let database: TestDatabase;
let world: World;
let home: Tenant;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  home = world.home;
});
afterAll(() => database.drop());

const queue = (runId: string, idempotencyKey: string | null = null, tenant = home) =>
  queueRuleRun(database.db, tenant.viewer, { runId, idempotencyKey });
const add = (runId: string, count: number, prefix: string, tenant = home) =>
  addRuleTargets(database.db, tenant.viewer, { runId, targets: targetsOf(count, prefix) });

/** The refusal, after which the database is what it was. */
async function refusalOf(work: () => Promise<unknown>) {
  const before = await countRows(database.db);
  const fault = await faultOf(work());
  expect(await countRows(database.db)).toEqual(before);
  return fault;
}

describe('create', () => {
  test('makes a preview with what was given', async () => {
    const run = await makeRuleRun(database.db, home, {
      projectId: 'spring',
      metadata: { ticket: 'OPS-1', nested: [1, { a: null }] },
      correlationId: 'req-7',
    });
    expect(run).toMatchObject({
      status: 'PREVIEW',
      projectId: 'spring',
      channelId: home.channelId,
      currency: 'EUR',
      metadata: { ticket: 'OPS-1', nested: [1, { a: null }] },
      correlationId: 'req-7',
      actor: home.viewer.actor,
      source: 'api',
      paused: false,
      queuedAt: null,
      startedAt: null,
      finishedAt: null,
    });
    expect(countsOf(run)).toMatchObject({ total: 3, preview: 3, queued: 0 });
    await expectInvariants(database.db, run.id);
  });

  test('without targets is a preview to be filled, and correlates with itself', async () => {
    const run = await makeRuleRun(database.db, home, { targets: [], metadata: null });
    expect(run).toMatchObject({ currency: null, metadata: {}, correlationId: run.id, totalCount: 0 });
  });

  test.each([
    ['an unknown channel', { channelId: newId() }, 'NOT_FOUND', ['input', 'channelId']],
    ['a channel that is no id', { channelId: 'garbage' }, 'NOT_FOUND', ['input', 'channelId']],
    ['metadata that is no object', { metadata: [1] }, 'INVALID_INPUT', ['input', 'metadata']],
    ['metadata that cannot be stored', { metadata: { a: 'nul\0' } }, 'INVALID_INPUT', null],
    ['metadata of more than 256 KiB', { metadata: LONG }, 'LIMIT_EXCEEDED', ['input', 'metadata']],
    ['an empty project', { projectId: ' ' }, 'INVALID_INPUT', ['input', 'projectId']],
    [
      'a long correlation id',
      { correlationId: 'x'.repeat(256) },
      'INVALID_INPUT',
      ['input', 'correlationId'],
    ],
    ['an empty key', { idempotencyKey: '' }, 'INVALID_INPUT', ['input', 'idempotencyKey']],
    [
      'a target twice',
      { targets: [...targetsOf(1), ...targetsOf(1)] },
      'INVALID_INPUT',
      ['input', 'targets', '1', 'externalId'],
    ],
    ['10,001 targets', { targets: targetsOf(10_001) }, 'LIMIT_EXCEEDED', ['input', 'targets']],
  ])('%s is refused', async (_, overrides, code, field) => {
    const fault = await refusalOf(() => makeRuleRun(database.db, home, overrides));
    expect(fault).toMatchObject({ code, field });
  });
});

describe('add', () => {
  test('adds to the preview, in its currency', async () => {
    const { id } = await makeRuleRun(database.db, home, { targets: [] });
    await add(id, 2, 'a');
    const run = await add(id, 3, 'b');
    expect(run).toMatchObject({ currency: 'EUR', totalCount: 5, previewCount: 5 });
    const other = {
      externalId: 'usd',
      before: { unit_amount: 1, currency: 'USD' },
      after: { unit_amount: 2, currency: 'USD' },
    };
    const fault = await refusalOf(() =>
      addRuleTargets(database.db, home.viewer, { runId: id, targets: [other] }),
    );
    expect(fault).toMatchObject({
      code: 'INVALID_INPUT',
      field: ['input', 'targets', '0', 'before', 'currency'],
    });
    await expectInvariants(database.db, id);
  });

  test('what is in the run already is refused, and the rest of the call with it', async () => {
    const { id } = await makeRuleRun(database.db, home, { targets: targetsOf(2) });
    const fault = await refusalOf(() => add(id, 3, 'sku'));
    expect(fault).toMatchObject({ code: 'CONFLICT', details: { duplicates: 2 } });
    await expectInvariants(database.db, id);
  });

  test('two calls with the same targets at once: one is refused', async () => {
    const { id } = await makeRuleRun(database.db, home, { targets: [] });
    const results = await Promise.allSettled([add(id, 50, 'x'), add(id, 50, 'x')]);
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect((await findRuleRun(database.db, home.viewer, id))!.totalCount).toBe(50);
    await expectInvariants(database.db, id);
  });

  test('a queued run takes none', async () => {
    const { id } = await makeQueuedRun(database.db, home);
    const fault = await refusalOf(() => add(id, 1, 'late'));
    expect(fault).toMatchObject({
      code: 'ILLEGAL_TRANSITION',
      details: { machine: 'rule_run', event: 'add_targets', from: 'QUEUED' },
    });
  });
});

describe('queue', () => {
  test('queues the run and its targets', async () => {
    const run = await makeQueuedRun(database.db, home);
    expect(run).toMatchObject({ status: 'QUEUED', queuedAt: expect.any(Date) as Date });
    expect(countsOf(run)).toMatchObject({ total: 3, preview: 0, queued: 3 });
    await expectInvariants(database.db, run.id);
  });

  test('an empty run and a second time are refused', async () => {
    const empty = await makeRuleRun(database.db, home, { targets: [] });
    expect(await refusalOf(() => queue(empty.id))).toMatchObject({ code: 'INVALID_INPUT' });
    const queued = await makeQueuedRun(database.db, home);
    expect(await refusalOf(() => queue(queued.id))).toMatchObject({
      code: 'ILLEGAL_TRANSITION',
      details: { machine: 'rule_run', event: 'queue', from: 'QUEUED', allowed: ['start', 'cancel'] },
    });
  });

  test('two at once: one queues, one is refused', async () => {
    const { id } = await makeRuleRun(database.db, home);
    const results = await Promise.allSettled([queue(id), queue(id)]);
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    await expectInvariants(database.db, id);
  });

  test('a key makes the second time an answer, and is bound to its run', async () => {
    const [one, two] = [await makeRuleRun(database.db, home), await makeRuleRun(database.db, home)];
    await queue(one.id, 'queue-once');
    expect(await queue(one.id, 'queue-once')).toMatchObject({ id: one.id, status: 'QUEUED' });
    expect(await refusalOf(() => queue(two.id, 'queue-once'))).toMatchObject({
      code: 'IDEMPOTENCY_MISMATCH',
    });
    expect(await findRuleRun(database.db, home.viewer, two.id)).toMatchObject({ status: 'PREVIEW' });
  });
});

describe('idempotency of create', () => {
  const create = (overrides: Parameters<typeof newRuleRun>[1], tenant = home) =>
    createRuleRun(database.db, tenant.viewer, newRuleRun(tenant, overrides));

  test('the same key and input are the same run, however the input is written', async () => {
    const first = await create({ idempotencyKey: 'same', metadata: { a: 1, b: { c: 2, d: 3 } } });
    const before = await countRows(database.db);
    const again = await create({ idempotencyKey: 'same', metadata: { b: { d: 3, c: 2 }, a: 1 } });
    expect(again.id).toBe(first.id);
    expect(await countRows(database.db)).toEqual(before);
  });

  test.each([
    ['metadata', { metadata: { a: 2 } }],
    ['targets', { targets: targetsOf(2) }],
    ['project', { projectId: 'other' }],
  ])('the same key with other %s is a mismatch that names the run', async (what, change) => {
    const first = await create({ idempotencyKey: `mismatch-${what}` });
    const fault = await refusalOf(() => create({ idempotencyKey: `mismatch-${what}`, ...change }));
    expect(fault).toMatchObject({ code: 'IDEMPOTENCY_MISMATCH', details: { runId: first.id } });
  });

  test('many at once with one key make one run', async () => {
    const runs = await Promise.all(
      Array.from({ length: 8 }, () => create({ idempotencyKey: 'race', targets: targetsOf(200) })),
    );
    expect(new Set(runs.map(({ id }) => id)).size).toBe(1);
    expect(runs[0]).toMatchObject({ totalCount: 200 });
    await expectInvariants(database.db, runs[0]!.id);
  });

  test('two at once with one key and different input: one run, one mismatch', async () => {
    const results = await Promise.allSettled([
      create({ idempotencyKey: 'clash', targets: targetsOf(1) }),
      create({ idempotencyKey: 'clash', targets: targetsOf(2) }),
    ]);
    const refused = results.find((result) => result.status === 'rejected');
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(refused?.reason).toMatchObject({ code: 'IDEMPOTENCY_MISMATCH' });
  });

  test('a repeat finds its run after the times of it are over', async () => {
    const autoRevertAt = new Date(Date.now() + HOUR);
    const overrides = { idempotencyKey: 'over by now', autoRevertAt };
    const { id } = await makeRuleRun(database.db, home, overrides);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 2 * HOUR });
    try {
      expect(await makeRuleRun(database.db, home, overrides)).toMatchObject({ id });
      const late = faultOf(makeRuleRun(database.db, home, { autoRevertAt }));
      expect(await late).toMatchObject({ code: 'INVALID_INPUT', field: ['input', 'autoRevertAt'] });
    } finally {
      vi.useRealTimers();
    }
  });

  test('a request that was refused leaves its key free', async () => {
    await refusalOf(() => create({ idempotencyKey: 'free', channelId: newId() }));
    expect(await create({ idempotencyKey: 'free' })).toMatchObject({ status: 'PREVIEW' });
  });

  test('keys are the tenant’s own', async () => {
    const mine = await create({ idempotencyKey: 'mine' });
    const theirs = await create({ idempotencyKey: 'mine' }, world.other);
    expect(theirs.id).not.toBe(mine.id);
    expect(theirs.tenantId).toBe('other');
  });
});

describe('list', () => {
  const list = (filter: RuleRunFilter, first = 100, after: string | null = null) =>
    listRuleRuns(database.db, home.viewer, { first, after, filter });

  test('pages newest first, each run once, though runs are added meanwhile', async () => {
    const made: string[] = [];
    for (let index = 0; index < 7; index += 1) {
      made.push((await makeRuleRun(database.db, home, { projectId: 'paged', targets: [] })).id);
    }
    const seen: string[] = [];
    let after: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof list>> = await list({ projectId: 'paged' }, 3, after);
      seen.push(...page.nodes.map(({ id }) => id));
      expect(page.hasPreviousPage).toBe(after !== null);
      after = page.hasNextPage ? runCursor(page.nodes.at(-1)!) : null;
      await makeRuleRun(database.db, home, { projectId: 'paged', targets: [] });
    } while (after !== null);
    expect(seen).toEqual([...made].sort().reverse());
  });

  test('filters by each field and by all of them', async () => {
    const before = new Date();
    const run = await makeQueuedRun(database.db, home, { projectId: 'filtered', correlationId: 'corr-1' });
    // Two runs of one millisecond cannot be told apart by time.
    while (Date.now() <= run.createdAt.getTime() + 1) await database.db.ping();
    const decoy = await makeRuleRun(database.db, home, { projectId: 'filtered' });
    const idsOf = async (filter: RuleRunFilter) => (await list(filter)).nodes.map(({ id }) => id);
    expect(await idsOf({ correlationId: 'corr-1' })).toEqual([run.id]);
    expect(await idsOf({ projectId: 'filtered', status: ['QUEUED', 'APPLIED'] })).toEqual([run.id]);
    expect(await idsOf({ projectId: 'filtered', status: [] })).toEqual([]);
    expect(await idsOf({ projectId: 'filtered', channelId: home.channelId })).toEqual([decoy.id, run.id]);
    expect(await idsOf({ projectId: 'filtered', channelId: newId() })).toEqual([]);
    expect(await idsOf({ channelId: 'garbage' })).toEqual([]);
    expect(await idsOf({ projectId: 'filtered', createdAfter: run.createdAt })).toEqual([decoy.id]);
    expect(await idsOf({ projectId: 'filtered', createdBefore: decoy.createdAt })).toEqual([run.id]);
    expect(await idsOf({ projectId: 'filtered', createdBefore: before })).toEqual([]);
    expect(await countRuleRuns(database.db, home.viewer, { projectId: 'filtered' })).toEqual({
      count: 2,
      isCapped: false,
    });
  });

  test.each([
    '',
    'garbage',
    Buffer.from('["not-a-uuid"]').toString('base64url'),
    Buffer.from('{}').toString('base64url'),
  ])('the cursor %j is refused', async (after) => {
    expect(await faultOf(list({}, 10, after))).toMatchObject({ code: 'BAD_USER_INPUT', field: ['after'] });
  });

  test('targets page in the order they were given, by status', async () => {
    const { id: runId } = await makeRuleRun(database.db, home, { targets: targetsOf(5) });
    const page = async (after: string | null, status: TargetPageRequest['status'] = null) =>
      (await listRuleTargets(database.db, home.viewer, [runId], { first: 3, after, status })).get(runId)!;
    const first = await page(null);
    expect(first.nodes.map(({ externalId }) => externalId)).toEqual(['sku-1', 'sku-2', 'sku-3']);
    const second = await page(targetCursor(first.nodes.at(-1)!));
    expect(second).toMatchObject({ hasNextPage: false, hasPreviousPage: true });
    expect(second.nodes.map(({ externalId }) => externalId)).toEqual(['sku-4', 'sku-5']);
    expect((await page(null, ['APPLIED'])).nodes).toEqual([]);
    expect(await faultOf(page('garbage'))).toMatchObject({ code: 'BAD_USER_INPUT' });
  });
});

describe('another tenant', () => {
  test('finds, adds to, queues and lists nothing of ours', async () => {
    const { db } = database;
    const { id } = await makeRuleRun(db, home, { projectId: 'secret' });
    const { viewer } = world.other;
    expect(await findRuleRun(db, viewer, id)).toBeNull();
    expect(await refusalOf(() => add(id, 1, 'x', world.other))).toMatchObject({ code: 'NOT_FOUND' });
    expect(await refusalOf(() => queue(id, null, world.other))).toMatchObject({ code: 'NOT_FOUND' });
    expect(await refusalOf(() => queue('garbage'))).toMatchObject({ code: 'NOT_FOUND' });
    expect(
      (await listRuleRuns(db, viewer, { first: 100, after: null, filter: { projectId: 'secret' } })).nodes,
    ).toEqual([]);
    const targets = await listRuleTargets(db, viewer, [id], { first: 10, after: null, status: null });
    expect(targets.get(id)!.nodes).toEqual([]);
    expect(await refusalOf(() => makeRuleRun(db, world.other, { channelId: home.channelId }))).toMatchObject({
      code: 'NOT_FOUND',
    });
  });
});
