// Many at once: workers that claim, callers with the same key, and finish against cancel. One winner each,
// nothing lost, the ledger without a gap.
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  claimNextOpsRun,
  findOpsRun,
  finishOpsRun,
  cancelOpsRun,
  appendOpsRunEvent,
} from '../../src/store/ops-run.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { viewerOf } from '../support/fixtures.js';
import { OpsSurface, picture, type Session } from './support.js';

let database: TestDatabase;
let pool: pg.Pool;
let ops: OpsSurface;
const viewer = viewerOf('default');

beforeAll(async () => {
  database = await createTestDatabase();
  pool = new pg.Pool({ connectionString: database.url, max: 40 });
  // end() does not wait for the server to close its side, and dropping the database is told to the rest.
  pool.on('error', () => {});
  ops = new OpsSurface(pool as unknown as Session);
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

function times<T>(count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => work(index)));
}

async function expectGapless(runId: string): Promise<void> {
  const { run, lines } = await picture(database.db, runId);
  expect(lines.map(({ seq }) => seq)).toEqual(lines.map((_, index) => index + 1));
  expect(run['last_seq']).toBe(lines.length);
}

test.each<[string, (workerId: string, env: string) => Promise<string | null>]>([
  ['SQL', (workerId, env) => ops.claim(workerId, env)],
  [
    'the store',
    async (workerId, env) => {
      const run = await claimNextOpsRun(database.db, viewer, { workerId, projectId: null, env });
      return run && `run-${run.id}`;
    },
  ],
])('a hundred workers claim fifty runs through %s: each run has one of them', async (_way, claim) => {
  const env = crypto.randomUUID();
  const queued = await times(50, () => ops.queue(env));
  const claims = await times(100, async (index) => ({
    workerId: `worker-${index}`,
    runId: await claim(`worker-${index}`, env),
  }));
  const won = claims.filter(({ runId }) => runId !== null);
  expect(won.map(({ runId }) => runId).sort()).toEqual([...queued].sort());
  const held = await ops.rows(
    `SELECT run_id, claimed_by, status, attempts FROM ops.runs WHERE env_id = $1`,
    env,
  );
  expect(held).toHaveLength(50);
  for (const { workerId, runId } of won) {
    expect(held).toContainEqual({ run_id: runId, claimed_by: workerId, status: 'claimed', attempts: 1 });
    await expectGapless(runId!);
  }
});

test('the same key from many at once is one run, also across the surfaces', async () => {
  const ids = await times(30, () => ops.queue('same', 'one-key'));
  expect(new Set(ids).size).toBe(1);
  await expectGapless(ids[0]!);
});

test('lines that many append at once are all there, in order', async () => {
  const runId = await ops.running();
  await times(60, (index) => ops.append(runId, `line ${index}`));
  await expectGapless(runId);
  expect((await ops.events(runId)).filter(({ type }) => type === 'log')).toHaveLength(61);
});

test('the same line from many at once is one event', async () => {
  const runId = await ops.running();
  const ids = await times(20, () => ops.append(runId, 'again and again'));
  expect(new Set(ids).size).toBe(1);
  await expectGapless(runId);
});

test('finish against cancel against append: one end, and the ledger tells it once', async () => {
  for (let round = 0; round < 20; round += 1) {
    const runId = await ops.running('w');
    const claim = { runId, workerId: 'w', attempt: null };
    const line = { ...claim, level: 'INFO' as const, message: 'x', payload: null, idempotencyKey: null };
    await Promise.allSettled([
      finishOpsRun(database.db, viewer, { ...claim, status: 'success', metadata: null }),
      cancelOpsRun(database.db, viewer, { runId, reason: null }),
      appendOpsRunEvent(database.db, viewer, line),
      ops.finish(runId, 'failed'),
    ]);
    const ends = (await ops.events(runId)).filter(({ type }) =>
      ['ops_run.succeed', 'ops_run.fail', 'ops_run.cancel'].includes(String(type)),
    );
    expect(ends).toHaveLength(1);
    const run = await findOpsRun(database.db, viewer, runId);
    expect((ends[0]!['payload'] as { to: string }).to).toBe(run!.status);
    await expectGapless(runId);
  }
});
