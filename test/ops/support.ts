// Ops runs for the tests: through the SQL surface as a worker with psql would meet it, each statement in a
// transaction of its own, and the table read whole to say that nothing changed.
import type pg from 'pg';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { storedRunId } from '../../src/domain/run.js';
import type { Database } from '../../src/store/db.js';
import { pictureOf, type RunPicture } from '../store/rows.js';

export type Row = Record<string, unknown>;

/** Anything that can be asked a statement: a connection of the tests, or the store's pool. */
export interface Session {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: Row[] }>;
}

export class OpsSurface {
  constructor(private readonly session: Session) {}

  async rows<T extends Row = Row>(text: string, ...values: unknown[]): Promise<T[]> {
    return (await this.session.query(text, values)).rows as T[];
  }

  async row<T extends Row = Row>(text: string, ...values: unknown[]): Promise<T> {
    const [first] = await this.rows<T>(text, ...values);
    if (!first) throw new Error(`no row: ${text}`);
    return first;
  }

  async queue(env = 'staging', key: string | null = null): Promise<string> {
    const text = `SELECT run_id FROM ops.queue_run('storefront', $1, '0ddba11', 'trunk', '{}'::jsonb, $2)`;
    return String((await this.row(text, env, key))['run_id']);
  }

  /** The id of the run that was claimed, or null. */
  async claim(workerId = 'worker-001', env: string | null = null): Promise<string | null> {
    const [run] = await this.rows('SELECT run_id FROM ops.claim_next_run($1, NULL, $2)', workerId, env);
    return run ? String(run['run_id']) : null;
  }

  /** A run of its own environment, claimed. */
  async claimed(workerId = 'worker-001'): Promise<string> {
    const env = crypto.randomUUID();
    const runId = await this.queue(env);
    if ((await this.claim(workerId, env)) !== runId) throw new Error('another run was claimed');
    return runId;
  }

  async running(workerId = 'worker-001'): Promise<string> {
    const runId = await this.claimed(workerId);
    await this.append(runId, 'began');
    return runId;
  }

  async append(
    runId: string,
    message: string,
    level = 'info',
    workerId: string | null = null,
  ): Promise<string> {
    const text = 'SELECT ops.append_event($1, $2, $3, p_worker_id := $4) AS id';
    return String((await this.row(text, runId, level, message, workerId))['id']);
  }

  async finish(
    runId: string,
    status: string,
    metadata: Row = {},
    workerId: string | null = null,
  ): Promise<unknown> {
    const text = 'SELECT ops.finish_run($1, $2, $3, $4) AS status';
    return (await this.row(text, runId, status, JSON.stringify(metadata), workerId))['status'];
  }

  run(runId: string): Promise<Row> {
    return this.row('SELECT * FROM ops.runs WHERE run_id = $1', runId);
  }

  events(runId: string): Promise<Row[]> {
    return this.rows('SELECT * FROM ops.run_events WHERE run_id = $1 ORDER BY seq', runId);
  }
}

export function surfaceOf(client: pg.Client): OpsSurface {
  return new OpsSurface(client as unknown as Session);
}

/** Every column of the run and its ledger. */
export function picture(db: Database, runId: string): Promise<RunPicture> {
  return pictureOf(db, { machine: opsRunMachine, runId: storedRunId(runId) });
}

/** The SQLSTATE, message and DETAIL of a refusal by PostgreSQL itself. */
export async function refusalOf(
  promise: Promise<unknown>,
): Promise<{ code: string; message: string; detail: Row | null }> {
  const fault = await promise.then(
    () => null,
    (error: unknown) => error as { code: string; message: string; detail?: string },
  );
  if (!fault) throw new Error('expected a refusal, but it went through');
  const { code, message, detail } = fault;
  return { code, message, detail: detail?.startsWith('{') ? (JSON.parse(detail) as Row) : null };
}
