// A supplier and the pipeline that reads it, for tests: the sandbox's feed over real HTTP, the three kinds of
// pipeline work on a database of its own, driven unit by unit.
import { openSource } from '../../src/connectors/source-registry.js';
import type { PipelineRunType } from '../../src/domain/pipeline-run.js';
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';
import type { RunnerObserver } from '../../src/runner/observer.js';
import { PipelineConsolidation } from '../../src/runner/pipeline-consolidation.js';
import { PipelinePages } from '../../src/runner/pipeline-pages.js';
import { PipelinePlans } from '../../src/runner/pipeline-plans.js';
import { PipelineSources } from '../../src/runner/pipeline-source.js';
import type { Work, WorkKind } from '../../src/runner/work.js';
import type { FeedOptions } from '../../src/sandbox/feed/feed.js';
import type { StockChanges } from '../../src/sandbox/feed/stock.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';
import { SecretBox } from '../../src/store/secret-box.js';
import { registerSource } from '../../src/store/source.js';
import { findConsolidatingRuns, type ConsolidatingRun } from '../../src/store/consolidation.js';
import type { Database } from '../../src/store/db.js';
import { findViolations } from '../../src/store/doctor.js';
import { listPartitions, type PartitionRow } from '../../src/store/partition.js';
import { claimPlan, settlePlan } from '../../src/store/pipeline-plan.js';
import { findPipelineRuns, type PipelineRunRow } from '../../src/store/pipeline-run.js';
import { startPipelineRun, type NewPipelineRun } from '../../src/store/pipeline-run-control.js';
import { listRejectedRecords, type RejectedRecordRow } from '../../src/store/rejected-record.js';
import { linesOf, type LedgerLine } from '../store/rows.js';
import { KeptLog } from '../runner/support.js';
import { createTestDatabase, type TestDatabase } from './database.js';
import { viewerOf } from './fixtures.js';

const NEVER = new AbortController().signal;
const TEN_MINUTES = 600_000;

export interface TestFeed {
  readonly name: string;
  readonly sourceId: string;
  readonly changes: StockChanges;
}

/** What one process has: kinds of its own on the shared database. */
export class PipelineWorker {
  readonly plans: PipelinePlans;
  readonly pages: PipelinePages;
  readonly consolidation: PipelineConsolidation;

  constructor(
    db: Database,
    readonly id: string,
    {
      leaseMs = 60_000,
      callTimeoutMs = 5_000,
      log = new KeptLog(),
      observer = {} as RunnerObserver,
      filesDir = null as string | null,
    } = {},
  ) {
    // Retries come at once: tests wait for nothing.
    const retry = { ...DEFAULT_RETRY_POLICY, baseMs: 0, throttleBaseMs: 0, jitter: 0 };
    const defaults = { retry, callTimeoutMs, filesDir };
    const sources = new PipelineSources(db, new SecretBox([]), ({ kind, config }) =>
      openSource(kind, config, defaults),
    );
    const options = { db, sources, leaseMs, log, observer, retry, random: () => 0 };
    this.plans = new PipelinePlans(options);
    this.pages = new PipelinePages(options);
    this.consolidation = new PipelineConsolidation(options);
  }

  get kinds(): readonly WorkKind[] {
    return [this.plans, this.pages, this.consolidation];
  }

  /** One unit of the kind; false when there is none. */
  async step(kind: WorkKind, signal = NEVER): Promise<boolean> {
    const work = await kind.claim(this.id);
    await work?.process(signal);
    return work !== null;
  }

  async claimed(kind: WorkKind): Promise<Work> {
    const work = await kind.claim(this.id);
    if (!work) throw new Error(`${kind.name}: nothing to claim`);
    return work;
  }

  /** Works until nothing waits any more. */
  async drain(): Promise<void> {
    for (;;) {
      const delays = await Promise.all(this.kinds.map((kind) => kind.nextDueMs()));
      const due = delays.filter((ms) => ms !== null);
      if (due.length === 0) return;
      const wait = Math.min(...due);
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      for (const kind of this.kinds) await this.step(kind);
    }
  }
}

export class FeedWorld {
  readonly viewer = viewerOf('default');
  #feeds = 0;

  static async create(): Promise<FeedWorld> {
    return new FeedWorld(await createTestDatabase(), await startSandbox());
  }

  private constructor(
    readonly database: TestDatabase,
    readonly sandbox: Sandbox,
  ) {}

  get db(): Database {
    return this.database.db;
  }

  async drop(): Promise<void> {
    await this.sandbox.stop();
    await this.database.drop();
  }

  /** A feed of its own, registered as a source. */
  async feed(options: FeedOptions = {}, policy: object = {}): Promise<TestFeed> {
    const name = `feed-${(this.#feeds += 1)}`;
    return this.pointAt(name, options, policy);
  }

  /** The same feed with other options: what was changed by hand stays. */
  async pointAt(name: string, options: FeedOptions, policy: object = {}): Promise<TestFeed> {
    const { sourceId } = await this.source(name, 'nivoda', {
      ...this.sandbox.feedConfig(name, options),
      policy,
    });
    return { name, sourceId, changes: this.sandbox.feedChanges(name) };
  }

  /** A source of any kind; the one that has the name is pointed elsewhere. */
  async source(name: string, kind: string, config: object): Promise<Pick<TestFeed, 'sourceId'>> {
    const tenantId = 'default';
    return { sourceId: await registerSource(this.db, { tenantId, name, kind, config: config as never }) };
  }

  worker(id = 'w1', options: ConstructorParameters<typeof PipelineWorker>[2] = {}): PipelineWorker {
    return new PipelineWorker(this.db, id, options);
  }

  start(
    { sourceId }: Pick<TestFeed, 'sourceId'>,
    runType: PipelineRunType | null = null,
    overrides: Partial<NewPipelineRun> = {},
  ): Promise<PipelineRunRow> {
    return startPipelineRun(this.db, this.viewer, {
      projectId: 'default',
      sourceId,
      runType,
      allowConcurrent: false,
      metadata: {},
      idempotencyKey: null,
      ...overrides,
    });
  }

  /** Starts a run and works until it has ended; answers it as it is then. */
  async run(
    feed: Pick<TestFeed, 'sourceId'>,
    runType: PipelineRunType | null = null,
    worker = this.worker(),
  ): Promise<PipelineRunRow> {
    const { id } = await this.start(feed, runType);
    await worker.drain();
    await this.expectSound(id);
    return this.find(id);
  }

  /** A run that is being read, in `count` partitions of 60 records; answers its id. */
  async reading(feed: Pick<TestFeed, 'sourceId'>, count = 1): Promise<string> {
    const { id } = await this.start(feed);
    const claim = await claimPlan(this.db, { workerId: 'planner', leaseMs: 60_000 });
    const partitions = Array.from({ length: count }, (_, index) => ({
      partitionId: `partition-${index}`,
      payload: { minPrice: index, maxPrice: index, totalRecords: 60, limit: 30 },
    }));
    await settlePlan(this.db, claim!, { beganAt: new Date(), partitions });
    return id;
  }

  /** A full run that was read, in one partition of one record that it did not keep. */
  async consolidating(feed: Pick<TestFeed, 'sourceId'>): Promise<ConsolidatingRun> {
    const { id } = await this.start(feed, 'full');
    const move = (status: string) =>
      this.db.query('UPDATE run_metadata SET status = $2 WHERE run_id = $1', [id, status]);
    await this.db.query(
      'UPDATE run_metadata SET plan_began_at = started_at, expected_workers = 1 WHERE run_id = $1',
      [id],
    );
    await move('WORKERS_RUNNING');
    await this.db.query(`INSERT INTO worker_runs (run_id, partition_id) VALUES ($1, 'partition-0')`, [id]);
    for (const status of ['running', 'completed']) {
      await this.db.query('UPDATE worker_runs SET status = $2, records_processed = 1 WHERE run_id = $1', [
        id,
        status,
      ]);
    }
    await move('CONSOLIDATING');
    const runs = await findConsolidatingRuns(this.db, []);
    return runs.find(({ runId }) => runId === id)!;
  }

  async find(runId: string): Promise<PipelineRunRow> {
    return (await findPipelineRuns(this.db, this.viewer, [runId])).get(runId)!;
  }

  async partitions(runId: string, stuckAfterMs = TEN_MINUTES): Promise<PartitionRow[]> {
    return (await listPartitions(this.db, this.viewer, [runId], stuckAfterMs)).get(runId)!;
  }

  async rejected(runId: string): Promise<readonly RejectedRecordRow[]> {
    const pages = await listRejectedRecords(this.db, this.viewer, [runId], { first: 1_000, after: null });
    return pages.get(runId)!.nodes;
  }

  lines(runId: string): Promise<LedgerLine[]> {
    return linesOf(this.db, runId);
  }

  /** External ids of the catalog items that come from the source and are in the catalog. */
  async items({ sourceId }: Pick<TestFeed, 'sourceId'>): Promise<Map<string, number>> {
    const rows = await this.db.query<{ external_id: string; unit_amount: string }>(
      'SELECT external_id, unit_amount FROM catalog_item WHERE source_id = $1 AND deleted_at IS NULL',
      [sourceId],
    );
    return new Map(rows.map((row) => [row.external_id, Number(row.unit_amount)]));
  }

  async watermark({ sourceId }: Pick<TestFeed, 'sourceId'>): Promise<Date | null> {
    const [row] = await this.db.query<{ watermark: Date | null }>(
      'SELECT watermark FROM source WHERE id = $1',
      [sourceId],
    );
    return row!.watermark;
  }

  /** Everything that must hold of a run whatever happened to it. */
  async expectSound(runId: string): Promise<void> {
    const violations = await findViolations(this.db, runId);
    if (violations.length > 0) throw new Error(`the run is unsound:\n${violations.join('\n')}`);
  }
}
