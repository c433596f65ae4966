// The ledger: reading it, and appending the lines that are no transition (the database writes those
// itself). `seq` is taken under the run's row lock, so lines appear in commit order without a gap.

import { AppError } from '../errors.js';
import { MAX_LONG_PAGE } from '../domain/page.js';
import type { EventLevel, RunKind } from '../domain/run.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { isRowNumber, isUuid } from './id.js';
import { checkFirst, toPages, type Page } from './page.js';

export interface RunEventRow {
  readonly runId: string;
  readonly seq: number;
  readonly tenantId: string;
  readonly runKind: RunKind;
  readonly type: string;
  readonly level: EventLevel;
  readonly message: string;
  readonly payload: Record<string, unknown>;
  readonly actor: string;
  readonly targetId: string | null;
  readonly createdAt: Date;
}

export interface Line {
  readonly type: string;
  readonly level: EventLevel;
  readonly message: string;
  readonly payload: Readonly<Record<string, unknown>>;
  readonly targetId?: string;
}

export const RUN_EVENT_COLUMNS = `run_id AS "runId", seq, tenant_id AS "tenantId", run_kind AS "runKind", type, level, message,
  event_payload(run_event) AS payload, actor, target_id AS "targetId", created_at AS "createdAt"`;

export interface EventPageRequest {
  readonly first: number;
  /** The seq after which to begin. */
  readonly after: number;
}

/** The same page of many runs' ledgers in one read, each in order. Of a run that is being pruned there is none. */
export async function listRunEvents(
  db: Database,
  viewer: Viewer,
  runIds: readonly string[],
  { first, after }: EventPageRequest,
): Promise<Map<string, Page<RunEventRow>>> {
  checkFirst(first, MAX_LONG_PAGE);
  if (after < 0) {
    throw new AppError('BAD_USER_INPUT', `after must be 0 or more, not ${after}.`, { field: ['after'] });
  }
  const rows = await db.query<RunEventRow>(
    `SELECT event.* FROM unnest($1::uuid[]) AS run (id) CROSS JOIN LATERAL (
       SELECT ${RUN_EVENT_COLUMNS} FROM run_event
       WHERE run_id = run.id AND tenant_id = $3
         AND seq > greatest($2, (SELECT to_seq FROM retention_work WHERE run_id = run.id))
       ORDER BY seq LIMIT $4) event`,
    [runIds.filter(isUuid), after, viewer.tenantId, first + 1],
  );
  return toPages(runIds, rows, first, after);
}

/** How much of a ledger is read at once. */
export interface LedgerPortion {
  readonly lines: number;
  /** Of texts and payloads; the first line is read however large it is. */
  readonly bytes: number;
}

export interface LedgerPage {
  readonly rows: readonly RunEventRow[];
  /** There was no line after these. */
  readonly isLast: boolean;
}

/** The lines of a run after `seq`, in order, as many as a portion holds. */
export async function readLedger(
  db: Database,
  viewer: Pick<Viewer, 'tenantId'>,
  runId: string,
  after: number,
  { lines, bytes }: LedgerPortion,
): Promise<LedgerPage> {
  if (!isUuid(runId)) return { rows: [], isLast: true };
  const found = await db.query<RunEventRow & { readonly isLast: boolean; readonly bytesBefore: string }>(
    `SELECT * FROM (
       SELECT ${RUN_EVENT_COLUMNS}, lead(seq) OVER portion IS NULL AS "isLast",
         sum(octet_length(message) + octet_length(payload::text)) OVER portion
           - octet_length(message) - octet_length(payload::text) AS "bytesBefore"
       FROM run_event WHERE run_id = $1 AND seq > $2 AND tenant_id = $3
       -- Worked out line by line, so that the limit ends the read.
       WINDOW portion AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)
       ORDER BY seq LIMIT $4) line
     WHERE "bytesBefore" < $5`,
    [runId, after, viewer.tenantId, lines, bytes],
  );
  const rows = found.map(({ isLast: _isLast, bytesBefore: _bytesBefore, ...row }) => row);
  return { rows, isLast: found.at(-1)?.isLast ?? true };
}

/**
 * SQL of all lines of the targets `$1` of the tenant `$2`. Those of changes are found by the spans that they stand in,
 * few of which are of a given target; what else is said of a target has an index of its own.
 */
export function linesOfTargets(columns: string): string {
  return `
    SELECT line.* FROM (
      SELECT DISTINCT span.run_id, span.first_seq, span.last_seq
      FROM rule_target target JOIN run_event_span span
        ON span.run_id = target.run_id AND target.id BETWEEN span.first_target AND span.last_target
      WHERE target.id = ANY($1::bigint[]) AND target.tenant_id = $2
    ) span CROSS JOIN LATERAL (
      SELECT ${columns} FROM run_event
      WHERE run_id = span.run_id AND seq BETWEEN span.first_seq AND span.last_seq
        AND target_id = ANY($1::bigint[]) AND to_state IS NOT NULL
    ) line
    UNION ALL
    SELECT ${columns} FROM run_event
    WHERE target_id = ANY($1::bigint[]) AND to_state IS NULL AND tenant_id = $2`;
}

/** The histories of many targets in one read, each in order. */
export async function listTargetHistories(
  db: Database,
  viewer: Viewer,
  targetIds: readonly string[],
): Promise<Map<string, RunEventRow[]>> {
  const histories = new Map<string, RunEventRow[]>(targetIds.map((id) => [id, []]));
  const rows = await db.query<RunEventRow>(`${linesOfTargets(RUN_EVENT_COLUMNS)} ORDER BY "targetId", seq`, [
    targetIds.filter(isRowNumber),
    viewer.tenantId,
  ]);
  for (const row of rows) histories.get(row.targetId!)?.push(row);
  return histories;
}

/** Where a run's row is, by kind; ops runs take their lines from functions of their own. */
export const RUN_KEYS = { RULE: ['rule_run', 'id'], PIPELINE: ['run_metadata', 'run_id'] } as const;

/** Appends lines to a run's ledger, under the run's row lock. */
export async function appendRunLines(
  connection: Connection,
  kind: keyof typeof RUN_KEYS,
  runId: string,
  lines: readonly Line[],
): Promise<void> {
  if (lines.length === 0) return;
  const [table, key] = RUN_KEYS[kind];
  await connection.query(
    `WITH run AS (
       UPDATE ${table} SET last_seq = last_seq + $2 WHERE ${key} = $1 RETURNING ${key} AS id, tenant_id, last_seq
     ), bell AS (
       SELECT ring_bell('${kind}', id, last_seq, tenant_id) FROM run
     )
     INSERT INTO run_event
       (run_id, seq, tenant_id, run_kind, type, level, message, payload, actor, target_id, created_at)
     SELECT run.id, run.last_seq - $2 + line.ordinal, run.tenant_id, '${kind}', line.type, line.level::event_level,
       line.message, line.payload, ledger_actor(), line.target_id, clock_timestamp()
     FROM run, bell,
       unnest($3::text[], $4::text[], $5::text[], $6::jsonb[], $7::bigint[])
         WITH ORDINALITY AS line (type, level, message, payload, target_id, ordinal)`,
    [
      runId,
      lines.length,
      lines.map(({ type }) => type),
      lines.map(({ level }) => level),
      lines.map(({ message }) => message),
      lines.map(({ payload }) => JSON.stringify(payload)),
      lines.map(({ targetId }) => targetId ?? null),
    ],
  );
}
