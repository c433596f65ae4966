// graphile-worker: as it comes, and at its best (a local queue, many jobs at once, completion in batches).

import { Logger, run, runMigrations } from 'graphile-worker';
import pg from 'pg';
import { Countdown, type Contender } from './contender.js';

export type GraphileSettings = 'default' | 'best';

const PRESETS = {
  default: {},
  best: {
    concurrentJobs: 24,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
} as const;

const logger = new Logger(() => () => {});

export class GraphileWorkerContender implements Contender {
  readonly name: string;
  readonly isPeer = true;
  readonly #pool: pg.Pool;

  static async open(url: string, settings: GraphileSettings): Promise<GraphileWorkerContender> {
    const contender = new GraphileWorkerContender(url, settings);
    await runMigrations({ pgPool: contender.#pool, logger });
    return contender;
  }

  private constructor(
    url: string,
    private readonly settings: GraphileSettings,
  ) {
    this.name = `graphile-worker, ${settings}`;
    this.#pool = new pg.Pool({ connectionString: url, max: 20 });
    this.#pool.on('error', () => {});
    this.#pool.on('connect', (client) => client.on('error', () => {}));
  }

  async fill(jobs: number): Promise<void> {
    await this.#pool.query(
      `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
         SELECT ROW('apply', json_build_object('item', n), NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec
         FROM generate_series(1, $1::int) n))`,
      [jobs],
    );
  }

  async drain(jobs: number): Promise<void> {
    const done = new Countdown(jobs);
    const runner = await run({
      preset: { worker: { ...PRESETS[this.settings], logger } },
      pgPool: this.#pool,
      noHandleSignals: true,
      taskList: { apply: async () => done.done() },
    });
    await done.all;
    // Stopping waits until the completions are written, which belong to the work.
    await runner.stop();
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }
}
