// Reading what the database has, whole, so that a test can say that nothing changed.
import type { Database } from '../../src/store/db.js';
import type { MachineRow } from '../support/fixtures.js';

export interface LedgerLine {
  readonly seq: number;
  readonly type: string;
  readonly level: string;
  readonly message: string;
  readonly payload: Record<string, unknown>;
  readonly actor: string;
  readonly target_id: string | null;
}

export type Row = Record<string, unknown>;

export interface RunPicture {
  readonly run: Row;
  readonly parts: readonly Row[];
  readonly lines: readonly LedgerLine[];
}

const RUN_TABLES: Readonly<Record<string, readonly [run: string, key: string, parts: string | null]>> = {
  rule_run: ['rule_run', 'id', 'rule_target'],
  rule_target: ['rule_run', 'id', 'rule_target'],
  pipeline_run: ['run_metadata', 'run_id', 'worker_runs'],
  partition: ['run_metadata', 'run_id', 'worker_runs'],
  ops_run: ['ops_run', 'id', null],
};

/** The run that a row belongs to, with its parts and its ledger, every column of them. */
export async function pictureOf(
  db: Database,
  { machine, runId }: Pick<MachineRow, 'machine' | 'runId'>,
): Promise<RunPicture> {
  const [table, key, parts] = RUN_TABLES[machine.name]!;
  const [run] = await db.query<Row>(`SELECT * FROM ${table} WHERE ${key} = $1`, [runId]);
  return {
    run: run!,
    parts: parts ? await db.query(`SELECT * FROM ${parts} WHERE run_id = $1 ORDER BY id`, [runId]) : [],
    lines: await linesOf(db, runId),
  };
}

export function linesOf(db: Database, runId: string): Promise<LedgerLine[]> {
  return db.query<LedgerLine & Row>(
    `SELECT seq, type, level, message, event_payload(run_event) AS payload, actor, target_id FROM run_event WHERE run_id = $1 ORDER BY seq`,
    [runId],
  );
}

export async function statusOf(db: Database, { machine, id }: MachineRow): Promise<string> {
  const key = machine.table === 'run_metadata' ? 'run_id' : 'id';
  const [row] = await db.query<{ status: string }>(`SELECT status FROM ${machine.table} WHERE ${key} = $1`, [
    id,
  ]);
  return row!.status;
}

/** How many rows every table has. */
export async function countRows(db: Database): Promise<Record<string, number>> {
  const tables = await db.query<{ name: string }>(
    `SELECT table_name AS name FROM information_schema.tables
     WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY table_name`,
  );
  const counts = tables.map(({ name }) => `SELECT '${name}' AS name, count(*)::int AS count FROM "${name}"`);
  const rows = await db.query<{ name: string; count: number }>(counts.join(' UNION ALL '));
  return Object.fromEntries(rows.map(({ name, count }) => [name, count]));
}

/** The error that a promise is rejected with; a promise that is kept fails the test. */
export async function faultOf(promise: Promise<unknown>): Promise<Error & { readonly code?: string }> {
  const outcome = await promise.then(
    () => null,
    (error: unknown) => error,
  );
  if (outcome instanceof Error) return outcome;
  throw new Error('expected a refusal, but it went through');
}

/** The SQLSTATE and message with which PostgreSQL refused; the store translates some, and keeps the cause. */
export async function sqlFaultOf(
  promise: Promise<unknown>,
): Promise<{ readonly code: string; readonly message: string; readonly constraint: string | undefined }> {
  const fault = await faultOf(promise);
  const source = (fault.cause ?? fault) as { code: string; message: string; constraint?: string };
  return { code: source.code, message: source.message, constraint: source.constraint };
}
