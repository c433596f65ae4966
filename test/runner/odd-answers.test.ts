// What a channel says of one item, and the database cannot keep as it is or nobody can use: it must cost nobody
// but that item, nor hold up the channel.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { RuleTargets } from '../../src/runner/rule-targets.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { batchForm, idsIn } from '../connectors/http/support.js';
import { ScriptedServer, type ScriptedReply } from '../connectors/support.js';
import { expectInvariants } from '../store/invariants.js';
import { linesOf } from '../store/rows.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld, type World } from '../support/fixtures.js';
import { drain, makeRuleTargets, named, runOf, targetsIn } from './shop-world.js';
import { KeptLog } from './support.js';

const NUL = 'no\0';
const HALF = 'no \ud83d';
/** Cut anywhere in the middle, half a character is left. */
const EMOJI = '🐘'.repeat(2_000);

let database: TestDatabase;
let world: World;
let server: ScriptedServer;
let kind: RuleTargets;
/** What the channel says of an item; '' is that it took it. */
let say: (id: string) => string;
/** An answer to the whole of a call, when it is not null. */
let answer: (ids: readonly string[], isRead: boolean) => ScriptedReply | null;
let show: (ids: readonly string[]) => ScriptedReply;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(async () => {
  server = await ScriptedServer.start((call) => reply(idsIn(call), call.path.endsWith('/search')));
  await database.db.query(
    `UPDATE channel SET kind = 'http', config = $1, updated_at = clock_timestamp() WHERE tenant_id = 'default'`,
    [JSON.stringify(batchForm(server.origin))],
  );
  kind = makeRuleTargets(database.db, new KeptLog());
  answer = () => null;
  say = () => '';
  show = (ids) => pricesOf(ids, () => 1_500);
});
afterEach(() => server.stop());
afterAll(() => database.drop());

function reply(ids: readonly string[], isRead: boolean): ScriptedReply {
  const own = answer(ids, isRead);
  if (own) return own;
  if (isRead) return show(ids);
  const results = ids.map((sku) => {
    const reason = say(sku);
    return reason === '' ? { sku, status: 'ok' } : { sku, status: 'bad', reason };
  });
  return { body: { results } };
}

function pricesOf(ids: readonly string[], amountOf: (id: string) => unknown): ScriptedReply {
  return { body: { prices: ids.map((sku) => ({ sku, amount: amountOf(sku) })) } };
}

function askToRollBack(runId: string) {
  const request = { runId, targetIds: null, onConflict: 'SKIP', idempotencyKey: null } as const;
  return rollBackRuleRun(database.db, world.home.viewer, request);
}

async function apply(...ids: string[]): Promise<string> {
  const { id } = await makeQueuedRun(database.db, world.home, { targets: named(...ids) });
  await drain(kind);
  return id;
}

async function errorsIn(runId: string) {
  const targets = await targetsIn(database.db, runId);
  return [...targets].map(([id, { status, errorMessage }]) => [id, status, errorMessage]);
}

describe.each([
  ['NUL', NUL, 'no\ufffd'],
  ['half a character', HALF, 'no \ufffd'],
  ['a long message', EMOJI, expect.stringMatching(/^🐘{499}…$/u)],
])('%s', (_, message, kept) => {
  test('fails the item, with what can be kept of it; the others are applied', async () => {
    say = (id) => (id === 'b' ? message : '');
    const runId = await apply('a', 'b', 'c');
    expect(await errorsIn(runId)).toEqual([
      ['a', 'APPLIED', null],
      ['b', 'FAILED', kept],
      ['c', 'APPLIED', null],
    ]);
    expect(await runOf(database.db, runId)).toMatchObject({ status: 'PARTIAL' });
    await expectInvariants(database.db, runId);
  });

  test('of every item ends the run, and of a rollback leaves the item', async () => {
    const runId = await apply('a', 'b');
    say = (id) => (id === 'b' ? message : '');
    await askToRollBack(runId);
    await drain(kind);
    expect(await errorsIn(runId)).toEqual([
      ['a', 'ROLLED_BACK', null],
      ['b', 'APPLIED', kept],
    ]);
    const lines = await linesOf(database.db, runId);
    expect(lines.find(({ type }) => type === 'rule_target.roll_back_fail')).toMatchObject({ message: kept });
    await expectInvariants(database.db, runId);
  });
});

test('a rollback reads past one item that the channel refuses to show, or shows no price for', async () => {
  const runId = await apply('a', 'b', 'c', 'd');
  const before = server.calls.length;
  show = (ids) =>
    ids.includes('b') ? { status: 422 } : pricesOf(ids, (id) => (id === 'c' ? 'cheap' : 1_500));
  await askToRollBack(runId);
  await drain(kind);
  expect(await errorsIn(runId)).toEqual([
    ['a', 'ROLLED_BACK', null],
    ['b', 'APPLIED', expect.stringContaining('422')],
    ['c', 'APPLIED', expect.stringContaining('no amount of EUR')],
    ['d', 'ROLLED_BACK', null],
  ]);
  expect(await runOf(database.db, runId)).toMatchObject({ error: '2 targets were not set back: 2 INVALID' });
  expect(server.calls.length).toBeGreaterThan(before);
  await expectInvariants(database.db, runId);
});

test('a read that fails in passing costs an attempt of its own items only', async () => {
  const ids = Array.from({ length: 15 }, (_, index) => `p${index + 1}`);
  const runId = await apply(...ids);
  let busy = 1;
  show = (asked) => (asked.includes('p1') && busy-- > 0 ? { status: 503 } : pricesOf(asked, () => 1_500));
  await askToRollBack(runId);
  await drain(kind);
  expect(await runOf(database.db, runId)).toMatchObject({ status: 'ROLLED_BACK' });
  const rows = await database.db.query<{ attempts: number; count: number }>(
    `SELECT rollback_attempts AS attempts, count(*)::int AS count FROM rule_target WHERE run_id = $1
     GROUP BY 1 ORDER BY 1`,
    [runId],
  );
  expect(rows).toEqual([
    { attempts: 1, count: 5 },
    { attempts: 2, count: 10 },
  ]);
  await expectInvariants(database.db, runId);
});

describe('401', () => {
  test('for a call, and for one that carries no item: what is left fails without a call, in any batch', async () => {
    const ids = Array.from({ length: 200 }, (_, index) => `u${index + 1}`);
    answer = () => ({ status: 401 });
    const runId = await apply(...ids);
    expect(await runOf(database.db, runId)).toMatchObject({ status: 'FAILED', failedCount: 200 });
    const [row] = await database.db.query<{ codes: string[]; attempts: number }>(
      `SELECT array_agg(DISTINCT error_code) AS codes, max(attempts) AS attempts FROM rule_target WHERE run_id = $1`,
      [runId],
    );
    expect(row).toEqual({ codes: ['AUTH'], attempts: 1 });
    // Ten batches of twenty: the first is sent, each of them asks.
    expect(server.calls.filter(({ path }) => path === '/prices').length).toBeLessThanOrEqual(2);
    await expectInvariants(database.db, runId);
    answer = () => null;
    expect(await runOf(database.db, await apply('after'))).toMatchObject({ status: 'APPLIED' });
  });

  test('for a call alone is about its items, and the others are sent', async () => {
    answer = (asked, isRead) => (!isRead && asked.includes('i1') ? { status: 401 } : null);
    const ids = Array.from({ length: 40 }, (_, index) => `i${index + 1}`);
    expect(await runOf(database.db, await apply(...ids))).toMatchObject({
      status: 'PARTIAL',
      appliedCount: 30,
      failedCount: 10,
    });
  });
});

test('a result that the database refuses fails alone, with the reason; the rest of its batch is settled', async () => {
  await database.db.query(
    `ALTER TABLE rule_target ADD CONSTRAINT fussy CHECK (error_message IS DISTINCT FROM 'poison') NOT VALID`,
  );
  say = (id) => (id === 'c' ? 'poison' : id === 'd' ? 'no' : '');
  const runId = await apply('a', 'b', 'c', 'd');
  expect(await errorsIn(runId)).toEqual([
    ['a', 'APPLIED', null],
    ['b', 'APPLIED', null],
    ['c', 'FAILED', expect.stringContaining('could not be recorded')],
    ['d', 'FAILED', 'no'],
  ]);
  expect((await targetsIn(database.db, runId)).get('c')).toMatchObject({ errorCode: 'UNRECORDED' });
  expect(await runOf(database.db, runId)).toMatchObject({ status: 'PARTIAL' });
  await database.db.query('ALTER TABLE rule_target DROP CONSTRAINT fussy');
  await expectInvariants(database.db, runId);
});
