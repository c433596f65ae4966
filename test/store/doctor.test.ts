// The doctor: silent on a healthy database, and each of its checks finds what it is for. The guards are
// switched off to break what they keep.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { partitionMachine } from '../../src/domain/partition.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { claimTargets } from '../../src/store/claim.js';
import { examine, findViolations, type Diagnosis } from '../../src/store/doctor.js';
import { Database } from '../../src/store/db.js';
import { INVARIANTS } from '../../src/store/invariants.js';
import { pruneDueRuns } from '../../src/store/prune.js';
import { listRunRanges } from '../../src/store/run-range.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { readVersion, type SchemaVersion } from '../../src/store/migrate.js';
import { createTestDatabase, MIGRATIONS, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, makeRowIn, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { endedRun, keepFor } from '../support/retention.js';
import { countRows, faultOf } from './rows.js';

let database: TestDatabase;
let world: World;
let version: SchemaVersion;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  version = await readVersion(MIGRATIONS);
});
afterAll(() => database.drop());

const query = (sql: string, values: unknown[] = []) => database.db.query(sql, values);

async function diagnose(db = database.db, rowsAtOnce?: number): Promise<Map<string, Diagnosis>> {
  const found = new Map<string, Diagnosis>();
  for await (const diagnosis of examine(db, version, rowsAtOnce))
    if (diagnosis.count > 0) found.set(diagnosis.name, diagnosis);
  return found;
}

/** Writes as somebody would who has switched the guards off. */
function writeUnguarded(sql: string, values: unknown[]): Promise<unknown> {
  return database.db.transaction('vandal', async (connection) => {
    await connection.query('SET LOCAL session_replication_role = replica');
    await connection.query(sql, values);
  });
}

/** One target of each outcome: applied, failed, in hand, waiting, and one that nobody has claimed. */
async function makeBusyRun(): Promise<string> {
  const { db } = database;
  const run = await makeQueuedRun(db, world.home, { targets: targetsOf(5) });
  const claim = await claimTargets(db, { runId: run.id, workerId: 'w', limit: 4, leaseMs: 3_600_000 });
  const [applied, failed, waiting] = claim!.targets.map(({ id }) => id);
  const fault = { code: 'UPSTREAM', message: 'no' };
  await settleIfClaimed(db, claim!, [
    { targetId: applied!, settlement: { event: 'succeed' } },
    { targetId: failed!, settlement: { event: 'exhaust', ...fault } },
    { targetId: waiting!, settlement: { event: 'retry', delayMs: 3_600_000, ...fault } },
  ]);
  return run.id;
}

/** A failed run that has outlived its policy, pruned as far as the options let it come. */
async function makePrunedRun(options = {}): Promise<string> {
  const runId = await endedRun(database.db, world.home, 'FAILED', 31, 20);
  await keepFor(database.db, world.home, 'RULE', 30);
  await pruneDueRuns(database.db, options);
  await keepFor(database.db, world.home, 'RULE', null);
  return runId;
}

test('a database with runs of every kind in every state is healthy', async () => {
  await makeBusyRun();
  for (const machine of [pipelineRunMachine, partitionMachine, opsRunMachine]) {
    for (const state of machine.states) await makeRowIn(database.db, world.home, machine, state);
  }
  await makePrunedRun();
  await makePrunedRun({ batchSize: 2, longestMs: 1 });
  const before = await countRows(database.db);
  expect([...(await diagnose()).values()]).toEqual([]);
  expect(await countRows(database.db)).toEqual(before);
});

test('attempts beyond a limit that was lowered since are a warning, and nothing is broken', async () => {
  await makeBusyRun();
  const setMax = (attempts: number) =>
    query(
      `UPDATE channel SET config = jsonb_build_object('policy', jsonb_build_object('retry',
      jsonb_build_object('maxAttempts', $1::int)))`,
      [attempts],
    );
  await setMax(0);
  const found = await diagnose();
  expect([...found.values()].map(({ name, severity }) => [name, severity])).toEqual([
    ['rule_target_attempts', 'WARNING'],
  ]);
  await setMax(3);
});

interface Damage {
  readonly invariant: string;
  readonly what: string;
  readonly sql: string;
}

const RULE: Damage[] = [
  {
    invariant: 'rule_run_times',
    what: 'starts before it is queued',
    sql: `UPDATE rule_run SET started_at = queued_at - interval '1 hour' WHERE id = $1`,
  },
  {
    invariant: 'rule_run_times',
    what: 'has ended and goes on',
    sql: 'UPDATE rule_run SET finished_at = now() WHERE id = $1',
  },
  {
    invariant: 'rule_run_counters',
    what: 'counts one more',
    sql: 'UPDATE rule_run SET applied_count = applied_count + 1 WHERE id = $1',
  },
  {
    invariant: 'rule_run_counters',
    what: 'lost a target',
    sql: `DELETE FROM rule_target WHERE run_id = $1 AND status = 'FAILED'`,
  },
  {
    invariant: 'rule_run_applied',
    what: 'is APPLIED too soon',
    sql: `UPDATE rule_run SET status = 'APPLIED', finished_at = now() WHERE id = $1`,
  },
  {
    invariant: 'rule_run_claimable',
    what: 'is never claimed again',
    sql: 'UPDATE rule_run SET next_claim_at = NULL WHERE id = $1',
  },
  {
    invariant: 'rule_run_claimable',
    what: 'is never recovered',
    sql: 'UPDATE rule_run SET lease_floor = NULL WHERE id = $1',
  },
  {
    invariant: 'rule_run_claimable',
    what: 'has a target to set back that nobody will',
    sql: `UPDATE rule_target SET next_attempt_at = now() WHERE run_id = $1 AND status = 'APPLIED'`,
  },
  {
    invariant: 'rule_target_applied',
    what: 'was applied at no time',
    sql: `UPDATE rule_target SET applied_at = NULL WHERE run_id = $1 AND status = 'APPLIED'`,
  },
  {
    invariant: 'rule_target_applied',
    what: 'was rolled back and is applied',
    sql: `UPDATE rule_target SET rolled_back_at = now() WHERE run_id = $1 AND status = 'APPLIED'`,
  },
  {
    invariant: 'rule_target_lease',
    what: 'has half a lease',
    sql: `UPDATE rule_target SET lease_until = NULL WHERE run_id = $1 AND status = 'APPLYING'`,
  },
  {
    invariant: 'rule_target_lease',
    what: 'is leased and queued',
    sql: `UPDATE rule_target SET lease_owner = 'w', lease_until = now(), lease_epoch = 1 WHERE run_id = $1 AND status = 'QUEUED'`,
  },
  {
    invariant: 'rule_target_attempts',
    what: 'tried too often',
    sql: `UPDATE rule_target SET attempts = 4 WHERE run_id = $1 AND status = 'APPLIED'`,
  },
  {
    invariant: 'run_lease',
    what: 'is compared with its channel by nobody, for a time',
    sql: `INSERT INTO reconciliation (id, tenant_id, run_id, trigger, actor, lease_until)
          SELECT gen_random_uuid(), tenant_id, id, 'manual', 'x', now() FROM rule_run WHERE id = $1`,
  },
  {
    invariant: 'parts_tenant',
    what: 'has a target of another tenant',
    sql: `UPDATE rule_target SET tenant_id = 'other' WHERE run_id = $1 AND status = 'APPLIED'`,
  },
  {
    invariant: 'parts_tenant',
    what: 'is on a channel of another tenant',
    sql: `UPDATE rule_run SET channel_id = (SELECT id FROM channel WHERE tenant_id = 'other') WHERE id = $1`,
  },
  {
    invariant: 'ledger_seq',
    what: 'lost a line',
    sql: 'DELETE FROM run_event WHERE run_id = $1 AND seq = 2',
  },
  {
    invariant: 'ledger_seq',
    what: 'lost its last line',
    sql: 'DELETE FROM run_event WHERE run_id = $1 AND seq = (SELECT last_seq FROM rule_run WHERE id = $1)',
  },
  {
    invariant: 'ledger_run',
    what: 'has lines of another tenant',
    sql: `UPDATE run_event SET tenant_id = 'other' WHERE run_id = $1 AND seq = 1`,
  },
  {
    invariant: 'ledger_moves',
    what: 'has a line that the machine forbids',
    sql: `UPDATE run_event SET payload = payload || '{"to": "APPLIED"}' WHERE run_id = $1 AND type = 'rule_run.queue'`,
  },
  {
    invariant: 'ledger_moves',
    what: 'has a hole in a target’s history',
    sql: `DELETE FROM run_event WHERE run_id = $1 AND type = 'rule_target.claim'`,
  },
  {
    invariant: 'ledger_status',
    what: 'has a target that moved without a line',
    sql: `UPDATE rule_target SET status = 'CANCELLED' WHERE run_id = $1 AND status = 'QUEUED' AND attempts = 0`,
  },
  {
    invariant: 'ledger_status',
    what: 'moved without a line',
    sql: `UPDATE rule_run SET status = 'CANCELLED', finished_at = now() WHERE id = $1`,
  },
  {
    invariant: 'ledger_status',
    what: 'has a target that was tried more often than its lines say',
    sql: `UPDATE rule_target SET attempts = 3 WHERE run_id = $1 AND status = 'APPLIED'`,
  },
  {
    invariant: 'ledger_status',
    what: 'has a target that was tried without a line',
    sql: `UPDATE rule_target SET attempts = 1 WHERE run_id = $1 AND status = 'QUEUED' AND attempts = 0`,
  },
  {
    invariant: 'ledger_spans',
    what: 'has lines that no history shows',
    sql: `UPDATE run_event_span SET last_seq = last_seq - 1 WHERE run_id = $1`,
  },
];

const PIPELINE: Damage[] = [
  {
    invariant: 'pipeline_run_times',
    what: 'completed and goes on',
    sql: 'UPDATE run_metadata SET completed_at = now() WHERE run_id = $1',
  },
  {
    invariant: 'pipeline_run_counters',
    what: 'counts one more',
    sql: 'UPDATE run_metadata SET completed_workers = 1 WHERE run_id = $1',
  },
  {
    invariant: 'pipeline_run_watermark',
    what: 'leaves a watermark before its end',
    sql: 'UPDATE run_metadata SET watermark_after = now() WHERE run_id = $1',
  },
  {
    invariant: 'pipeline_run_watermark',
    what: 'moved its source’s watermark before its end',
    sql: 'UPDATE source SET watermark = now(), last_run_id = $1 WHERE id = (SELECT source_id FROM run_metadata WHERE run_id = $1)',
  },
  {
    invariant: 'run_lease',
    what: 'has half a lease',
    sql: `UPDATE run_metadata SET lease_owner = 'w' WHERE run_id = $1`,
  },
  {
    invariant: 'partition_lease',
    what: 'has half a lease',
    sql: `UPDATE worker_runs SET lease_owner = 'w' WHERE run_id = $1`,
  },
];

const OPS: Damage[] = [
  {
    invariant: 'ops_run_times',
    what: 'is worked on by nobody',
    sql: 'UPDATE ops_run SET claimed_by = NULL WHERE id = $1',
  },
  {
    invariant: 'ops_run_times',
    what: 'has ended and goes on',
    sql: 'UPDATE ops_run SET finished_at = now() WHERE id = $1',
  },
  {
    invariant: 'ops_run_times',
    what: 'has ended before it was started',
    sql: `UPDATE ops_run SET status = 'success', finished_at = started_at - interval '1 minute' WHERE id = $1`,
  },
  {
    invariant: 'ops_run_times',
    what: 'was cancelled before it was queued',
    sql: `UPDATE ops_run SET status = 'cancelled', started_at = NULL, finished_at = queued_at - interval '1 minute' WHERE id = $1`,
  },
];

const PRUNED: Damage[] = [
  {
    invariant: 'pruned_run',
    what: 'was moved',
    sql: `UPDATE rule_run SET status = 'PARTIAL' WHERE id = $1`,
  },
  {
    invariant: 'pruned_run',
    what: 'is recorded nowhere',
    sql: 'DELETE FROM retention_audit WHERE run_id = $1',
  },
  {
    invariant: 'pruned_run',
    what: 'is recorded and not marked',
    sql: 'UPDATE rule_run SET pruned_at = NULL, finished_at = now() WHERE id = $1',
  },
  {
    invariant: 'pruned_run',
    what: 'has a line that should be gone',
    sql: `INSERT INTO run_event (run_id, seq, tenant_id, run_kind, type, message, actor)
      VALUES ($1, 3, 'default', 'RULE', 'log', '', '')`,
  },
  {
    invariant: 'ledger_seq',
    what: 'has a gap after what was pruned',
    sql: 'UPDATE rule_run SET last_seq = last_seq + 1 WHERE id = $1',
  },
];

describe('a broken invariant', () => {
  beforeAll(async () => {
    const checks = await database.db.query<{ table: string; name: string }>(
      `SELECT conrelid::regclass::text AS table, conname AS name FROM pg_constraint
       WHERE contype = 'c' AND conrelid <> 0 AND connamespace = 'public'::regnamespace`,
    );
    for (const { table, name } of checks) await query(`ALTER TABLE ${table} DROP CONSTRAINT "${name}"`);
  });

  async function expectFound({ invariant, sql }: Damage, runId: string): Promise<void> {
    expect(await findViolations(database.db, runId)).toEqual([]);
    await writeUnguarded(sql, [runId]);
    const found = await findViolations(database.db, runId);
    expect(found.map((violation) => violation.split(' ')[0])).toContain(invariant);
  }

  test.each(RULE)('$invariant: a rule run $what', async (damage) => {
    await expectFound(damage, await makeBusyRun());
  });

  test('is found by older lines too, which have it all in their payload', async () => {
    const runId = await makeBusyRun();
    await writeUnguarded(
      `UPDATE run_event SET payload = event_payload(run_event), from_state = NULL, to_state = NULL, external_id = NULL,
         attempt = NULL
       WHERE run_id = $1 AND to_state IS NOT NULL`,
      [runId],
    );
    await expectFound(
      RULE.find(({ what }) => what.includes('more often than its lines'))!,
      runId,
    );
  });

  test.each(PIPELINE)('$invariant: a pipeline run $what', async (damage) => {
    await expectFound(damage, (await makeRowIn(database.db, world.home, partitionMachine, 'running')).runId);
  });

  test.each(OPS)('$invariant: an ops run $what', async (damage) => {
    await expectFound(damage, (await makeRowIn(database.db, world.home, opsRunMachine, 'claimed')).id);
  });

  test.each(PRUNED)('$invariant: a pruned run $what', async (damage) => {
    await expectFound(damage, await makePrunedRun());
  });

  test('each is broken by one of these tests', () => {
    const broken = new Set([...RULE, ...PIPELINE, ...OPS, ...PRUNED].map(({ invariant }) => invariant));
    expect([...broken].sort()).toEqual(INVARIANTS.map(({ name }) => name).sort());
  });

  test('is told with its number and the first of its findings', async () => {
    const found = await diagnose();
    const { count, findings, severity } = found.get('ledger_seq')!;
    expect(severity).toBe('ERROR');
    expect(count).toBe(findings.length);
    expect(count).toBeGreaterThan(1);
    expect(findings[0]).toEqual({
      id: expect.any(String) as string,
      fault: expect.stringContaining('last_seq') as string,
    });
  });
});

describe('a large database', () => {
  test('is judged range by range, and nothing falls between two of them', async () => {
    const whole = await diagnose();
    const orphan = randomUUID();
    await writeUnguarded(
      `INSERT INTO run_event (run_id, seq, tenant_id, run_kind, type, message, actor)
       VALUES ($1, 1, 'default', 'RULE', 'rule_run.note', 'm', 'a')`,
      [orphan],
    );
    const ranges = await listRunRanges(database.db, 1);
    const [counted] = await query(
      'SELECT (SELECT count(*) FROM rule_run) + (SELECT count(*) FROM run_metadata) + (SELECT count(*) FROM ops_run) AS runs',
    );
    expect(ranges).toHaveLength(Number(counted!['runs']) + 1);
    const split = await diagnose(database.db, 1);
    const countsOf = (found: Map<string, Diagnosis>) =>
      Object.fromEntries([...found].map(([name, { count }]) => [name, count]));
    expect(countsOf(split)).toEqual({
      ...countsOf(whole),
      ledger_run: (whole.get('ledger_run')?.count ?? 0) + 1,
    });
    expect(split.get('ledger_run')!.findings.map(({ id }) => id)).toContain(orphan);
  });

  test('that is broken all over is told by numbers and examples', async () => {
    const { id } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(1_000) });
    await writeUnguarded(`UPDATE rule_target SET tenant_id = 'other' WHERE run_id = $1`, [id]);
    const { count, findings } = (await diagnose()).get('parts_tenant')!;
    expect(count).toBeGreaterThanOrEqual(1_000);
    expect(findings).toHaveLength(20);
  });
});

describe('what cannot be examined', () => {
  test('is told as such, and the rest is examined', async () => {
    await query('ALTER TABLE reconciliation RENAME COLUMN lease_until TO lease_end');
    const found = await diagnose();
    await query('ALTER TABLE reconciliation RENAME COLUMN lease_end TO lease_until');
    expect(found.get('run_lease')).toMatchObject({
      count: 1,
      findings: [{ id: 'run_lease', fault: 'it could not be checked: column "lease_until" does not exist' }],
    });
    expect(found.has('ledger_seq')).toBe(true);
  });

  test('changes nothing, not even by a function that writes', async () => {
    const [row] = await query(`SELECT pg_get_functiondef('state_initial'::regproc) AS sql`);
    await query(`CREATE OR REPLACE FUNCTION state_initial(machine text) RETURNS text LANGUAGE plpgsql AS $$
      BEGIN DELETE FROM worker; RETURN 'PREVIEW'; END $$`);
    const found = await diagnose();
    await query(String(row!['sql']));
    expect(found.get('ledger_moves')!.findings[0]!.fault).toContain('read-only transaction');
  });

  test('a database that was opened for reading refuses a write by every way', async () => {
    const db = new Database({ url: database.url, readOnly: true });
    const writes = [
      db.query('DELETE FROM worker'),
      db.transaction('x', (connection) => connection.query('DELETE FROM worker')),
      db.prisma.worker.deleteMany(),
    ];
    for (const fault of await Promise.all(writes.map((write) => faultOf(write))))
      expect(fault.message).toContain('read-only transaction');
    await db.close();
  });
});

describe('work that does not go on', () => {
  let runId: string;

  beforeEach(async () => {
    runId = await makeBusyRun();
  });

  test('without workers', async () => {
    await query(`UPDATE rule_run SET next_claim_at = now() - interval '2 minutes' WHERE id = $1`, [runId]);
    expect((await diagnose()).get('workers')?.severity).toBe('WARNING');
    await query(`INSERT INTO worker (id, host, pid, state) VALUES ('w', 'h', 1, 'IDLE')`);
    expect((await diagnose()).has('workers')).toBe(false);
  });

  test('pruning that nobody ends', async () => {
    await keepFor(database.db, world.home, 'RULE', 30);
    const pruned = await endedRun(database.db, world.home, 'FAILED', 31);
    await query(`SELECT retention_begin('RULE', $1)`, [pruned]);
    expect((await diagnose()).has('unfinished_pruning')).toBe(false);
    await query(`UPDATE retention_work SET begun_at = begun_at - interval '2 days'`);
    expect((await diagnose()).get('unfinished_pruning')).toMatchObject({ severity: 'WARNING', count: 1 });
    await pruneDueRuns(database.db);
    expect((await diagnose()).has('unfinished_pruning')).toBe(false);
  });

  test('leases that nobody takes back', async () => {
    await query(`UPDATE rule_run SET lease_floor = now() - interval '6 minutes' WHERE id = $1`, [runId]);
    expect((await diagnose()).get('expired_leases')?.findings).toMatchObject([{ id: runId }]);
    await query('UPDATE rule_run SET lease_floor = now() WHERE id = $1', [runId]);
  });

  test('of pipelines and comparisons either', async () => {
    const { runId: pipeline } = await makeRowIn(database.db, world.home, partitionMachine, 'running');
    const lease = `lease_owner = 'w', lease_until = now() - interval '6 minutes', lease_epoch = 1`;
    await query(`UPDATE worker_runs SET ${lease} WHERE run_id = $1`, [pipeline]);
    await query(
      `INSERT INTO reconciliation (id, tenant_id, run_id, trigger, actor, lease_owner, lease_until)
       SELECT gen_random_uuid(), tenant_id, id, 'manual', 'x', 'w', now() - interval '6 minutes' FROM rule_run WHERE id = $1`,
      [runId],
    );
    const { id: plan } = await makeRowIn(database.db, world.home, pipelineRunMachine, 'CREATED');
    await query(`UPDATE run_metadata SET ${lease} WHERE run_id = $1`, [plan]);
    const found = (await diagnose()).get('expired_leases')!.findings.map(({ id }) => id);
    expect(found.sort()).toEqual([pipeline, runId, plan].sort());
    // Nobody has them, and nobody is there to take them.
    await query(
      `UPDATE worker_runs SET lease_owner = NULL, lease_until = NULL, lease_epoch = NULL WHERE run_id = $1`,
      [pipeline],
    );
    await query(
      `UPDATE reconciliation SET lease_owner = NULL, lease_until = NULL, next_attempt_at = now() - interval '2 minutes'`,
    );
    await query('DELETE FROM worker');
    await query('UPDATE rule_run SET next_claim_at = now() WHERE next_claim_at < now()');
    await query(`UPDATE run_metadata SET created_at = created_at - interval '1 hour' WHERE run_id = $1`, [
      pipeline,
    ]);
    const waiting = (await diagnose()).get('workers')!.findings.map(({ id }) => id);
    expect(waiting.sort()).toEqual(['pipeline runs', 'reconciliations']);
    await query('DELETE FROM reconciliation');
    await query(
      `UPDATE run_metadata SET lease_owner = NULL, lease_until = NULL, lease_epoch = NULL WHERE run_id = $1`,
      [plan],
    );
    await query(`UPDATE run_metadata SET created_at = now() WHERE run_id = $1`, [pipeline]);
  });

  test('ops runs that nobody ends, and schedules whose time is over', async () => {
    const { id } = await makeRowIn(database.db, world.home, opsRunMachine, 'running');
    const fallSilent = (hours: number) =>
      query(
        `UPDATE ops_run SET queued_at = since, started_at = since, heartbeat_at = since
         FROM (SELECT now() - $2 * interval '1 hour' AS since) silent WHERE id = $1`,
        [id, hours],
      );
    // A server may bear a silence of a day.
    await fallSilent(24);
    expect((await diagnose()).has('silent_ops_runs')).toBe(false);
    await fallSilent(26);
    await query(
      `INSERT INTO schedule (id, tenant_id, name, kind, request, cron, next_at)
       VALUES ($1, 'default', 'nightly', 'RULE', '{}', '0 0 * * *', now() - interval '10 minutes')`,
      [randomUUID()],
    );
    const found = await diagnose();
    expect(found.get('silent_ops_runs')).toMatchObject({ severity: 'WARNING', findings: [{ id }] });
    expect(found.get('overdue_schedules')?.findings).toMatchObject([
      { fault: expect.stringContaining('nightly of default was due at') as string },
    ]);
    await query('DELETE FROM schedule');
  });
});
