// The doctor: silent on a healthy database, and each of its checks finds what it is for. The guards are
// switched off to break what they keep.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { partitionMachine } from '../../src/domain/partition.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { claimTargets } from '../../src/store/claim.js';
import { examine, findViolations, type Diagnosis } from '../../src/store/doctor.js';
import { INVARIANTS } from '../../src/store/invariants.js';
import { settleIfClaimed } from '../../src/store/settle.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, makeRowIn, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { countRows } from './rows.js';

let database: TestDatabase;
let world: World;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
afterAll(() => database.drop());

const query = (sql: string, values: unknown[] = []) => database.db.query(sql, values);

async function diagnose(): Promise<Map<string, Diagnosis>> {
  const found = new Map<string, Diagnosis>();
  for await (const diagnosis of examine(database.db))
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

test('a database with runs of every kind in every state is healthy', async () => {
  await makeBusyRun();
  for (const machine of [pipelineRunMachine, partitionMachine, opsRunMachine]) {
    for (const state of machine.states) await makeRowIn(database.db, world.home, machine, state);
  }
  const before = await countRows(database.db);
  expect([...(await diagnose()).values()]).toEqual([]);
  expect(await countRows(database.db)).toEqual(before);
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

  test.each(PIPELINE)('$invariant: a pipeline run $what', async (damage) => {
    await expectFound(damage, (await makeRowIn(database.db, world.home, partitionMachine, 'running')).runId);
  });

  test.each(OPS)('$invariant: an ops run $what', async (damage) => {
    await expectFound(damage, (await makeRowIn(database.db, world.home, opsRunMachine, 'claimed')).id);
  });

  test('each is broken by one of these tests', () => {
    const broken = new Set([...RULE, ...PIPELINE, ...OPS].map(({ invariant }) => invariant));
    expect([...broken].sort()).toEqual(INVARIANTS.map(({ name }) => name).sort());
  });

  test('is told with its number and the first of its findings', async () => {
    const found = await diagnose();
    const { count, findings, severity } = found.get('ledger_seq')!;
    expect(severity).toBe('ERROR');
    expect(count).toBe(findings.length);
    expect(findings[0]).toEqual({
      id: expect.any(String) as string,
      fault: expect.stringContaining('last_seq') as string,
    });
  });
});

describe('the guards', () => {
  test.each([
    [
      'guards',
      'ALTER TABLE rule_run DISABLE TRIGGER rule_run_guard',
      'ALTER TABLE rule_run ENABLE TRIGGER rule_run_guard',
    ],
    ['guards', 'ALTER TABLE run_event DISABLE TRIGGER ALL', 'ALTER TABLE run_event ENABLE TRIGGER ALL'],
    [
      'machines',
      `UPDATE state_transition SET to_state = 'APPLIED' WHERE machine = 'rule_run' AND event = 'queue'`,
      `UPDATE state_transition SET to_state = 'QUEUED' WHERE machine = 'rule_run' AND event = 'queue'`,
    ],
    [
      'constraints',
      'ALTER TABLE rule_run ADD CONSTRAINT doubtful CHECK (id IS NULL) NOT VALID',
      'ALTER TABLE rule_run DROP CONSTRAINT doubtful',
    ],
    [
      'migrations',
      'UPDATE _prisma_migrations SET finished_at = NULL',
      'UPDATE _prisma_migrations SET finished_at = now()',
    ],
  ])('%s: %s', async (check, breaking, mending) => {
    expect((await diagnose()).has(check)).toBe(false);
    await query(breaking);
    expect((await diagnose()).get(check)?.severity).toBe('ERROR');
    await query(mending);
    expect((await diagnose()).has(check)).toBe(false);
  });

  test('a function that allows more than the machine', async () => {
    const [row] = await database.db.query<{ sql: string }>(
      `SELECT pg_get_functiondef('state_event'::regproc) AS sql`,
    );
    const lax = row!.sql.replace(`from_state = 'PREVIEW' AND to_state = 'QUEUED'`, `from_state = 'PREVIEW'`);
    expect(lax).not.toBe(row!.sql);
    await query(lax);
    expect((await diagnose()).has('machines')).toBe(true);
    await query(row!.sql);
    expect((await diagnose()).has('machines')).toBe(false);
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

  test('leases that nobody takes back', async () => {
    await query(`UPDATE rule_run SET lease_floor = now() - interval '6 minutes' WHERE id = $1`, [runId]);
    expect((await diagnose()).get('expired_leases')?.findings).toMatchObject([{ id: runId }]);
  });
});
