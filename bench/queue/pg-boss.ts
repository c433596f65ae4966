// pg-boss at its best: large fetches, four loops, completion in batches.

import pg from 'pg';
import PgBoss from 'pg-boss';
import type { Contender } from './contender.js';

const QUEUE = 'apply';
const BATCH = 1_000;
const LOOPS = 4;
const PER_INSERT = 5_000;

export class PgBossContender implements Contender {
  readonly name = `pg-boss, fetch ${BATCH} × ${LOOPS}`;
  readonly isPeer = true;

  static async open(url: string): Promise<PgBossContender> {
    // A pool of ours: a server that stops right after us may answer its goodbye with an error, which pg-boss throws.
    const pool = new pg.Pool({ connectionString: url, max: 10 });
    pool.on('error', () => {});
    pool.on('connect', (client) => client.on('error', () => {}));
    const db = { executeSql: (text: string, values: unknown[]) => pool.query(text, values) };
    const boss = new PgBoss({ db, supervise: false, schedule: false });
    boss.on('error', (error) => console.error(error));
    await boss.start();
    await boss.createQueue(QUEUE);
    return new PgBossContender(boss, pool);
  }

  private constructor(
    private readonly boss: PgBoss,
    private readonly pool: pg.Pool,
  ) {}

  async fill(jobs: number): Promise<void> {
    for (let from = 0; from < jobs; from += PER_INSERT) {
      const count = Math.min(PER_INSERT, jobs - from);
      await this.boss.insert(
        Array.from({ length: count }, (_, index) => ({ name: QUEUE, data: { item: from + index } })),
      );
    }
  }

  async drain(jobs: number): Promise<void> {
    const counts = await Promise.all(Array.from({ length: LOOPS }, () => this.#loop()));
    const done = counts.reduce((sum, count) => sum + count, 0);
    if (done !== jobs) throw new Error(`${done} of ${jobs} were completed`);
  }

  async #loop(): Promise<number> {
    for (let done = 0; ;) {
      const jobs = await this.boss.fetch(QUEUE, { batchSize: BATCH });
      if (jobs.length === 0) return done;
      await this.boss.complete(
        QUEUE,
        jobs.map(({ id }) => id),
      );
      done += jobs.length;
    }
  }

  async close(): Promise<void> {
    await this.boss.stop({ graceful: false, wait: true });
    await this.pool.end();
  }
}
