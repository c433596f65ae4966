// The doorbell: one NOTIFY per run and statement, that says where the news is and never what.
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { claimTargets } from '../../src/store/claim.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { appendRunLines } from '../../src/store/ledger.js';
import { connect, createTestDatabase, type TestDatabase } from '../support/database.js';
import {
  makeQueuedRun,
  makeRow,
  makeRuleRun,
  seedWorld,
  targetsOf,
  type World,
} from '../support/fixtures.js';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { partitionMachine } from '../../src/domain/partition.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';

let database: TestDatabase;
let world: World;
let listener: pg.Client;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  listener = await connect(database.url);
  await listener.query('LISTEN runledger');
});
afterAll(async () => {
  await listener.end();
  await database.drop();
});

interface Bell {
  readonly kind: string;
  readonly id: string;
  readonly seq: number;
  readonly tenant: string;
}

/** Every bell that `work` rang. PostgreSQL delivers in the order of commits, so a mark at either end bounds them. */
async function bellsOf(work: () => Promise<unknown>): Promise<Bell[]> {
  let payloads: string[] = [];
  const hear = ({ payload }: pg.Notification): void => void payloads.push(payload!);
  listener.on('notification', hear);
  await mark('begin');
  payloads = [];
  await work();
  await mark('end');
  listener.off('notification', hear);
  payloads.pop();
  for (const payload of payloads) expect(Buffer.byteLength(payload)).toBeLessThan(300);
  return payloads.map((payload) => {
    const { at, ...bell } = JSON.parse(payload) as Bell & { readonly at: number };
    expect(Number.isSafeInteger(at)).toBe(true);
    return bell;
  });
}

async function mark(word: string): Promise<void> {
  const heard = new Promise<void>((resolve) => {
    const hear = ({ payload }: pg.Notification): void => {
      if (payload !== word) return;
      listener.off('notification', hear);
      resolve();
    };
    listener.on('notification', hear);
  });
  await database.db.query(`SELECT pg_notify('runledger', $1)`, [word]);
  await heard;
}

async function lastSeq(runId: string): Promise<number> {
  const [row] = await database.db.query<{ seq: number }>(
    'SELECT max(seq) AS seq FROM run_event WHERE run_id = $1',
    [runId],
  );
  return row!.seq;
}

test('a statement that moves many targets of a run rings once, with the newest seq', async () => {
  const { id } = await makeRuleRun(database.db, world.home, { targets: targetsOf(200) });
  const bells = await bellsOf(() =>
    database.db.query(`UPDATE rule_target SET status = 'QUEUED' WHERE run_id = $1`, [id]),
  );
  expect(bells).toEqual([{ kind: 'RULE', id, seq: await lastSeq(id), tenant: 'default' }]);
  expect(bells[0]!.seq).toBe(202);
});

test('a statement that moves targets of two runs rings once for each', async () => {
  const runs = [
    await makeRuleRun(database.db, world.home, { targets: targetsOf(20) }),
    await makeRuleRun(database.db, world.other, { targets: targetsOf(30) }),
  ];
  const ids = runs.map(({ id }) => id);
  const bells = await bellsOf(() =>
    database.db.query(`UPDATE rule_target SET status = 'QUEUED' WHERE run_id = ANY($1)`, [ids]),
  );
  expect(bells).toHaveLength(2);
  expect(bells).toEqual(
    expect.arrayContaining([
      { kind: 'RULE', id: ids[0], seq: 22, tenant: 'default' },
      { kind: 'RULE', id: ids[1], seq: 32, tenant: 'other' },
    ]),
  );
});

test('what is refused or rolled back rings nothing, and neither does a plain UPDATE', async () => {
  const { id } = await makeQueuedRun(database.db, world.home);
  const bells = await bellsOf(async () => {
    await database.db.query(`UPDATE rule_run SET status = 'APPLIED' WHERE id = $1`, [id]).catch(() => {});
    await database.db.query('UPDATE rule_run SET paused = true WHERE id = $1', [id]);
    await database.db.query('UPDATE rule_target SET error_message = NULL WHERE run_id = $1', [id]);
  });
  expect(bells).toEqual([]);
});

test('claim, settle and appended lines ring, each statement once', async () => {
  const { id: runId } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(50) });
  const bells = await bellsOf(async () => {
    const claim = await claimTargets(database.db, { runId, workerId: 'w', limit: 50, leaseMs: 60_000 });
    const line = { type: 'log', level: 'INFO' as const, message: 'x'.repeat(20_000), payload: {} };
    await database.db.transaction('w', (connection) =>
      appendRunLines(connection, 'RULE', runId, [line, line]),
    );
    const settled = claim!.targets.map(({ id }) => ({
      targetId: id,
      settlement: { event: 'succeed' as const },
    }));
    await settleIfClaimed(database.db, claim!, settled);
  });
  // created, 1 batch of targets, queue, 50 include; then start, 50 claims; 2 lines; 50 successes, complete.
  expect(bells.map(({ seq }) => seq)).toEqual([54, 104, 106, 156, 157]);
});

test.each([
  { machine: ruleRunMachine, kind: 'RULE', seqs: [1] },
  { machine: partitionMachine, kind: 'PIPELINE', seqs: [1] },
  { machine: opsRunMachine, kind: 'OPS', seqs: [1] },
])('a new $kind run rings', async ({ machine, kind, seqs }) => {
  let runId = '';
  const bells = await bellsOf(async () => {
    ({ runId } = await makeRow(database.db, world.other, machine));
  });
  expect(bells).toEqual(seqs.map((seq) => ({ kind, id: runId, seq, tenant: 'other' })));
});
