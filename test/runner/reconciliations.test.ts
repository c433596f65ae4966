// Reconciliation as the runner works it: real claims, real HTTP, a channel whose prices change behind our back.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';
import type { RunnerObserver } from '../../src/runner/observer.js';
import { Reconciliations } from '../../src/runner/reconciliations.js';
import type { Work } from '../../src/runner/work.js';
import type { Mismatch, Unread } from '../../src/domain/reconciliation.js';
import {
  askToReconcile,
  listFindings,
  listReconciliations,
  type FindingsRequest,
  type ReconciliationRow,
} from '../../src/store/reconciliation.js';
import { findGuardrails, saveGuardrails } from '../../src/store/guardrail.js';
import { repairMismatches } from '../../src/store/reconciliation-repair.js';
import { recordComparison } from '../../src/store/reconciliation-result.js';
import { claimReconciliation } from '../../src/store/reconciliation-work.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { cancelRuleRun } from '../../src/store/rule-run-control.js';
import { linesOf } from '../store/rows.js';
import { expectInvariants } from '../store/invariants.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { PriceBook } from './price-book.js';
import { drain, HOUR, makeRuleTargets, named, NEVER, openChannels, runOf, targetsIn } from './shop-world.js';
import { KeptLog } from './support.js';

let database: TestDatabase;
let world: World;
let book: PriceBook;
const log = new KeptLog();

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(async () => {
  book = await PriceBook.start();
  await book.serve(database.db, 'shop');
});
afterEach(async () => {
  await book.stop();
  await database.db.query('DELETE FROM reconciliation');
});
afterAll(() => database.drop());

function makeKind(leaseMs = HOUR, observer: RunnerObserver = {}): Reconciliations {
  const retry = { ...DEFAULT_RETRY_POLICY, baseMs: 0, throttleBaseMs: 0 };
  const circuit = { toleratedThrottles: 5, openMs: 60_000 };
  const channels = openChannels(database.db, { callTimeoutMs: HOUR, retry, circuit });
  // Without patience a page would be left behind wherever the machine is slow.
  return new Reconciliations({ db: database.db, channels, leaseMs, log, observer, patienceMs: HOUR });
}

async function applied(count: number, prefix: string): Promise<string> {
  const { id } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(count, prefix) });
  await drain(makeRuleTargets(database.db, log));
  expect(await runOf(database.db, id)).toMatchObject({ status: 'APPLIED' });
  return id;
}

const ask = (runId: string, repair = false) =>
  askToReconcile(database.db, world.home.viewer, { runId, repair, idempotencyKey: null });

async function claimOf(kind: Reconciliations, worker = 'w'): Promise<Work> {
  const work = await kind.claim(worker);
  if (!work) throw new Error('nothing to claim');
  return work;
}

type Report = ReconciliationRow & {
  readonly details: readonly Mismatch[];
  readonly unreadItems: readonly Unread[];
};

async function reportsOf(runId: string): Promise<Report[]> {
  const { viewer } = world.home;
  const reports = (await listReconciliations(database.db, viewer, [runId])).get(runId)!;
  const ids = reports.map(({ id }) => id);
  const find = <Found extends Mismatch | Unread>(kind: FindingsRequest['kind']) =>
    listFindings<Found>(database.db, viewer, ids, { kind, first: 1_000 });
  const [details, unread] = [await find<Mismatch>('expected'), await find<Unread>('code')];
  return reports.map((report) => ({
    ...report,
    details: details.get(report.id)!.nodes,
    unreadItems: unread.get(report.id)!.nodes,
  }));
}

async function reconcile(runId: string, repair = false): Promise<Report> {
  await ask(runId, repair);
  await drain(makeKind());
  return (await reportsOf(runId))[0]!;
}

function askToSetBack(runId: string, targetId: string) {
  const request = { runId, targetIds: [targetId], onConflict: 'SKIP', idempotencyKey: null } as const;
  return rollBackRuleRun(database.db, world.home.viewer, request);
}

const linesOfType = async (runId: string, type: string) =>
  (await linesOf(database.db, runId)).filter((line) => line.type === `automation.reconciliation.${type}`);

describe('a comparison', () => {
  test('of a run whose prices all stand finds nothing, in as many reads as it has pages', async () => {
    const runId = await applied(45, 'right');
    expect(await reconcile(runId)).toMatchObject({
      trigger: 'manual',
      totalChecked: 45,
      mismatches: 0,
      details: [],
    });
    expect(book.reads).toBe(5);
    expect(await linesOfType(runId, 'mismatch')).toEqual([]);
    expect(await linesOfType(runId, 'complete')).toHaveLength(1);
    await expectInvariants(database.db, runId);
  });

  test('finds exactly what was changed or removed, with a ledger line for each', async () => {
    const runId = await applied(45, 'drifts');
    const targets = await targetsIn(database.db, runId);
    book.prices.set('drifts-3', 1);
    book.prices.set('drifts-44', 99_999);
    book.prices.delete('drifts-20');
    const report = await reconcile(runId);
    const expected = ['drifts-3', 'drifts-20', 'drifts-44'].map((externalId) => {
      const { id: targetId, afterAmount } = targets.get(externalId)!;
      const actual = book.prices.get(externalId) ?? null;
      const difference = actual === null ? null : actual - afterAmount;
      return { targetId, externalId, expected: afterAmount, actual, difference };
    });
    expect(report).toMatchObject({ totalChecked: 45, mismatches: 3, details: expected });
    const lines = await linesOfType(runId, 'mismatch');
    expect(lines.map(({ payload }) => payload)).toEqual(expected.map((one) => expect.objectContaining(one)));
    await expectInvariants(database.db, runId);
  });

  test('takes up where a worker that died left it, and counts nothing twice', async () => {
    const runId = await applied(45, 'resumed');
    book.prices.set('resumed-1', 1);
    book.prices.set('resumed-30', 1);
    await ask(runId);
    await (await claimOf(makeKind())).process(NEVER);
    const kind = makeKind();
    await claimOf(kind, 'dead');
    expect(await kind.claim('w')).toBeNull();
    expect(await kind.recover(['dead'])).toBe(1);
    await drain(kind);
    expect((await reportsOf(runId))[0]).toMatchObject({ totalChecked: 45, mismatches: 2 });
    expect(await linesOfType(runId, 'mismatch')).toHaveLength(2);
  });

  test('of a worker that lost its claim changes nothing', async () => {
    const runId = await applied(3, 'late');
    await ask(runId);
    const claim = (await claimReconciliation(database.db, { workerId: 'slow', leaseMs: 0 }))!;
    expect(await makeKind().recover([])).toBe(1);
    const page = {
      position: '1',
      checked: 3,
      mismatches: [],
      unread: [],
      again: [],
      attempts: 0,
      delayMs: 0,
    };
    expect(await recordComparison(database.db, claim, page)).toBe(false);
    await drain(makeKind());
    expect((await reportsOf(runId))[0]).toMatchObject({ totalChecked: 3 });
  });

  test('that is cut short is handed back at no cost', async () => {
    const runId = await applied(3, 'cut');
    await ask(runId);
    const stop = new AbortController();
    book.fault = () => {
      stop.abort();
      return new Promise<never>(() => {});
    };
    const kind = makeKind();
    expect(await (await claimOf(kind)).process(stop.signal)).toBe('failure');
    book.fault = () => null;
    expect(await kind.nextDueMs()).toBeLessThanOrEqual(0);
    const [row] = await database.db.query('SELECT attempts FROM reconciliation WHERE run_id = $1', [runId]);
    expect(row).toEqual({ attempts: 0 });
    await drain(kind);
    expect(await reportsOf(runId)).toHaveLength(1);
  });
});

describe('a channel that does not give its prices', () => {
  test('is asked again, as long as its policy says', async () => {
    const runId = await applied(3, 'busy');
    let left = 2;
    book.fault = () => (left-- > 0 ? { status: 429, headers: { 'retry-after': '0' } } : null);
    expect(await reconcile(runId)).toMatchObject({ totalChecked: 3, mismatches: 0 });
    expect(book.reads).toBe(3);
  });

  test.each([
    [500, 3, 'UPSTREAM'],
    [401, 1, 'AUTH'],
  ])('HTTP %d ends it after %d reads, and the ledger says why', async (status, reads, code) => {
    const runId = await applied(3, `down-for-good-${status}`);
    book.fault = () => ({ status });
    await ask(runId);
    await drain(makeKind());
    expect(book.reads).toBe(reads);
    expect(await reportsOf(runId)).toEqual([]);
    expect(await linesOfType(runId, 'fail')).toMatchObject([{ payload: { code, trigger: 'manual' } }]);
    expect(await makeKind().nextDueMs()).toBeNull();
  });

  test('for a few of the items: those are read once more, at the end, and no other', async () => {
    const runId = await applied(25, 'patchy');
    book.prices.set('patchy-12', 1);
    let busy = 1;
    book.fault = (ids) => (ids.includes('patchy-12') && busy-- > 0 ? { status: 503 } : null);
    expect(await reconcile(runId)).toMatchObject({ totalChecked: 25, mismatches: 1, unread: 0 });
    // Three calls, and the one that failed once more.
    expect(book.reads).toBe(4);
    await expectInvariants(database.db, runId);
  });

  test('the second time either: those items are unread, and the ones after them are read once more', async () => {
    const runId = await applied(60, 'stubborn');
    // A call of each page; the first two of these calls are the first page of those read once more.
    let busy = 1;
    book.fault = (ids) => {
      const isStubborn = ids.includes('stubborn-1') || ids.includes('stubborn-21');
      return isStubborn || (ids.includes('stubborn-41') && busy-- > 0) ? { status: 503 } : null;
    };
    const report = await reconcile(runId);
    expect(report).toMatchObject({ totalChecked: 40, unread: 20 });
    expect(report.unreadItems.map(({ externalId }) => externalId)).toEqual(
      [0, 20].flatMap((from) => Array.from({ length: 10 }, (_, index) => `stubborn-${from + index + 1}`)),
    );
    await expectInvariants(database.db, runId);
  });

  test('of one item at all: the report says which, and compares the others', async () => {
    const runId = await applied(25, 'culprit');
    book.prices.set('culprit-3', 1);
    book.fault = (ids) => (ids.includes('culprit-7') ? { status: 422 } : null);
    const report = await reconcile(runId, true);
    expect(report).toMatchObject({
      totalChecked: 24,
      mismatches: 1,
      unread: 1,
      details: [{ externalId: 'culprit-3' }],
      unreadItems: [{ externalId: 'culprit-7', code: 'INVALID', message: expect.stringContaining('422') }],
    });
    expect(await linesOfType(runId, 'complete')).toMatchObject([{ level: 'WARN', payload: { unread: 1 } }]);
    const repaired = await targetsIn(database.db, report.repairRunId!);
    expect([...repaired.keys()]).toEqual(['culprit-3']);
  });

  describe('while its rate limit lets items through one by one', () => {
    test.each([
      ['the first', 1, 422, 'INVALID'],
      ['one in the middle', 12, 422, 'INVALID'],
      ['the first', 1, 503, 'UPSTREAM'],
      ['one in the middle', 12, 503, 'UPSTREAM'],
    ])(
      '%s (number %d) that answers %d is unread, and the others are compared',
      async (_, at, status, code) => {
        const runId = await applied(15, `alone-${at}-${status}`);
        const culprit = `alone-${at}-${status}-${at}`;
        await book.serve(database.db, 'shop', { rateLimit: { perSecond: 1_000_000, burst: 1 } });
        book.fault = (ids) => (ids.includes(culprit) ? { status } : null);
        const report = await reconcile(runId);
        expect(report).toMatchObject({
          totalChecked: 14,
          mismatches: 0,
          unread: 1,
          unreadItems: [{ externalId: culprit, code }],
        });
        await expectInvariants(database.db, runId);
      },
    );

    test.each([
      [500, 20],
      [401, 1],
    ])('a channel that answers each with %d is given up after %d reads', async (status, reads) => {
      const runId = await applied(25, `all-${status}`);
      await book.serve(database.db, 'shop', { rateLimit: { perSecond: 1_000_000, burst: 1 } });
      book.fault = () => ({ status });
      await ask(runId);
      await drain(makeKind());
      expect(book.reads).toBe(reads);
      expect(await linesOfType(runId, 'fail')).toHaveLength(1);
    });
  });

  test('any more in the middle: what was compared is reported, and the rest as unread', async () => {
    const runId = await applied(45, 'half');
    book.fault = (ids) => (ids.includes('half-21') || ids.includes('half-31') ? { status: 500 } : null);
    const report = await reconcile(runId);
    expect(report).toMatchObject({ totalChecked: 20, unread: 25 });
    expect(report.unreadItems.map(({ externalId }) => externalId)).toEqual(
      Array.from({ length: 25 }, (_, index) => `half-${index + 21}`),
    );
    expect(report.unreadItems[0]).toMatchObject({ code: 'UPSTREAM' });
  });

  test('asked by the schedule, is asked on until its window has passed', async () => {
    const runId = await applied(3, 'patient');
    book.fault = () => ({ status: 500 });
    const kind = makeKind();
    const attempt = async (): Promise<void> => {
      await database.db.query('UPDATE reconciliation SET next_attempt_at = clock_timestamp()');
      await (await claimOf(kind)).process(NEVER);
    };
    await database.db.query(
      `INSERT INTO reconciliation (id, tenant_id, run_id, trigger, actor)
       VALUES (gen_random_uuid(), 'default', $1, 'immediate', 'system')`,
      [runId],
    );
    for (let count = 0; count < 5; count += 1) await attempt();
    expect(await kind.nextDueMs()).toBeGreaterThan(0);
    expect(await linesOfType(runId, 'fail')).toEqual([]);
    await database.db.query(`UPDATE reconciliation SET created_at = created_at - interval '4 minutes'`);
    await attempt();
    expect(await linesOfType(runId, 'fail')).toMatchObject([{ payload: { trigger: 'immediate' } }]);
  });

  test('because its configuration cannot be used ends it at once', async () => {
    const runId = await applied(3, 'broken');
    await database.db.query(
      `UPDATE channel SET config = '{}', updated_at = clock_timestamp() WHERE name = 'shop'`,
    );
    await ask(runId);
    await drain(makeKind());
    expect(await linesOfType(runId, 'fail')).toMatchObject([{ payload: { code: 'INVALID' } }]);
  });
});

describe('the gate of the channel', () => {
  test('lets no more through than its rate allows, and what is left over waits', async () => {
    const runId = await applied(30, 'paced');
    await book.serve(database.db, 'shop', { rateLimit: { perSecond: 0.001, burst: 12 } });
    await ask(runId);
    const kind = makeKind();
    await (await claimOf(kind)).process(NEVER);
    await (await claimOf(kind)).process(NEVER);
    expect(book.reads).toBe(2);
    const [row] = await database.db.query('SELECT checked, attempts FROM reconciliation WHERE run_id = $1', [
      runId,
    ]);
    expect(row).toEqual({ checked: 12, attempts: 0 });
    expect(await kind.nextDueMs()).toBeGreaterThan(0);
  });

  test('is shut while the circuit is open, and throttled reads open it', async () => {
    const runId = await applied(3, 'throttled');
    await book.serve(database.db, 'shop', { circuit: { toleratedThrottles: 0, openMs: HOUR } });
    book.fault = () => ({ status: 429, headers: { 'retry-after': '0' } });
    await ask(runId);
    await database.db.query('DELETE FROM channel_throttle');
    let throttled = 0;
    const kind = makeKind(HOUR, { onThrottle: (answers) => (throttled += answers) });
    await (await claimOf(kind)).process(NEVER);
    expect(throttled).toBe(1);
    expect(await database.db.query('SELECT count FROM channel_throttle')).toEqual([{ count: 1 }]);
    const [channel] = await database.db.query(
      `SELECT circuit FROM channel WHERE tenant_id = 'default' AND name = 'shop'`,
    );
    expect(channel).toEqual({ circuit: 'OPEN' });
    await (await claimOf(kind)).process(NEVER);
    expect(book.reads).toBe(1);
    await database.db.query(
      `UPDATE channel SET circuit = 'CLOSED', circuit_open_until = NULL, consecutive_429 = 0`,
    );
  });
});

describe('what is no mismatch', () => {
  test('a price that a later run has set', async () => {
    const first = await applied(3, 'again');
    const { id: second } = await makeQueuedRun(database.db, world.home, {
      targets: named('again-2').map((target) => ({
        ...target,
        after: { unit_amount: 777, currency: 'EUR' },
      })),
    });
    await drain(makeRuleTargets(database.db, log));
    expect(await reconcile(first)).toMatchObject({ totalChecked: 3, mismatches: 0 });
    book.prices.set('again-2', 5);
    expect(await reconcile(first)).toMatchObject({ mismatches: 0 });
    expect(await reconcile(second)).toMatchObject({ mismatches: 1 });
  });

  test('a price that is being set back', async () => {
    const runId = await applied(3, 'undone');
    const [target] = (await targetsIn(database.db, runId)).values();
    await askToSetBack(runId, target!.id);
    book.prices.set(target!.externalId, 1);
    expect(await reconcile(runId)).toMatchObject({ totalChecked: 2, mismatches: 0 });
    await database.db.query('UPDATE rule_run SET paused = true WHERE id = $1', [runId]);
  });

  test('a price that was set back while it was read', async () => {
    const runId = await applied(2, 'meanwhile');
    book.fault = async () => {
      book.fault = () => null;
      book.prices.set('meanwhile-1', 1);
      book.prices.set('meanwhile-2', 1);
      const [first] = (await targetsIn(database.db, runId)).values();
      await askToSetBack(runId, first!.id);
      return null;
    };
    const { mismatches, details } = await reconcile(runId);
    expect([mismatches, details.map(({ externalId }) => externalId)]).toEqual([1, ['meanwhile-2']]);
    await database.db.query('UPDATE rule_run SET paused = true WHERE id = $1', [runId]);
  });
});

describe('a repair', () => {
  test('pushes what differs again, by a run of its own; the applied targets stay as they are', async () => {
    const runId = await applied(5, 'mended');
    book.prices.set('mended-2', 1_400);
    book.prices.delete('mended-4');
    const before = await targetsIn(database.db, runId);
    const { repairRunId, mismatches } = await reconcile(runId, true);
    expect(mismatches).toBe(2);
    await drain(makeRuleTargets(database.db, log));
    expect(await runOf(database.db, repairRunId!)).toMatchObject({
      status: 'APPLIED',
      source: 'reconciliation',
      totalCount: 1,
      metadata: { repairOf: runId },
      correlationId: (await runOf(database.db, runId))!.correlationId,
    });
    const [repaired] = (await targetsIn(database.db, repairRunId!)).values();
    expect(repaired).toMatchObject({ externalId: 'mended-2', beforeAmount: 1_400, afterAmount: 1_501 });
    expect(book.prices.get('mended-2')).toBe(1_501);
    expect(await targetsIn(database.db, runId)).toEqual(before);
  });

  test('is made once, whatever a person has done with its run meanwhile', async () => {
    const { db } = database;
    const { viewer } = world.home;
    const runId = await applied(3, 'twice');
    book.prices.set('twice-1', 1);
    book.prices.set('twice-2', 1);
    await ask(runId, true);
    await (await claimOf(makeKind())).process(NEVER);
    const claim = (await claimReconciliation(db, { workerId: 'w', leaseMs: HOUR }))!;
    const { maxTargets } = await findGuardrails(db, viewer);
    await saveGuardrails(db, viewer, { maxTargets: 1, maxChangePercent: null });
    const repairId = await repairMismatches(db, claim);
    await saveGuardrails(db, viewer, { maxTargets, maxChangePercent: null });
    expect(await runOf(db, repairId!)).toMatchObject({ status: 'PREVIEW' });
    await cancelRuleRun(db, viewer, { runId: repairId!, idempotencyKey: null });
    expect(await repairMismatches(db, claim)).toBe(repairId);
  });

  test('of nothing makes no run', async () => {
    const runId = await applied(2, 'sound');
    expect(await reconcile(runId, true)).toMatchObject({ mismatches: 0, repairRunId: null });
  });
});
