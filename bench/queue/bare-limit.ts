// The bare limit: the two UPDATEs that any queue of this shape must make of each job, on the same table with the
// same indexes, in the same batches by as many workers, durable, and with nothing else: no guard, no CHECK, no
// history, no counters, no bell, no heartbeat, no call. With `history`, each UPDATE appends a line per job to the
// ledger as well, numbered by the client: what a queue must cost at least that keeps one.

import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { migrate } from '../../src/store/migrate.js';
import { BATCH, WORKERS, type Contender } from './contender.js';

type Moved = { id: string }[] & { readonly count: number };

export class BareLimit implements Contender {
  readonly name: string;
  readonly isPeer = false;
  readonly #pool: pg.Pool;
  #runId = '';
  #lines = 0;

  static async open(url: string, migrations: string, keeps: 'nothing' | 'history'): Promise<BareLimit> {
    await migrate(url, migrations);
    const limit = new BareLimit(url, keeps);
    await limit.#pool.query(
      `DO $$
       DECLARE
         check_name name;
       BEGIN
         ALTER TABLE rule_target DISABLE TRIGGER ALL;
         FOR check_name IN SELECT conname FROM pg_constraint WHERE conrelid = 'rule_target'::regclass AND contype = 'c' LOOP
           EXECUTE format('ALTER TABLE rule_target DROP CONSTRAINT %I', check_name);
         END LOOP;
       END $$`,
    );
    return limit;
  }

  private constructor(
    url: string,
    private readonly keeps: 'nothing' | 'history',
  ) {
    this.name = keeps === 'history' ? 'bare limit, with history' : 'bare limit';
    this.#pool = new pg.Pool({ connectionString: url, max: WORKERS });
    // A server that stops right after us may answer our goodbye with its own.
    this.#pool.on('error', () => {});
    this.#pool.on('connect', (client) => client.on('error', () => {}));
  }

  async fill(jobs: number): Promise<void> {
    this.#runId = randomUUID();
    await this.#pool.query(
      `INSERT INTO rule_target (run_id, tenant_id, external_id, status, currency, before_amount, after_amount)
       SELECT $1, 'default', 'item-' || n, 'QUEUED', 'EUR', 1000, 1100 FROM generate_series(1, $2::int) n`,
      [this.#runId, jobs],
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
      const rows = await this.#move(
        'QUEUED',
        `UPDATE rule_target SET status = 'APPLYING', attempts = attempts + 1, lease_owner = $1, lease_epoch = $2,
           lease_until = clock_timestamp() + interval '2 minutes'
         WHERE id = ANY(ARRAY(
           SELECT id FROM rule_target WHERE run_id = $3 AND id > $4 AND status = 'QUEUED'
           ORDER BY run_id, id LIMIT ${BATCH} FOR UPDATE SKIP LOCKED))
         RETURNING id, external_id, before_amount, after_amount, currency, attempts, status`,
        [owner, epoch, this.#runId, cursor],
      );
      if (rows.length === 0) return done;
      const ids = rows.map(({ id }) => id);
      cursor = ids.reduce((a, b) => (BigInt(a) > BigInt(b) ? a : b));
      const settled = await this.#move(
        'APPLYING',
        `UPDATE rule_target SET status = 'APPLIED', applied_at = clock_timestamp(),
           lease_owner = NULL, lease_until = NULL, lease_epoch = NULL
         WHERE id = ANY($4::bigint[]) AND lease_owner = $1 AND lease_epoch = $2 AND run_id = $3
         ${this.keeps === 'history' ? 'RETURNING id, external_id, attempts, status' : ''}`,
        [owner, epoch, this.#runId, ids],
      );
      done += settled.count;
    }
  }

  async #move(from: string, update: string, values: unknown[]): Promise<Moved> {
    if (this.keeps === 'nothing') {
      const { rows, rowCount } = await this.#pool.query<{ id: string }>(update, values);
      return Object.assign(rows, { count: rowCount ?? 0 });
    }
    const after = this.#lines;
    this.#lines += BATCH;
    const { rows, rowCount } = await this.#pool.query<{ id: string }>(
      `WITH moved AS (${update}), lines AS (
         INSERT INTO run_event (run_id, seq, tenant_id, run_kind, type, message, actor, target_id, created_at,
           from_state, to_state, external_id, attempt)
         SELECT $3, $5 + row_number() OVER (), 'default', 'RULE', 'rule_target.move', $6 || ' → ' || status, $1, id,
           clock_timestamp(), $6, status, external_id, attempts
         FROM moved)
       SELECT * FROM moved`,
      [...values, after, from],
    );
    return Object.assign(rows, { count: rowCount ?? 0 });
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }
}
