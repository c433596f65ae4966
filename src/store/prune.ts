// Pruning: finds the runs whose time has come by their tenant's policy, marks each, and deletes what it left
// behind, a batch per transaction with a rest after it. Everything that decides stands in the database
// (is_prunable, retention_begin, retention_prune), so that two who prune at once, or one that is killed, do no
// harm: whoever comes next goes on. Called by the runner's job and by the cli.

import { setTimeout as delay } from 'node:timers/promises';
import type { RunKind } from '../domain/run.js';
import { AppError } from '../errors.js';
import type { Database } from './db.js';

export interface PruneOptions {
  /** Ends the pass after the batch at hand. */
  readonly signal?: AbortSignal;
  /** Likewise. */
  readonly longestMs?: number;
  /** Rows that one transaction deletes. */
  readonly batchSize?: number;
  /** Null: every tenant. */
  readonly tenantId?: string | null;
  readonly actor?: string;
  /** Told after every batch. */
  readonly onProgress?: (totals: PruneTotals) => void;
}

export interface PruneTotals {
  /** Runs that were pruned to the end. */
  readonly runs: number;
  readonly rows: number;
  /** Until when nothing more is pruned, where the database holds it: its clock has leapt, or nobody looked. */
  readonly heldUntil?: Date;
}

export interface DueRuns {
  readonly tenantId: string;
  readonly kind: RunKind;
  readonly runs: number;
  /** What they have beside their rows. */
  readonly lines: number;
  readonly parts: number;
}

const BATCH_SIZE = 5_000;
const RUNS_AT_ONCE = 200;
/** A rest is as long as the batch took: half of the time the database has to itself. */
const LONGEST_REST_MS = 2_000;

/** Runs that are kept for the same time: each search has an index of its own, which holds no others. */
interface Search {
  readonly kind: RunKind;
  readonly table: string;
  readonly key: string;
  readonly which: string;
  /** The time that its age is counted from. */
  readonly since: string;
  readonly days: 'keep_days' | 'rollback_days';
  /** What a run has for parts, as SQL over `run`. */
  readonly parts: string;
}

const RULE = { kind: 'RULE', table: 'rule_run', key: 'id', parts: 'run.total_count' } as const;
const HAS_ENDED = 'run.finished_at IS NOT NULL';

const SEARCHES: readonly Search[] = [
  {
    ...RULE,
    which: `${HAS_ENDED} AND run.status NOT IN ('APPLIED', 'PARTIAL') AND run.queued_at IS NOT NULL`,
    since: 'finished_at',
    days: 'keep_days',
  },
  {
    ...RULE,
    which: `${HAS_ENDED} AND run.status IN ('APPLIED', 'PARTIAL')`,
    since: 'finished_at',
    days: 'rollback_days',
  },
  { ...RULE, which: 'run.queued_at IS NULL', since: 'created_at', days: 'keep_days' },
  {
    kind: 'PIPELINE',
    table: 'run_metadata',
    key: 'run_id',
    which: HAS_ENDED,
    since: 'finished_at',
    days: 'keep_days',
    parts: `(SELECT count(*) FROM worker_runs WHERE run_id = run.run_id)
      + (SELECT count(*) FROM rejected_record WHERE run_id = run.run_id)`,
  },
  {
    kind: 'OPS',
    table: 'ops_run',
    key: 'id',
    which: HAS_ENDED,
    since: 'finished_at',
    days: 'keep_days',
    parts: '0',
  },
];

/** Old enough, by the statement's time: no index is read by a clock that moves on. */
const isOld = ({ which, since }: Search, days: string): string =>
  `run.pruned_at IS NULL AND ${which} AND run.${since} < statement_timestamp() - make_interval(days => ${days})`;

/** Until when nothing may be pruned, because the clock has leapt; null when it has not. Notes the time. */
export async function lookAtClock(db: Database): Promise<Date | null> {
  const [row] = await db.query<{ heldUntil: Date | null }>('SELECT retention_look() AS "heldUntil"');
  return row!.heldUntil;
}

/** What a pass would prune now, per tenant and kind. Reads only. */
export async function countDueRuns(db: Database, tenantId: string | null): Promise<DueRuns[]> {
  const due = SEARCHES.map(
    (search) =>
      `SELECT policy.tenant_id, policy.kind, run.last_seq AS lines, ${search.parts} AS parts
       FROM retention_policy policy JOIN ${search.table} run ON run.tenant_id = policy.tenant_id
         AND ${isOld(search, `policy.${search.days}`)} AND is_prunable(run, policy)
       WHERE policy.kind = '${search.kind}' AND ($1::text IS NULL OR policy.tenant_id = $1)`,
  );
  return db.query<DueRuns & Record<string, unknown>>(
    `SELECT tenant_id AS "tenantId", kind::text AS kind, count(*)::float8 AS runs, sum(lines)::float8 AS lines,
       sum(parts)::float8 AS parts
     FROM (${due.join(' UNION ALL ')}) due GROUP BY 1, 2 ORDER BY 1, 2`,
    [tenantId],
  );
}

/**
 * One pass: first what was begun and is not over, then what is due. Answers what it has done. A run that cannot
 * be pruned does not stop the others; its fault is thrown at the end.
 */
export function pruneDueRuns(db: Database, options: PruneOptions = {}): Promise<PruneTotals> {
  return new PrunePass(db, options).run();
}

interface OldRun {
  readonly id: string;
  /** Where the search goes on. */
  readonly since: string;
  /** Nothing else keeps it. */
  readonly isDue: boolean;
}

class PrunePass {
  #runs = 0;
  #rows = 0;
  #heldUntil: Date | null = null;
  readonly #faults: unknown[] = [];
  readonly #endsAt: number;

  constructor(
    private readonly db: Database,
    private readonly options: PruneOptions,
  ) {
    this.#endsAt = performance.now() + (options.longestMs ?? Infinity);
  }

  async run(): Promise<PruneTotals> {
    this.#heldUntil = await lookAtClock(this.db);
    if (!this.#isOver) await this.#pruneAll();
    if (this.#faults.length > 0) throw this.#faults[0];
    return this.#totals;
  }

  async #pruneAll(): Promise<void> {
    for (const id of await this.#findBegun()) await this.#try(() => this.#prune(id));
    for (const tenantId of await this.#findTenants())
      for (const search of SEARCHES) await this.#try(() => this.#pruneOld(tenantId, search));
  }

  get #totals(): PruneTotals {
    const totals = { runs: this.#runs, rows: this.#rows };
    return this.#heldUntil === null ? totals : { ...totals, heldUntil: this.#heldUntil };
  }

  get #isOver(): boolean {
    if (this.#heldUntil !== null || this.options.signal?.aborted) return true;
    return performance.now() >= this.#endsAt;
  }

  async #findBegun(): Promise<string[]> {
    const rows = await this.db.query<{ id: string }>(
      'SELECT run_id AS id FROM retention_work WHERE $1::text IS NULL OR tenant_id = $1 ORDER BY begun_at',
      [this.options.tenantId ?? null],
    );
    return rows.map(({ id }) => id);
  }

  async #findTenants(): Promise<string[]> {
    const rows = await this.db.query<{ id: string }>(
      `SELECT DISTINCT tenant_id AS id FROM retention_policy
       WHERE keep_days IS NOT NULL AND ($1::text IS NULL OR tenant_id = $1) ORDER BY 1`,
      [this.options.tenantId ?? null],
    );
    return rows.map(({ id }) => id);
  }

  async #pruneOld(tenantId: string, search: Search): Promise<void> {
    let last: OldRun | null = null;
    while (!this.#isOver) {
      const old: readonly OldRun[] = await findOldRuns(this.db, tenantId, search, last);
      for (const { id, isDue } of old) {
        if (this.#isOver) return;
        if (!isDue) continue;
        await this.#try(async () => {
          if (await this.#begin(search.kind, id)) await this.#prune(id);
        });
      }
      last = old.at(-1) ?? null;
      if (old.length < RUNS_AT_ONCE) return;
    }
  }

  async #try(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (error instanceof AppError && error.code === 'UNAVAILABLE') throw error;
      this.#faults.push(error);
    }
  }

  async #begin(kind: RunKind, id: string): Promise<boolean> {
    return this.#transaction(async (query) => {
      const [row] = await query<{ begun: boolean; heldUntil: Date | null }>(
        'SELECT begun, held_until AS "heldUntil" FROM retention_begin($1::run_kind, $2)',
        [kind, id],
      );
      this.#heldUntil = row!.heldUntil;
      return row!.begun;
    });
  }

  async #prune(id: string): Promise<void> {
    while (!this.#isOver) {
      const began = performance.now();
      const batch = await this.#pruneBatch(id);
      // Somebody else is at it.
      if (batch.removed === null) return;
      this.#rows += batch.removed;
      if (batch.done) this.#runs += 1;
      this.options.onProgress?.(this.#totals);
      await this.#rest(performance.now() - began);
      if (batch.done) return;
    }
  }

  #pruneBatch(id: string): Promise<{ readonly removed: number | null; readonly done: boolean | null }> {
    return this.#transaction(async (query) => {
      const [row] = await query<{ removed: number | null; done: boolean | null }>(
        'SELECT removed, done FROM retention_prune($1, $2)',
        [id, this.options.batchSize ?? BATCH_SIZE],
      );
      return row!;
    });
  }

  #transaction<T>(work: (query: Query) => Promise<T>): Promise<T> {
    return this.db.transaction(this.options.actor ?? 'system', (connection) =>
      work(async (text, values) => (await connection.query(text, [...values])).rows),
    );
  }

  async #rest(workedMs: number): Promise<void> {
    const { signal } = this.options;
    const ms = Math.min(workedMs, LONGEST_REST_MS);
    await delay(ms, undefined, signal ? { signal } : {}).catch(() => {});
  }
}

/**
 * Some of those that are old enough, oldest first, from where the search stopped: it is bounded however many are
 * kept for another reason, and one that somebody holds is not found again in this pass.
 */
async function findOldRuns(
  db: Database,
  tenantId: string,
  search: Search,
  last: OldRun | null,
): Promise<OldRun[]> {
  const { kind, table, key, since, days } = search;
  const policy = `retention_policy WHERE tenant_id = $1 AND kind = '${kind}'`;
  return db.query<OldRun & Record<string, unknown>>(
    `SELECT id, since::text, is_prunable(run, policy) AS "isDue"
     FROM (
       SELECT run, run.${key} AS id, run.${since} AS since FROM ${table} run
       -- The figure on its own, so that the index gives the order.
       WHERE run.tenant_id = $1 AND ${isOld(search, `(SELECT ${days} FROM ${policy})`)}
         ${last === null ? '' : `AND (run.${since}, run.${key}) > ($2::timestamptz, $3::uuid)`}
       ORDER BY run.${since}, run.${key} LIMIT ${RUNS_AT_ONCE}
     ) old, (SELECT * FROM ${policy}) policy
     ORDER BY since, id`,
    last === null ? [tenantId] : [tenantId, last.since, last.id],
  );
}

type Query = <Row>(text: string, values: readonly unknown[]) => Promise<Row[]>;
