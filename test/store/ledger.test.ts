// The ledger: append-only, gap-free whoever writes at once, and it names who did it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { claimTargets } from '../../src/store/claim.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { appendRunLines, listTargetHistories, readLedger, type Line } from '../../src/store/ledger.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import {
  fire,
  makeQueuedRun,
  makeRowIn,
  makeRuleRun,
  seedWorld,
  targetsOf,
  type World,
} from '../support/fixtures.js';
import { expectInvariants } from './invariants.js';
import { linesOf, sqlFaultOf } from './rows.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

const note = (message: string): Line => ({ type: 'log', level: 'INFO', message, payload: {} });

describe('append-only', () => {
  test.each([
    `UPDATE run_event SET message = 'nothing happened'`,
    'UPDATE run_event SET seq = seq WHERE false',
    'DELETE FROM run_event',
    'DELETE FROM run_event WHERE false',
    'TRUNCATE run_event',
    `INSERT INTO run_event SELECT * FROM run_event ON CONFLICT (run_id, seq) DO UPDATE SET message = 'other'`,
  ])('%s is refused', async (statement) => {
    const { db } = database;
    const { id } = await makeRuleRun(db, world.home);
    const before = await linesOf(db, id);
    const fault = await sqlFaultOf(db.query(statement));
    expect(fault.code).toBe('RL003');
    expect(fault.message).toMatch(/^run_event is append-only: (UPDATE|DELETE|TRUNCATE) is refused$/);
    expect(await linesOf(db, id)).toEqual(before);
  });
});

describe('who did it', () => {
  test('a transaction names its actor', async () => {
    const row = await makeRowIn(database.db, world.home, ruleRunMachine, 'PREVIEW');
    await fire(database.db, row, 'queue', "key:o'neill");
    expect((await linesOf(database.db, row.id)).at(-1)).toMatchObject({ actor: "key:o'neill" });
  });

  test('raw SQL goes by its role, also after a transaction on the same connection', async () => {
    const row = await makeRowIn(database.db, world.home, ruleRunMachine, 'QUEUED');
    const [role] = await database.db.query<{ name: string }>('SELECT session_user AS name');
    await database.db.query(`UPDATE rule_run SET status = 'CANCELLED' WHERE id = $1`, [row.id]);
    expect((await linesOf(database.db, row.id)).at(-1)).toMatchObject({ actor: `sql:${role!.name}` });
  });
});

describe('seq', () => {
  test('has no gap when many write to one run at once', async () => {
    const { db } = database;
    const { id: runId } = await makeQueuedRun(db, world.home, { targets: targetsOf(60) });
    const work = async (worker: number): Promise<void> => {
      const workerId = `worker-${worker}`;
      for (let round = 0; round < 3; round += 1) {
        const claim = await claimTargets(db, { runId, workerId, limit: 5, leaseMs: 60_000 });
        await db.transaction(workerId, (connection) =>
          appendRunLines(connection, 'RULE', runId, [note('a'), note('b')]),
        );
        if (!claim) continue;
        const settled = claim.targets.map(({ id }) => ({
          targetId: id,
          settlement: { event: 'succeed' as const },
        }));
        await settleIfClaimed(db, claim, settled);
      }
    };
    await Promise.all(Array.from({ length: 8 }, (_, worker) => work(worker)));
    await expectInvariants(db, runId);
    const lines = await linesOf(db, runId);
    expect(lines.filter(({ type }) => type === 'log')).toHaveLength(8 * 3 * 2);
    expect(lines.filter(({ type }) => type === 'rule_target.succeed')).toHaveLength(60);
  });

  test('has no gap where a transaction was rolled back', async () => {
    const { db } = database;
    const { id: runId } = await makeRuleRun(db, world.home);
    const undone = db.transaction('test', async (connection) => {
      await appendRunLines(connection, 'RULE', runId, [note('undone')]);
      throw new Error('changed my mind');
    });
    await expect(undone).rejects.toThrow('changed my mind');
    await db.transaction('test', (connection) => appendRunLines(connection, 'RULE', runId, [note('done')]));
    await expectInvariants(db, runId);
    expect((await linesOf(db, runId)).map(({ message }) => message)).not.toContain('undone');
  });
});

describe('lines', () => {
  test('are appended in the given order, whole', async () => {
    const { db } = database;
    const { id: runId } = await makeRuleRun(db, world.home, { targets: targetsOf(1) });
    const [target] = await db.query<{ id: string }>('SELECT id::text FROM rule_target WHERE run_id = $1', [
      runId,
    ]);
    const lines: Line[] = [
      { type: 'log', level: 'DEBUG', message: 'ünïcode “quoted”', payload: { list: [1, null, { a: 'b' }] } },
      { type: 'note', level: 'ERROR', message: '', payload: {}, targetId: target!.id },
    ];
    await db.transaction('me', (connection) => appendRunLines(connection, 'RULE', runId, lines));
    const portion = { lines: 10, bytes: 10_000 };
    const read = await readLedger(db, world.home.viewer, runId, 2, portion);
    expect(read.rows).toMatchObject(
      lines.map((line, index) => ({ ...line, seq: index + 3, actor: 'me', runKind: 'RULE' })),
    );
    expect((await readLedger(db, world.other.viewer, runId, 0, portion)).rows).toEqual([]);
    expect((await readLedger(db, world.home.viewer, 'garbage', 0, portion)).rows).toEqual([]);
  });

  test('a target has its own history, and only its tenant sees it', async () => {
    const { db } = database;
    const { id: runId } = await makeQueuedRun(db, world.home, { targets: targetsOf(2) });
    const claim = await claimTargets(db, { runId, workerId: 'w', limit: 1, leaseMs: 60_000 });
    const claimed = claim!.targets[0]!.id;
    await settleIfClaimed(db, claim!, [
      { targetId: claimed, settlement: { event: 'exhaust', code: 'INVALID', message: 'no such item' } },
    ]);
    const histories = await listTargetHistories(db, world.home.viewer, [claimed, 'garbage']);
    expect(histories.get('garbage')).toEqual([]);
    expect(histories.get(claimed)).toMatchObject([
      { type: 'rule_target.include', level: 'INFO', payload: { from: 'PREVIEW', to: 'QUEUED' } },
      {
        type: 'rule_target.claim',
        actor: 'w',
        payload: { attempt: 1, targetId: claimed, externalId: 'sku-1' },
      },
      {
        type: 'rule_target.exhaust',
        level: 'ERROR',
        message: 'no such item',
        payload: { attempt: 1, error: { code: 'INVALID', message: 'no such item' } },
      },
    ]);
    expect((await listTargetHistories(db, world.other.viewer, [claimed])).get(claimed)).toEqual([]);
  });

  test('histories are whole when one statement moves thousands, and when claims lie across each other', async () => {
    const { db } = database;
    const { id: runId } = await makeQueuedRun(db, world.home, { targets: targetsOf(2_500) });
    const claims = [
      await claimTargets(db, { runId, workerId: 'w', limit: 1_200, leaseMs: 60_000 }),
      await claimTargets(db, { runId, workerId: 'v', limit: 2_000, leaseMs: 60_000 }),
    ];
    for (const claim of claims) {
      const settled = claim!.targets.map(({ id }, index) => ({
        targetId: id,
        settlement:
          index % 3 === 0
            ? ({ event: 'retry', code: 'UPSTREAM', message: 'later', delayMs: 60_000 } as const)
            : ({ event: 'succeed' } as const),
      }));
      await settleIfClaimed(db, claim!, settled);
    }
    const lines = await linesOf(db, runId);
    const ids = claims.flatMap((claim) => claim!.targets.map(({ id }) => id));
    const histories = await listTargetHistories(db, world.home.viewer, ids);
    expect(histories.size).toBe(2_500);
    const told = [...histories.values()].flat();
    expect(told.length).toBe(3 * 2_500);
    expect(new Set(told.map(({ seq }) => seq)).size).toBe(told.length);
    expect(lines.filter(({ type }) => type.startsWith('rule_target.')).length).toBe(told.length);
    for (const [id, history] of histories) {
      expect(history.every(({ targetId }) => targetId === id)).toBe(true);
      expect(history.map(({ payload }) => payload['to'])).toEqual([
        'QUEUED',
        'APPLYING',
        history[2]!.type === 'rule_target.retry' ? 'QUEUED' : 'APPLIED',
      ]);
    }
    await expectInvariants(db, runId);
  });

  test('a history has what was said of a target beside its changes', async () => {
    const { db } = database;
    const { id: runId } = await makeQueuedRun(db, world.home, { targets: targetsOf(2) });
    const claim = await claimTargets(db, { runId, workerId: 'w', limit: 1, leaseMs: 60_000 });
    const { id } = claim!.targets[0]!;
    await db.transaction('me', (connection) =>
      appendRunLines(connection, 'RULE', runId, [{ ...note('looked at'), targetId: id }]),
    );
    const histories = await listTargetHistories(db, world.home.viewer, [id]);
    expect(histories.get(id)!.map(({ type }) => type)).toEqual([
      'rule_target.include',
      'rule_target.claim',
      'log',
    ]);
  });
});
