// A supplier's feed of 500,000 records in 30 partitions, read, priced and consolidated by one server process, beside
// the limit: the same rows through COPY into an unlogged table. `npm run bench -- pipeline [--quick]`. Bars: 15,000
// records consolidated a second and 0.15 of the limit, by a process that stays under 400 MB.

import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { Viewer } from '../src/domain/viewer.js';
import { registerSource } from '../src/store/source.js';
import { Database } from '../src/store/db.js';
import { migrate } from '../src/store/migrate.js';
import { savePricingRule } from '../src/store/pricing-rule.js';
import { findPipelineRuns, type PipelineRunRow } from '../src/store/pipeline-run.js';
import { startPipelineRun } from '../src/store/pipeline-run-control.js';
import { MIGRATIONS, withPostgres } from './lib/stage.js';
import { copyRows } from './pipeline/copy.js';
import { BenchProcess, cpuOfChildren, parentOf } from './pipeline/processes.js';

const isQuick = process.argv.includes('--quick');
const RECORDS = isQuick ? 50_000 : 500_000;
const PARTITIONS = 30;
const SAMPLE_MS = 100;
const BARS = { consolidatedPerSecond: 15_000, ofLimit: 0.15, residentMb: 400 };

const VIEWER: Viewer = { tenantId: 'default', role: 'ADMIN', actor: 'bench', keyId: null };

interface Stage {
  readonly name: string;
  readonly seconds: number;
  readonly recordsPerSecond: number;
  readonly serverCpu: number;
  readonly postgresCpu: number;
  /** Share of the samples in which PostgreSQL was at work for the server. */
  readonly postgresBusy: number;
  readonly residentMb: number;
}

class Bench {
  constructor(
    readonly db: Database,
    readonly postmasterPid: number,
    readonly server: BenchProcess,
  ) {}

  /** Watches the run until it has left `status`. */
  async watch(runId: string, name: string, status: readonly string[]): Promise<Stage> {
    const begin = performance.now();
    const [serverCpu, postgresCpu] = [this.server.usage.cpuSeconds, cpuOfChildren(this.postmasterPid)];
    let samples = 0;
    let busy = 0;
    let residentMb = 0;
    for (;;) {
      const run = await this.read(runId);
      if (!status.includes(run.status)) break;
      samples += 1;
      if (await this.isPostgresBusy()) busy += 1;
      residentMb = Math.max(residentMb, this.server.usage.residentMb);
      await delay(SAMPLE_MS);
    }
    const seconds = (performance.now() - begin) / 1000;
    return {
      name,
      seconds,
      recordsPerSecond: RECORDS / seconds,
      serverCpu: this.server.usage.cpuSeconds - serverCpu,
      postgresCpu: cpuOfChildren(this.postmasterPid) - postgresCpu,
      postgresBusy: busy / samples,
      residentMb,
    };
  }

  async read(runId: string): Promise<PipelineRunRow> {
    return (await findPipelineRuns(this.db, VIEWER, [runId])).get(runId)!;
  }

  async isPostgresBusy(): Promise<boolean> {
    const rows = await this.db.query(
      `SELECT 1 FROM pg_stat_activity
       WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1`,
    );
    return rows.length > 0;
  }
}

/** The rows that consolidation reads and writes, through COPY; answers records a second. */
async function measureLimit(url: string): Promise<number> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query('CREATE UNLOGGED TABLE copied (LIKE raw_item)');
    const { rows } = await client.query<{ line: string }>(
      `SELECT concat_ws(E'\\t', source_id, external_id, run_id, replace(payload::text, '\\', '\\\\'), fetched_at,
         consolidated_at, came_twice, listed_twice) || E'\\n' AS line FROM raw_item`,
    );
    const lines = rows.map(({ line }) => line);
    const begin = performance.now();
    await copyRows(client, 'COPY copied FROM STDIN', lines);
    const seconds = (performance.now() - begin) / 1000;
    const counted = await client.query<{ count: number }>('SELECT count(*)::int AS count FROM copied');
    if (counted.rows[0]!.count !== RECORDS) throw new Error('COPY did not take every row');
    return RECORDS / seconds;
  } finally {
    await client.end();
  }
}

async function enableRule(db: Database): Promise<void> {
  await savePricingRule(db, VIEWER, {
    id: null,
    projectId: 'default',
    name: 'margin',
    enabled: true,
    priority: 0,
    definition: { adjust: { marginPercent: 20 } },
    expectedVersion: null,
  });
}

/** Every item has the rule's price, or the figure is not that of the work. */
async function checkPrices(db: Database): Promise<void> {
  const [row] = await db.query<{ priced: number }>(
    'SELECT count(*)::int AS priced FROM catalog_item WHERE unit_amount > cost_amount',
  );
  if (row!.priced !== RECORDS) throw new Error(`the rule priced ${row!.priced} of ${RECORDS} items`);
}

async function run(bench: Bench, sourceId: string): Promise<Stage[]> {
  const { id } = await startPipelineRun(bench.db, VIEWER, {
    projectId: 'default',
    sourceId,
    runType: 'full',
    allowConcurrent: false,
    metadata: {},
    idempotencyKey: null,
  });
  const plan = await bench.watch(id, 'plan', ['CREATED']);
  const fetch = await bench.watch(id, 'fetch', ['WORKERS_RUNNING']);
  const consolidation = await bench.watch(id, 'consolidate', ['CONSOLIDATING']);
  const end = await bench.read(id);
  if (end.status !== 'COMPLETED' || end.recordsConsolidated !== RECORDS) {
    throw new Error(`the run ended ${end.status} with ${end.recordsConsolidated} records: ${end.error}`);
  }
  console.log(`${end.expectedWorkers} partitions`);
  return [plan, fetch, consolidation];
}

function print(stages: readonly Stage[]): void {
  const rows = stages.map((stage) => ({
    stage: stage.name,
    seconds: stage.seconds.toFixed(1),
    'records/s': stage.name === 'plan' ? '' : Math.round(stage.recordsPerSecond),
    'server CPU s': stage.serverCpu.toFixed(1),
    'PostgreSQL CPU s': stage.postgresCpu.toFixed(1),
    'PostgreSQL busy': `${Math.round(stage.postgresBusy * 100)} %`,
    'resident MB': Math.round(stage.residentMb),
  }));
  console.table(rows);
}

async function main(url: string): Promise<void> {
  await migrate(url, MIGRATIONS);
  const db = new Database({ url });
  const feed = await BenchProcess.start('bench/pipeline/feed.ts', [String(RECORDS)], (line) =>
    line.startsWith('{'),
  );
  const server = await BenchProcess.start('dist/main.js', [], (line) => line.includes('listens at'), {
    DATABASE_URL: url,
    PORT: '0',
    RUNLEDGER_LOG_LEVEL: 'warn',
    RUNLEDGER_SANDBOX: 'off',
    RUNLEDGER_API_KEY: 'bench-admin-key',
  });
  try {
    const config = { ...JSON.parse(feed.greeting), policy: { partitions: PARTITIONS } };
    const sourceId = await registerSource(db, { tenantId: 'default', name: 'bench', kind: 'nivoda', config });
    const [backend] = await db.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    const bench = new Bench(db, parentOf(backend!.pid), server);
    await enableRule(db);
    const stages = await run(bench, sourceId);
    await checkPrices(db);
    print(stages);
    const limit = await measureLimit(url);
    console.log(`COPY: ${Math.round(limit)} records/s`);
    const [, fetch, consolidation] = stages;
    // Between two samples it may have been more: the kernel knows the most that it ever was.
    const residentMb = server.usage.peakMb;
    const ofLimit = consolidation!.recordsPerSecond / limit;
    const isMet =
      consolidation!.recordsPerSecond >= BARS.consolidatedPerSecond &&
      ofLimit >= BARS.ofLimit &&
      residentMb < BARS.residentMb;
    console.log(
      JSON.stringify({
        benchmark: 'pipeline',
        records: RECORDS,
        fetchedPerSecond: Math.round(fetch!.recordsPerSecond),
        consolidatedPerSecond: Math.round(consolidation!.recordsPerSecond),
        copyPerSecond: Math.round(limit),
        ratio: Number(ofLimit.toFixed(3)),
        postgresBusy: Number(consolidation!.postgresBusy.toFixed(2)),
        residentMb: Math.round(residentMb),
        bars: BARS,
        met: isMet,
      }),
    );
  } finally {
    await Promise.all([feed.end(), server.end()]);
    await db.close();
  }
}

await withPostgres(main);
