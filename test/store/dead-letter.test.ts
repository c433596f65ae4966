// Dead letters over all runs of a tenant: pages that neither skip nor repeat, filters, counts, and an index
// that costs the updates of all other targets nothing.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Connection } from '../../src/store/db.js';
import { fireEvent } from '../../src/store/transition.js';
import { ruleTargetMachine } from '../../src/domain/rule-target.js';
import {
  countDeadLetters,
  countDeadLettersByCode,
  deadLetterCursor,
  listDeadLetters,
  readDeadLetters,
  type DeadLetterFilter,
} from '../../src/store/dead-letter.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import {
  makeFailedRun,
  makeQueuedRun,
  seedWorld,
  targetsOf,
  type Tenant,
  type World,
} from '../support/fixtures.js';

const NO_FILTER: DeadLetterFilter = { projectId: null, runId: null, errorCode: null };

let database: TestDatabase;
let world: World;
/** The runs that have dead letters, oldest first. */
const runs: string[] = [];

function failRun(tenant: Tenant, projectId: string, count: number): Promise<string> {
  return makeFailedRun(database.db, tenant, { projectId, targets: targetsOf(count) });
}

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  runs.push(await failRun(world.home, 'a', 4));
  runs.push(await failRun(world.home, 'b', 6));
  runs.push(await failRun(world.home, 'a', 2));
  await failRun(world.other, 'a', 3);
  await makeQueuedRun(database.db, world.home, { projectId: 'a' });
});
afterAll(() => database.drop());

const filterBy = (filter: Partial<DeadLetterFilter>) => ({ ...NO_FILTER, ...filter });

async function listAll(filter: Partial<DeadLetterFilter>, first: number) {
  const letters = [];
  let after: string | null = null;
  for (;;) {
    const page = await listDeadLetters(database.db, world.home.viewer, {
      first,
      after,
      filter: filterBy(filter),
    });
    letters.push(...page.nodes);
    if (!page.hasNextPage) return letters;
    after = deadLetterCursor(page.nodes.at(-1)!);
  }
}

describe('listing', () => {
  test.each([1, 5, 12, 1000])('page by page of %d, newest run first, each once', async (first) => {
    const letters = await listAll({}, first);
    expect(letters.map(({ runId }) => runId)).toEqual([
      ...Array<string>(2).fill(runs[2]!),
      ...Array<string>(6).fill(runs[1]!),
      ...Array<string>(4).fill(runs[0]!),
    ]);
    expect(new Set(letters.map(({ id }) => id)).size).toBe(12);
    for (const letter of letters) {
      expect(letter).toMatchObject({ status: 'FAILED', errorMessage: 'no', failedAt: expect.any(Date) });
    }
  });

  test.each<[Partial<DeadLetterFilter>, number]>([
    [{ projectId: 'a' }, 6],
    [{ projectId: 'none' }, 0],
    [{ errorCode: 'AUTH' }, 6],
    [{ errorCode: 'AUTH', projectId: 'b' }, 3],
    [{ runId: 'no-id' }, 0],
    [{ runId: '00000000-0000-0000-0000-000000000001' }, 0],
  ])('%j has %d', async (filter, count) => {
    expect(await listAll(filter, 4)).toHaveLength(count);
    expect(await countDeadLetters(database.db, world.home.viewer, filterBy(filter))).toBe(count);
  });

  test('of one run, and of no other tenant’s', async () => {
    expect(await listAll({ runId: runs[1]! }, 4)).toHaveLength(6);
    const foreign = { first: 9, after: null, filter: filterBy({ runId: runs[1]! }) };
    expect((await listDeadLetters(database.db, world.other.viewer, foreign)).nodes).toEqual([]);
    expect(await countDeadLetters(database.db, world.other.viewer, foreign.filter)).toBe(0);
    expect(await countDeadLetters(database.db, world.other.viewer, NO_FILTER)).toBe(3);
  });

  test.each(['nonsense', Buffer.from('["x","1"]').toString('base64url')])(
    'refuses the cursor %s',
    async (after) => {
      const request = { first: 1, after, filter: NO_FILTER };
      await expect(listDeadLetters(database.db, world.home.viewer, request)).rejects.toMatchObject({
        code: 'BAD_USER_INPUT',
      });
    },
  );
});

test('by code, of one project', async () => {
  const count = (projectId: string) => countDeadLettersByCode(database.db, world.home.viewer, projectId);
  expect(await count('a')).toEqual([
    { code: 'AUTH', count: 3, beyondRetry: 0 },
    { code: 'INVALID', count: 3, beyondRetry: 0 },
  ]);
  expect(await count('none')).toEqual([]);
});

test('by code, with those whose run can no longer be retried', async () => {
  const soon = new Date(Date.now() + 3_600_000);
  const overrides = { projectId: 'over', targets: targetsOf(2), autoRevertAt: soon };
  const runId = await makeFailedRun(database.db, world.other, overrides);
  await failRun(world.other, 'over', 2);
  await database.db.query('UPDATE rule_run SET auto_revert_at = clock_timestamp() WHERE id = $1', [runId]);
  expect(await countDeadLettersByCode(database.db, world.other.viewer, 'over')).toEqual([
    { code: 'AUTH', count: 2, beyondRetry: 1 },
    { code: 'INVALID', count: 2, beyondRetry: 1 },
  ]);
});

test('reading all of a large run goes page by page', async () => {
  const runId = await failRun(world.other, 'large', 2_500);
  const sizes: number[] = [];
  for await (const page of readDeadLetters(database.db, world.other.viewer, filterBy({ runId })))
    sizes.push(page.length);
  expect(sizes).toEqual([1000, 1000, 500]);
});

test('a target that is tried again is no dead letter any more', async () => {
  const runId = await failRun(world.other, 'again', 2);
  const [letter] = await listDeadLetters(database.db, world.other.viewer, {
    first: 1,
    after: null,
    filter: filterBy({ runId }),
  }).then(({ nodes }) => nodes);
  await database.db.transaction('x', (connection) =>
    fireEvent(connection, {
      machine: ruleTargetMachine,
      tenantId: 'other',
      id: letter!.id,
      event: 'requeue',
    }),
  );
  expect(await countDeadLetters(database.db, world.other.viewer, filterBy({ runId }))).toBe(1);
  const [row] = await database.db.query('SELECT failed_at FROM rule_target WHERE id = $1', [letter!.id]);
  expect(row).toEqual({ failed_at: null });
});

test('claiming and applying leave every index alone', async () => {
  // Few enough that all their versions fit on a page.
  const { id } = await makeQueuedRun(database.db, world.home, { targets: targetsOf(5) });
  const counted = await database.db.transaction('w', async (connection) => {
    const before = await countUpdates(connection);
    await connection.query(
      `UPDATE rule_target SET status = 'APPLYING', attempts = 1, lease_owner = 'w', lease_epoch = 1,
         lease_until = clock_timestamp() WHERE run_id = $1`,
      [id],
    );
    await connection.query(`UPDATE rule_target SET status = 'APPLIED' WHERE run_id = $1`, [id]);
    const after = await countUpdates(connection);
    return { all: after.all - before.all, heapOnly: after.heapOnly - before.heapOnly };
  });
  expect(counted).toEqual({ all: 10, heapOnly: 10 });
});

async function countUpdates(connection: Connection): Promise<{ all: number; heapOnly: number }> {
  const { rows } = await connection.query<{ all: number; heapOnly: number }>(
    `SELECT n_tup_upd::integer AS all, n_tup_hot_upd::integer AS "heapOnly"
     FROM pg_stat_xact_user_tables WHERE relname = 'rule_target'`,
  );
  return rows[0]!;
}
