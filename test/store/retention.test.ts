// Retention: what goes, what stays, whose it is, and that nothing else can delete.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { partitionMachine } from '../../src/domain/partition.js';
import { ruleRunMachine, type RuleRunStatus } from '../../src/domain/rule-run.js';
import { countDeadLetters, listDeadLetters } from '../../src/store/dead-letter.js';
import type { Database } from '../../src/store/db.js';
import { examine } from '../../src/store/doctor.js';
import { listRunEvents } from '../../src/store/ledger.js';
import { findPipelineRuns } from '../../src/store/pipeline-run.js';
import { countDueRuns, pruneDueRuns } from '../../src/store/prune.js';
import { askToReconcile, listFindings, listReconciliations } from '../../src/store/reconciliation.js';
import { rollBackRuleRun } from '../../src/store/roll-back.js';
import { cancelRuleRun } from '../../src/store/rule-run-control.js';
import { findRuleRun } from '../../src/store/rule-run-row.js';
import { createRuleRun } from '../../src/store/rule-run.js';
import { findRulePreviews } from '../../src/store/target-summary.js';
import { readVersion } from '../../src/store/migrate.js';
import { createTestDatabase, MIGRATIONS, type TestDatabase } from '../support/database.js';
import {
  fire,
  makeQueuedRun,
  makeRowIn,
  newRuleRun,
  seedWorld,
  viewerOf,
  type World,
} from '../support/fixtures.js';
import { age, droppedRun, endedRun, keepFor, NOTHING, rowsOf } from '../support/retention.js';
import { expectInvariants } from './invariants.js';
import { countRows, sqlFaultOf } from './rows.js';

let database: TestDatabase;
let world: World;

beforeEach(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterEach(() => database.drop());

const query = <Row extends Record<string, unknown>>(sql: string, values: unknown[] = []) =>
  database.db.query<Row>(sql, values);
const runOf = (id: string) => findRuleRun(database.db, world.home.viewer, id);
const prune = () => pruneDueRuns(database.db);

async function isWhole(runId: string): Promise<boolean> {
  return (await rowsOf(database.db, runId))['run_event']! > 0;
}

async function expectHealthy(): Promise<void> {
  for await (const { name, count, findings } of examine(database.db, await readVersion(MIGRATIONS)))
    expect({ name, count, findings }).toEqual({ name, count: 0, findings: [] });
}

test('without a policy nothing is ever deleted', async () => {
  await endedRun(database.db, world.home, 'FAILED', 5_000);
  await keepFor(database.db, world.home, 'RULE', 1);
  await keepFor(database.db, world.home, 'RULE', null);
  const before = await countRows(database.db);
  expect(await prune()).toEqual({ runs: 0, rows: 0 });
  expect(await countRows(database.db)).toEqual({ ...before, retention_clock: 1 });
});

describe('a run that has outlived its policy', () => {
  test('loses its lines and targets; its row, its counts and one record of what was deleted stay', async () => {
    const runId = await endedRun(database.db, world.home, 'FAILED', 31);
    const before = (await runOf(runId))!;
    await keepFor(database.db, world.home, 'RULE', 30);
    expect(await prune()).toEqual({ runs: 1, rows: before.lastSeq + 3 });
    expect(await rowsOf(database.db, runId)).toEqual(NOTHING);
    expect(await runOf(runId)).toEqual({
      ...before,
      prunedAt: expect.any(Date) as Date,
      prunedSeq: before.lastSeq,
    });
    expect(await query('SELECT * FROM retention_audit')).toEqual([
      {
        run_id: runId,
        run_kind: 'RULE',
        tenant_id: 'default',
        status: 'FAILED',
        keep_days: 30,
        rollback_days: null,
        policy_by: 'key:default',
        actor: 'system',
        from_seq: 1,
        to_seq: before.lastSeq,
        lines: before.lastSeq,
        targets: 3,
        partitions: 0,
        rejected_records: 0,
        idempotency_keys: 0,
        begun_at: expect.any(Date) as Date,
        finished_at: expect.any(Date) as Date,
      },
    ]);
    expect(await query('SELECT * FROM retention_work')).toEqual([]);
    await expectHealthy();
    expect(await prune()).toEqual({ runs: 0, rows: 0 });
  });

  test('keeps the figures of its preview and of its comparisons, not their lists', async () => {
    const runId = await droppedRun(database.db, world.home, 31);
    await query(
      `INSERT INTO reconciliation_report (id, tenant_id, run_id, trigger, total_checked, mismatches, details)
       VALUES (gen_random_uuid(), 'default', $1, 'manual', 7, 1, '[{"targetId": "1", "expected": 1}]')`,
      [runId],
    );
    await keepFor(database.db, world.home, 'RULE', 30);
    await prune();
    const previews = await findRulePreviews(database.db, world.home.viewer, [runId]);
    expect(previews.get(runId)).toMatchObject({ count: 3 });
    const reports = await listReconciliations(database.db, world.home.viewer, [runId]);
    expect(reports.get(runId)).toMatchObject([{ totalChecked: 7, mismatches: 1 }]);
    const { id } = reports.get(runId)![0]!;
    const request = { kind: 'expected', first: 10 } as const;
    const found = await listFindings(database.db, world.home.viewer, [id], request);
    expect(found.get(id)!.nodes).toEqual([]);
  });

  test('is no longer among the dead letters, counted or listed', async () => {
    const old = await endedRun(database.db, world.home, 'FAILED', 31);
    const young = await endedRun(database.db, world.home, 'FAILED', 29);
    await keepFor(database.db, world.home, 'RULE', 30);
    const filter = { projectId: null, runId: null, errorCode: null };
    const count = () => countDeadLetters(database.db, world.home.viewer, filter);
    expect(await count()).toBe(6);
    await prune();
    expect([await isWhole(old), await isWhole(young)]).toEqual([false, true]);
    const { nodes } = await listDeadLetters(database.db, world.home.viewer, {
      first: 10,
      after: null,
      filter,
    });
    expect([await count(), nodes.length]).toEqual([3, 3]);
  });

  test('gives its idempotency keys back, and no other', async () => {
    const { viewer } = world.home;
    const kept = await createRuleRun(database.db, viewer, newRuleRun(world.home, { idempotencyKey: 'kept' }));
    const { id } = await createRuleRun(
      database.db,
      viewer,
      newRuleRun(world.home, { idempotencyKey: 'gone' }),
    );
    await cancelRuleRun(database.db, viewer, { runId: id, idempotencyKey: 'gone' });
    await age(database.db, 'RULE', id, 31);
    await keepFor(database.db, world.home, 'RULE', 30);
    await prune();
    expect(await query('SELECT key, run_id FROM idempotency_key')).toEqual([
      { key: 'kept', run_id: kept.id },
    ]);
    expect(await query('SELECT idempotency_keys FROM retention_audit')).toEqual([{ idempotency_keys: 2 }]);
  });
});

describe('a run that can still be rolled back', () => {
  test.each<RuleRunStatus>(['APPLIED', 'PARTIAL', 'CANCELLED'])(
    '%s: is kept until rollbackDays',
    async (status) => {
      const runId = await endedRun(database.db, world.home, status, 100);
      await keepFor(database.db, world.home, 'RULE', 30);
      await prune();
      expect(await isWhole(runId)).toBe(true);
      await keepFor(database.db, world.home, 'RULE', 30, 101);
      await prune();
      expect(await isWhole(runId)).toBe(true);
      await keepFor(database.db, world.home, 'RULE', 30, 99);
      await prune();
      expect(await rowsOf(database.db, runId)).toEqual(NOTHING);
      expect(await runOf(runId)).toMatchObject({ status, totalCount: 3, reconcileAt: null });
      await expectInvariants(database.db, runId);
    },
  );

  test.each([
    [
      'is being rolled back',
      "UPDATE rule_run SET rolling_back = true, rollback_asked_at = now(), rollback_on_conflict = 'SKIP', next_claim_at = now() WHERE id = $1",
    ],
    [
      'is still to set itself back',
      `UPDATE rule_run SET auto_revert_at = now() + interval '1 day' WHERE id = $1`,
    ],
    [
      'is being compared with its channel',
      `INSERT INTO reconciliation (id, tenant_id, run_id, trigger, actor) VALUES (gen_random_uuid(), 'default', $1, 'manual', 'a')`,
    ],
  ])('one that %s is kept whatever its age', async (_, change) => {
    const runId = await endedRun(database.db, world.home, 'APPLIED', 5_000);
    await query(change, [runId]);
    await keepFor(database.db, world.home, 'RULE', 1, 1);
    expect(await prune()).toEqual({ runs: 0, rows: 0 });
    expect(await isWhole(runId)).toBe(true);
  });

  test('one that was cancelled and has work in flight is kept', async () => {
    const runId = await endedRun(database.db, world.home, 'CANCELLED', 5_000);
    await database.db.transaction('test', async (connection) => {
      await connection.query('SET LOCAL session_replication_role = replica');
      await connection.query(
        'UPDATE rule_run SET applying_count = 1, applied_count = applied_count - 1 WHERE id = $1',
        [runId],
      );
    });
    await keepFor(database.db, world.home, 'RULE', 1, 1);
    expect(await prune()).toEqual({ runs: 0, rows: 0 });
  });
});

describe('a preview that was never queued', () => {
  const previewOf = async (days: number): Promise<string> => {
    const { id } = await createRuleRun(database.db, world.home.viewer, newRuleRun(world.home));
    await query('UPDATE rule_run SET created_at = created_at - make_interval(days => $2) WHERE id = $1', [
      id,
      days,
    ]);
    return id;
  };

  test('is cancelled and pruned when its creation is old enough, and one that is younger is not', async () => {
    const [old, young] = [await previewOf(31), await previewOf(29)];
    await keepFor(database.db, world.home, 'RULE', 30);
    expect(await countDueRuns(database.db, null)).toMatchObject([{ runs: 1, parts: 3 }]);
    expect(await prune()).toMatchObject({ runs: 1 });
    expect(await rowsOf(database.db, old)).toEqual(NOTHING);
    expect(await runOf(old)).toMatchObject({
      status: 'CANCELLED',
      error: 'never queued within 30 days',
      previewCount: 3,
      prunedAt: expect.any(Date) as Date,
    });
    expect(await runOf(young)).toMatchObject({ status: 'PREVIEW', prunedAt: null });
    await expectHealthy();
  });

  test('one that somebody cancelled goes by its creation as well', async () => {
    const id = await previewOf(31);
    await cancelRuleRun(database.db, world.home.viewer, { runId: id, idempotencyKey: null });
    await keepFor(database.db, world.home, 'RULE', 30);
    expect(await prune()).toMatchObject({ runs: 1 });
    expect(await rowsOf(database.db, id)).toEqual(NOTHING);
  });

  test('is cancelled, and kept until the endpoints for webhooks have been sent that', async () => {
    await query(
      `INSERT INTO webhook_endpoint (id, tenant_id, name, kinds, event_types)
       VALUES (gen_random_uuid(), 'default', 'slow', '{RULE}', '{*}')`,
    );
    const id = await previewOf(31);
    await keepFor(database.db, world.home, 'RULE', 30);
    expect(await prune()).toEqual({ runs: 0, rows: 0 });
    expect(await runOf(id)).toMatchObject({ status: 'CANCELLED', prunedAt: null });
    await expectHealthy();
    await query(
      `UPDATE webhook_cursor SET next_attempt_at = NULL, waiting_since = NULL, delivered_seq = run.last_seq
       FROM rule_run run WHERE run.id = run_id`,
    );
    expect(await prune()).toMatchObject({ runs: 1 });
  });
});

describe('a clock that leaps', () => {
  const leap = () => query(`UPDATE retention_clock SET seen_at = seen_at - interval '2 days'`);

  test('holds every run back at the gate, whoever asks and however he came by the run', async () => {
    await prune();
    const runId = await endedRun(database.db, world.home, 'FAILED', 31);
    await keepFor(database.db, world.home, 'RULE', 30);
    await leap();
    for (let n = 0; n < 2; n += 1) {
      const [gate] = await query(`SELECT * FROM retention_begin('RULE', $1)`, [runId]);
      expect(gate).toEqual({ begun: false, held_until: expect.any(Date) as Date });
    }
    expect(await prune()).toEqual({ runs: 0, rows: 0, heldUntil: expect.any(Date) as Date });
    expect(await isWhole(runId)).toBe(true);
  });

  test('in the middle of a pass ends it', async () => {
    await endedRun(database.db, world.home, 'FAILED', 32);
    const runId = await endedRun(database.db, world.home, 'FAILED', 31);
    await keepFor(database.db, world.home, 'RULE', 30);
    const { db } = database;
    let leaping: Promise<unknown> | undefined;
    // Whatever comes after the first batch comes after the leap.
    const leapt: Database = Object.create(db, {
      query: { value: db.query.bind(db) },
      transaction: {
        value: async (...given: Parameters<Database['transaction']>) => {
          await leaping;
          return db.transaction(...given);
        },
      },
    });
    const totals = await pruneDueRuns(leapt, { onProgress: () => (leaping ??= leap()) });
    expect(totals).toMatchObject({ runs: 1, heldUntil: expect.any(Date) as Date });
    expect(await isWhole(runId)).toBe(true);
  });

  test('holds for a day, also where nobody looks in between', async () => {
    await prune();
    const runId = await endedRun(database.db, world.home, 'FAILED', 31);
    await keepFor(database.db, world.home, 'RULE', 30);
    await leap();
    await prune();
    // A day and an hour later.
    await query(
      `UPDATE retention_clock SET seen_at = seen_at - interval '25 hours', held_until = held_until - interval '25 hours'`,
    );
    expect(await prune()).toMatchObject({ runs: 1 });
    expect(await isWhole(runId)).toBe(false);
  });
});

test('a kind that cannot be searched stops no other tenant, and is told', async () => {
  await endedRun(database.db, world.home, 'FAILED', 31);
  const theirs = await endedRun(database.db, world.other, 'FAILED', 31);
  for (const tenant of [world.home, world.other]) await keepFor(database.db, tenant, 'RULE', 30);
  const { db } = database;
  const broken: Database = Object.create(db, {
    transaction: { value: db.transaction.bind(db) },
    query: {
      value: async (sql: string, values: unknown[]) => {
        if (sql.includes('is_prunable') && values[0] === 'default') throw new Error('out of order');
        return db.query(sql, values);
      },
    },
  });
  await expect(pruneDueRuns(broken)).rejects.toThrow('out of order');
  expect(await isWhole(theirs)).toBe(false);
});

describe('other kinds', () => {
  test('a pipeline run loses partitions and rejected records, and adds up to the same', async () => {
    const row = await makeRowIn(database.db, world.home, partitionMachine, 'completed');
    const { runId } = row;
    await query(
      `UPDATE worker_runs SET records_processed = 70, records_duplicated = 5, records_rejected = 3, records_missing = 2
       WHERE run_id = $1`,
      [runId],
    );
    await query(`INSERT INTO partition_progress (run_id, partition_id) VALUES ($1, 'partition-0')`, [runId]);
    await query(
      `INSERT INTO rejected_record (run_id, tenant_id, reason, payload)
       SELECT $1, 'default', 'no', '{}' FROM generate_series(1, 4)`,
      [runId],
    );
    await query(
      `UPDATE run_metadata SET records_rejected = 1, status = 'WORKERS_RUNNING' WHERE run_id = $1`,
      [runId],
    );
    await query(`UPDATE run_metadata SET status = 'CANCELLED' WHERE run_id = $1`, [runId]);
    await age(database.db, 'PIPELINE', runId, 31);
    const read = async () => (await findPipelineRuns(database.db, world.home.viewer, [runId])).get(runId)!;
    const before = await read();
    expect(before).toMatchObject({
      recordsProcessed: 70,
      recordsRejected: 4,
      completedWorkers: 1,
      prunedAt: null,
    });
    await keepFor(database.db, world.home, 'PIPELINE', 30);
    await pruneDueRuns(database.db, { batchSize: 2 });
    expect(await rowsOf(database.db, runId)).toEqual(NOTHING);
    const { prunedAt, prunedSeq, ...after } = await read();
    expect({ ...after, prunedAt: null, prunedSeq: null }).toEqual(before);
    expect([prunedAt, prunedSeq]).toEqual([expect.any(Date), before.lastSeq]);
    expect(await query('SELECT lines, partitions, rejected_records, targets FROM retention_audit')).toEqual([
      { lines: before.lastSeq, partitions: 1, rejected_records: 4, targets: 0 },
    ]);
    await expectHealthy();
  });

  test('an ops run loses its lines', async () => {
    const row = await makeRowIn(database.db, world.home, opsRunMachine, 'success');
    await age(database.db, 'OPS', row.id, 31);
    await keepFor(database.db, world.home, 'OPS', 30);
    expect(await prune()).toMatchObject({ runs: 1 });
    expect(await rowsOf(database.db, row.id)).toEqual(NOTHING);
    expect(
      await query('SELECT status, pruned_seq = last_seq AS pruned FROM ops_run WHERE id = $1', [row.id]),
    ).toEqual([{ status: 'success', pruned: true }]);
    await expectHealthy();
  });

  test('a policy is for its tenant and its kind alone', async () => {
    const mine = await endedRun(database.db, world.home, 'FAILED', 31);
    const theirs = await endedRun(database.db, world.other, 'FAILED', 31);
    const ops = await makeRowIn(database.db, world.home, opsRunMachine, 'failed');
    await age(database.db, 'OPS', ops.id, 31);
    await keepFor(database.db, world.home, 'RULE', 30);
    await keepFor(database.db, world.other, 'RULE', 365);
    await keepFor(database.db, world.other, 'OPS', 1);
    await prune();
    expect(await Promise.all([mine, theirs, ops.id].map(isWhole))).toEqual([false, true, true]);
    expect(await query('SELECT run_id FROM retention_audit')).toEqual([{ run_id: mine }]);
  });

  test('runs that have not ended are never due', async () => {
    await makeRowIn(database.db, world.home, opsRunMachine, 'running');
    const { id } = await makeQueuedRun(database.db, world.home);
    await query(
      `UPDATE rule_run SET created_at = created_at - interval '9 years', queued_at = queued_at - interval '9 years'
       WHERE id = $1`,
      [id],
    );
    for (const kind of ['RULE', 'OPS'] as const) await keepFor(database.db, world.home, kind, 1);
    expect(await prune()).toEqual({ runs: 0, rows: 0 });
  });

  test('what is due is counted as it is pruned', async () => {
    const runId = await endedRun(database.db, world.home, 'FAILED', 31);
    const { lastSeq } = (await runOf(runId))!;
    await endedRun(database.db, world.home, 'APPLIED', 31);
    await keepFor(database.db, world.home, 'RULE', 30);
    const due = [{ tenantId: 'default', kind: 'RULE', runs: 1, lines: lastSeq, parts: 3 }];
    expect(await countDueRuns(database.db, null)).toEqual(due);
    expect(await countDueRuns(database.db, 'other')).toEqual([]);
    expect(await pruneDueRuns(database.db, { tenantId: 'other' })).toEqual({ runs: 0, rows: 0 });
    expect(await prune()).toEqual({ runs: 1, rows: lastSeq + 3 });
    expect(await countDueRuns(database.db, null)).toEqual([]);
  });
});

describe('by hand', () => {
  const KEPT = [
    'run_event',
    'rule_target',
    'worker_runs',
    'rule_run',
    'run_metadata',
    'ops_run',
    'retention_audit',
  ];

  test.each(KEPT)('DELETE FROM %s is refused, whatever a session sets', async (table) => {
    await endedRun(database.db, world.home, 'FAILED', 31);
    await endedRun(database.db, world.home, 'FAILED', 31);
    await makeRowIn(database.db, world.home, partitionMachine, 'completed');
    await keepFor(database.db, world.home, 'RULE', 30);
    const key = table === 'run_event' ? 'AND seq = 1' : '';
    const attempts = [
      () => query(`DELETE FROM ${table} WHERE true ${key}`),
      () => query(`TRUNCATE ${table} CASCADE`),
      () =>
        database.db.transaction('vandal', async (connection) => {
          await connection.query(`SET LOCAL runledger.pruning = 'on'`);
          await connection.query(`DELETE FROM ${table} WHERE true ${key}`);
        }),
    ];
    if (table === 'retention_audit') await prune();
    for (const attempt of attempts) expect(await sqlFaultOf(attempt())).toMatchObject({ code: 'RL003' });
    expect(await sqlFaultOf(query('UPDATE run_event SET seq = seq'))).toMatchObject({ code: 'RL003' });
  });

  test('a run is not marked before its time, nor unmarked, nor moved once it is', async () => {
    const young = await endedRun(database.db, world.home, 'PARTIAL', 29);
    const old = await endedRun(database.db, world.home, 'FAILED', 31);
    const mark = (id: string) =>
      query(
        'UPDATE rule_run SET pruned_at = now(), pruned_seq = last_seq, reconcile_at = NULL WHERE id = $1',
        [id],
      );
    expect(await sqlFaultOf(mark(old))).toMatchObject({ code: 'RL003' });
    await keepFor(database.db, world.home, 'RULE', 30, 30);
    expect(await sqlFaultOf(mark(young))).toMatchObject({ code: 'RL003' });
    expect(await query(`SELECT begun FROM retention_begin('RULE', $1)`, [young])).toEqual([{ begun: false }]);
    expect(await query('SELECT removed FROM retention_prune($1, 10)', [young])).toEqual([{ removed: null }]);
    await prune();
    for (const change of ['pruned_at = NULL, pruned_seq = NULL', 'pruned_seq = 1', `status = 'APPLYING'`]) {
      const attempt = query(`UPDATE rule_run SET ${change} WHERE id = $1`, [old]);
      expect(await sqlFaultOf(attempt)).toMatchObject({ code: 'RL003' });
    }
    expect(
      await sqlFaultOf(query('UPDATE rule_run SET rolling_back = true WHERE id = $1', [old])),
    ).toMatchObject({
      code: '23514',
    });
    expect(await isWhole(young)).toBe(true);
  });

  test('others than the owner may not prune', async () => {
    const [row] = await query<{ allowed: boolean }>(
      `SELECT bool_or(has_function_privilege('pg_read_all_data', oid, 'EXECUTE')) AS allowed FROM pg_proc
       WHERE proname IN ('retention_begin', 'retention_prune')`,
    );
    expect(row).toEqual({ allowed: false });
  });
});

test('nothing more can be asked of a pruned run, and its ledger begins after what is gone', async () => {
  const { viewer } = world.home;
  const runId = await endedRun(database.db, world.home, 'PARTIAL', 31);
  await keepFor(database.db, world.home, 'RULE', 30, 30);
  await prune();
  const request = { runId, idempotencyKey: null };
  const verbs = [
    () => rollBackRuleRun(database.db, viewer, { ...request, targetIds: null, onConflict: 'SKIP' }),
    () => cancelRuleRun(database.db, viewer, request),
    () => askToReconcile(database.db, viewer, { ...request, repair: false }),
  ];
  for (const verb of verbs) {
    await expect(verb()).rejects.toMatchObject({
      code: 'CONFLICT',
      message: expect.stringContaining('was pruned at') as string,
      details: { prunedAt: expect.any(String) as string },
    });
  }
  const pages = await listRunEvents(database.db, viewerOf('default'), [runId], { first: 10, after: 0 });
  expect(pages.get(runId)!.nodes).toEqual([]);
  await expectInvariants(database.db, runId);
});

test('a line that is appended later is kept, and the ledger has no gap after what was pruned', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31);
  await keepFor(database.db, world.home, 'RULE', 30);
  await prune();
  const { prunedSeq } = (await runOf(runId))!;
  await query(
    `WITH run AS (UPDATE rule_run SET last_seq = last_seq + 1 WHERE id = $1 RETURNING *)
     SELECT append_run_line('RULE', id, last_seq, tenant_id, 'log', 'INFO', 'late', '{}') FROM run`,
    [runId],
  );
  await expectInvariants(database.db, runId);
  const pages = await listRunEvents(database.db, viewerOf('default'), [runId], { first: 10, after: 0 });
  expect(pages.get(runId)!.nodes.map(({ seq }) => seq)).toEqual([prunedSeq! + 1]);
});

test('a pruned run is not moved, not even past the verbs', async () => {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31);
  await keepFor(database.db, world.home, 'RULE', 30);
  await prune();
  const row = { machine: ruleRunMachine, tenantId: 'default', id: runId, runId };
  await expect(fire(database.db, row, 'retry_all')).rejects.toMatchObject({ code: 'CONFLICT' });
});

describe('a run that an endpoint for webhooks has still to be sent', () => {
  async function awaitedRun(): Promise<string> {
    await query(
      `INSERT INTO webhook_endpoint (id, tenant_id, name, kinds, event_types)
       VALUES (gen_random_uuid(), 'default', 'slow', '{RULE}', '{*}')`,
    );
    const runId = await endedRun(database.db, world.home, 'FAILED', 31);
    await keepFor(database.db, world.home, 'RULE', 30);
    await prune();
    expect(await isWhole(runId)).toBe(true);
    return runId;
  }

  test('is kept until it is sent', async () => {
    const runId = await awaitedRun();
    const settle = (seq: number) =>
      query('UPDATE webhook_cursor SET next_attempt_at = NULL, waiting_since = NULL, delivered_seq = $1', [
        seq,
      ]);
    const { lastSeq } = (await runOf(runId))!;
    // The last line came after it was sent, and no bell has told of it yet.
    await settle(lastSeq - 1);
    await prune();
    expect(await isWhole(runId)).toBe(true);
    await settle(lastSeq);
    await prune();
    expect(await isWhole(runId)).toBe(false);
  });

  test('is not kept for one that is off', async () => {
    const runId = await awaitedRun();
    await query(`UPDATE webhook_endpoint SET enabled = false, disabled_at = now(), disabled_reason = 'dead'`);
    await prune();
    expect(await isWhole(runId)).toBe(false);
  });
});
