// The schedule in the database: a run that ends is planned, what is due becomes work once, whoever looks.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { scheduleReconciliations } from '../../src/store/reconciliation-schedule.js';
import { fireEvent } from '../../src/store/transition.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeFailedRun, makeQueuedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';

let database: TestDatabase;
let world: World;
beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
});
beforeEach(async () => {
  await database.db.query('DELETE FROM reconciliation');
  await database.db.query('UPDATE rule_run SET reconcile_at = NULL');
});
afterAll(() => database.drop());

/** A run with two targets, the first of them applied, the second as given. */
async function endRun(end: 'APPLIED' | 'PARTIAL'): Promise<string> {
  const { id } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(2) });
  await database.db.transaction('w', async (connection) => {
    await connection.query(`UPDATE rule_run SET status = 'APPLYING' WHERE id = $1`, [id]);
    await connection.query(
      `UPDATE rule_target SET status = 'APPLYING', attempts = 1, lease_owner = 'w', lease_epoch = 1,
         lease_until = clock_timestamp() WHERE run_id = $1`,
      [id],
    );
    await connection.query(
      `UPDATE rule_target SET status = CASE WHEN external_id = 'sku-1' OR $2 = 'APPLIED' THEN 'APPLIED' ELSE 'FAILED' END
       WHERE run_id = $1`,
      [id, end],
    );
    await connection.query('UPDATE rule_run SET status = $2 WHERE id = $1', [id, end]);
  });
  return id;
}

/** As if the run had ended that long ago and had last been planned for then. */
async function age(runId: string, finished: string, planned: string): Promise<void> {
  await database.db.query(
    `UPDATE rule_run SET queued_at = queued_at - $2::interval, started_at = started_at - $2::interval,
       finished_at = finished_at - $2::interval, reconcile_at = finished_at - $2::interval + $3::interval WHERE id = $1`,
    [runId, finished, planned],
  );
}

async function planOf(runId: string) {
  const [run] = await database.db.query<{ after: number | null }>(
    `SELECT (extract(epoch FROM reconcile_at - finished_at))::float8 AS after FROM rule_run WHERE id = $1`,
    [runId],
  );
  const work = await database.db.query<{ trigger: string }>(
    'SELECT trigger FROM reconciliation WHERE run_id = $1',
    [runId],
  );
  return {
    triggers: work.map(({ trigger }) => trigger),
    after: run!.after === null ? null : Math.round(run!.after),
  };
}

describe('a run that ends', () => {
  test.each(['APPLIED', 'PARTIAL'] as const)('%s is planned', async (end) => {
    const id = await endRun(end);
    expect(await planOf(id)).toEqual({ triggers: [], after: 0 });
    expect(await scheduleReconciliations(database.db)).toBe(1);
    expect(await planOf(id)).toEqual({ triggers: [], after: 60 });
    expect(await scheduleReconciliations(database.db)).toBe(0);
  });

  test('with nothing applied is not', async () => {
    const id = await makeFailedRun(database.db, world.home, { targets: targetsOf(2) });
    expect(await planOf(id)).toEqual({ triggers: [], after: null });
  });

  test('and goes on again is not looked at meanwhile', async () => {
    const id = await endRun('PARTIAL');
    await database.db.transaction('x', (connection) =>
      fireEvent(connection, { machine: ruleRunMachine, tenantId: 'default', id, event: 'retry_failed' }),
    );
    expect(await planOf(id)).toMatchObject({ after: null });
  });
});

describe('what is due becomes work', () => {
  test.each([
    ['immediate', '70 seconds', '1 minute', 3_600],
    ['delayed', '61 minutes', '1 hour', 86_400],
    ['periodic', '24 hours 1 minute', '1 day', 2 * 86_400],
    ['periodic', '30 days 1 minute', '30 days', null],
    ['periodic', '3 days 1 hour', '1 minute', 4 * 86_400],
  ])('%s, %s after the end, planned for %s after it', async (trigger, finished, planned, next) => {
    const id = await endRun('APPLIED');
    await age(id, finished, planned);
    await scheduleReconciliations(database.db);
    expect(await planOf(id)).toEqual({ triggers: [trigger], after: next });
  });

  test('once, however many look at the same time', async () => {
    const ids = [];
    for (let i = 0; i < 5; i += 1) ids.push(await endRun('APPLIED'));
    for (const id of ids) await age(id, '2 minutes', '1 minute');
    await Promise.all(Array.from({ length: 4 }, () => scheduleReconciliations(database.db)));
    for (const id of ids) expect(await planOf(id)).toEqual({ triggers: ['immediate'], after: 3_600 });
  });

  test('not beside one that is still under way', async () => {
    const id = await endRun('APPLIED');
    await age(id, '24 hours 1 minute', '1 day');
    await scheduleReconciliations(database.db);
    await age(id, '24 hours', '2 days');
    await scheduleReconciliations(database.db);
    expect(await planOf(id)).toMatchObject({ triggers: ['periodic'] });
  });
});
