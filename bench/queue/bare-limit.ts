// The bare limit: the two UPDATEs that any queue of this shape must make of each job, in the same batches, in
// the form that is fastest here, durable, and with nothing else: no guard, no history, no counters, no bell.

import pg from 'pg';
import type { Contender } from './contender.js';

const BATCH = 500;
const WORKERS = 4;

export class BareLimit implements Contender {
  readonly name = 'bare limit';
  readonly isPeer = false;
  readonly #pool: pg.Pool;

  static async open(url: string): Promise<BareLimit> {
    const limit = new BareLimit(url);
    await limit.#pool.query(
      `CREATE TABLE target (
         id bigserial PRIMARY KEY, run_id integer NOT NULL, external_id text NOT NULL, status text NOT NULL,
         before_amount bigint NOT NULL, after_amount bigint NOT NULL, attempts integer NOT NULL DEFAULT 0,
         lease_owner text, lease_until timestamptz, lease_epoch integer, applied_at timestamptz
       ) WITH (fillfactor = 50);
       CREATE INDEX ON target (run_id, id)`,
    );
    return limit;
  }

  private constructor(url: string) {
    this.#pool = new pg.Pool({ connectionString: url, max: WORKERS });
  }

  async fill(jobs: number): Promise<void> {
    await this.#pool.query('TRUNCATE target');
    await this.#pool.query(
      `INSERT INTO target (run_id, external_id, status, before_amount, after_amount)
       SELECT 1, 'item-' || n, 'QUEUED', 1000, 1100 FROM generate_series(1, $1::int) n`,
      [jobs],
    );
  }

  async drain(jobs: number): Promise<void> {
    const workers = Array.from({ length: WORKERS }, (_, index) => this.#work(`worker-${index}`));
    const done = (await Promise.all(workers)).reduce((sum, count) => sum + count, 0);
    if (done !== jobs) throw new Error(`${done} of ${jobs} were settled`);
  }

  async #work(owner: string): Promise<number> {
    let cursor = '0';
    for (let done = 0, epoch = 1; ; epoch += 1) {
      const { rows } = await this.#pool.query<{ id: string }>(
        `UPDATE target SET status = 'APPLYING', attempts = attempts + 1, lease_owner = $1, lease_epoch = $2,
           lease_until = clock_timestamp() + interval '2 minutes'
         WHERE id = ANY(ARRAY(
           SELECT id FROM target WHERE run_id = 1 AND id > $3 AND status = 'QUEUED'
           ORDER BY id LIMIT ${BATCH} FOR UPDATE SKIP LOCKED))
         RETURNING id`,
        [owner, epoch, cursor],
      );
      if (rows.length === 0) return done;
      const ids = rows.map(({ id }) => id);
      cursor = ids.reduce((a, b) => (BigInt(a) > BigInt(b) ? a : b));
      const settled = await this.#pool.query(
        `UPDATE target SET status = 'APPLIED', applied_at = clock_timestamp(),
           lease_owner = NULL, lease_until = NULL, lease_epoch = NULL
         WHERE id = ANY($1::bigint[]) AND lease_owner = $2 AND lease_epoch = $3`,
        [ids, owner, epoch],
      );
      done += settled.rowCount ?? 0;
    }
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }
}
