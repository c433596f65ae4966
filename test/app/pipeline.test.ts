// Pipeline runs through the whole server: GraphQL in, the sandbox's feed over HTTP, the catalog out; with servers
// that are killed, stopped and doubled in the middle.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Database } from '../../src/store/db.js';
import { findViolations } from '../../src/store/doctor.js';
import { ApiClient } from '../api/support.js';
import { PipelineRunProgress } from '../api/pipeline-run-documents.js';
import { ADMIN_KEY, request, until } from '../support/app.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { useServers } from '../support/servers.js';

const SIZE = 600;
let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

const spawnServer = useServers(() => database.url);

const START = `mutation ($input: StartPipelineRunInput!) {
  startPipelineRun(input: $input) { pipelineRun { id } userErrors { code message } }
}`;
const READ = `query ($id: ID!) {
  pipelineRun(id: $id) {
    status runType expectedWorkers completedWorkers recordsProcessed recordsConsolidated recordsDuplicated
    recordsMissing watermarkAfter partitions { nextOffset status }
    source { watermark lastRunId }
  }
}`;

async function start(url: string, runType: string): Promise<string> {
  const { data } = await request(url, '{ sources { id name } }');
  const [source] = data.sources.filter(({ name }: { name: string }) => name === 'sandbox');
  const answer = await request(url, START, { input: { sourceId: source.id, runType } });
  expect(answer.data.startPipelineRun.userErrors).toEqual([]);
  return answer.data.startPipelineRun.pipelineRun.id;
}

interface ReadRun {
  readonly status: string;
  readonly recordsProcessed: number;
  readonly recordsConsolidated: number;
  readonly [field: string]: unknown;
}

async function read(url: string, id: string): Promise<ReadRun> {
  return (await request(url, READ, { id })).data.pipelineRun;
}

const waitFor = (url: string, id: string, fits: (run: ReadRun) => boolean): Promise<ReadRun> =>
  until(() => read(url, id), fits);

async function expectRightEnd(db: Database, url: string, id: string): Promise<void> {
  const run = await waitFor(url, id, ({ status }) => ['COMPLETED', 'FAILED'].includes(status));
  expect(run).toMatchObject({
    status: 'COMPLETED',
    recordsProcessed: SIZE,
    recordsConsolidated: SIZE,
    recordsDuplicated: 0,
    recordsMissing: 0,
    completedWorkers: run['expectedWorkers'],
    source: { watermark: run['watermarkAfter'], lastRunId: id },
  });
  expect(await findViolations(db, id)).toEqual([]);
  const [left] = await db.query(
    `SELECT count(*)::int AS items, (SELECT count(*)::int FROM worker_runs WHERE lease_owner IS NOT NULL) AS leases
     FROM catalog_item WHERE deleted_at IS NULL`,
  );
  expect(left).toEqual({ items: SIZE, leases: 0 });
}

test('a server killed while it reads and while it consolidates, and started again, ends the run as if nothing had happened', async () => {
  let server = await spawnServer();
  const id = await start(server.url, 'FULL');
  const moments: ((run: ReadRun) => boolean)[] = [
    ({ recordsProcessed }) => recordsProcessed >= SIZE * 0.2,
    ({ recordsProcessed }) => recordsProcessed >= SIZE * 0.7,
    ({ status }) => status === 'CONSOLIDATING' || status === 'COMPLETED',
  ];
  for (const moment of moments) {
    await waitFor(server.url, id, moment);
    await server.end('SIGKILL');
    server = await spawnServer();
  }
  await expectRightEnd(database.db, server.url, id);
  expect(await server.end('SIGTERM')).toBe(0);
}, 120_000);

test('two servers share a run; when one is told to stop, it hands its pages back and the other ends it', async () => {
  // Leases that nobody hands back would hold this up for longer than the test may take.
  const slow = { RUNLEDGER_LEASE_MS: '600000' };
  const [first, second] = [await spawnServer(slow), await spawnServer(slow)];
  const id = await start(first.url, 'FULL');
  await waitFor(first.url, id, ({ recordsProcessed }) => recordsProcessed > 0);
  expect(await first.end('SIGTERM')).toBe(0);
  await expectRightEnd(database.db, second.url, id);
  const rows = await database.db.query('SELECT 1 FROM worker_runs WHERE run_id = $1 AND attempts > 0', [id]);
  expect(rows).toEqual([]);
}, 120_000);

test('pipelineRunProgress shows the run on its way and always its end', async () => {
  const server = await spawnServer();
  const id = await start(server.url, 'FULL');
  const client = new ApiClient(server.url, ADMIN_KEY);
  const seen: { status: string; recordsProcessed: number; lastSeq: number }[] = [];
  for await (const { data } of client.watch(PipelineRunProgress, { runId: id })) {
    seen.push(data!.pipelineRunProgress);
    if (data!.pipelineRunProgress.status === 'COMPLETED') break;
  }
  await client.close();
  expect(seen.at(-1)).toMatchObject({ status: 'COMPLETED', recordsProcessed: SIZE });
  const processed = seen.map(({ recordsProcessed }) => recordsProcessed);
  expect(processed).toEqual(processed.toSorted((a, b) => a - b));
  const seqs = seen.map(({ lastSeq }) => lastSeq);
  expect(seqs).toEqual(seqs.toSorted((a, b) => a - b));
}, 60_000);
