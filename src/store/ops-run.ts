// Ops runs: queueing, claiming, reporting on and reading them. What may be done to a run stands once, in the
// database's functions ops_run_*, which the SQL surface calls as well; here they are called for a viewer.
// Ids are as people see them (`run-…`), but for findOpsRuns, which is asked by the row's own.

import { AppError } from '../errors.js';
import type { OpsRunStatus, StaleAction } from '../domain/ops-run.js';
import { publicRunId, storedRunId, type EventLevel } from '../domain/run.js';
import type { Viewer } from '../domain/viewer.js';
import type { Database } from './db.js';
import { isUuid, newId } from './id.js';
import { RUN_EVENT_COLUMNS, type RunEventRow } from './ledger.js';

export interface OpsRunRow {
  readonly id: string;
  readonly tenantId: string;
  readonly projectId: string;
  readonly env: string;
  readonly gitSha: string | null;
  readonly gitRef: string | null;
  readonly status: OpsRunStatus;
  readonly priority: number;
  readonly claimedBy: string | null;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly onStale: StaleAction;
  readonly idempotencyKey: string | null;
  readonly metadata: Record<string, unknown>;
  readonly lastSeq: number;
  readonly createdAt: Date;
  readonly queuedAt: Date;
  readonly availableAt: Date | null;
  readonly startedAt: Date | null;
  readonly heartbeatAt: Date | null;
  readonly finishedAt: Date | null;
  readonly prunedAt: Date | null;
  readonly prunedSeq: number | null;
}

export interface NewOpsRun {
  readonly projectId: string;
  readonly env: string;
  readonly gitSha: string | null;
  readonly gitRef: string | null;
  readonly metadata: unknown;
  readonly idempotencyKey: string | null;
  readonly priority: number;
  readonly onStale: StaleAction;
  readonly maxAttempts: number;
  /** Answer the run of a key that was used, also when it was used for another request. */
  readonly sameKeyIsSameRun?: boolean;
}

/** The claim that a worker reports under; `attempt` tells two claims by one worker id apart. */
export interface OpsClaim {
  readonly runId: string;
  readonly workerId: string;
  readonly attempt: number | null;
}

export const OPS_RUN_COLUMNS = `id, tenant_id AS "tenantId", project_id AS "projectId", env, git_sha AS "gitSha",
  git_ref AS "gitRef", status, priority, claimed_by AS "claimedBy", attempts, max_attempts AS "maxAttempts",
  on_stale AS "onStale", idempotency_key AS "idempotencyKey", metadata, last_seq AS "lastSeq",
  created_at AS "createdAt", queued_at AS "queuedAt", available_at AS "availableAt", started_at AS "startedAt",
  heartbeat_at AS "heartbeatAt", finished_at AS "finishedAt", pruned_at AS "prunedAt", pruned_seq AS "prunedSeq"`;

type Row = OpsRunRow & Record<string, unknown>;

export async function queueOpsRun(db: Database, viewer: Viewer, input: NewOpsRun): Promise<OpsRunRow> {
  const rows = await callAs(db, viewer.actor, 'ops_run_queue', [
    viewer.tenantId,
    newId(),
    input.projectId,
    input.env,
    input.gitSha,
    input.gitRef,
    toJson(input.metadata),
    input.idempotencyKey,
    input.priority,
    input.onStale,
    input.maxAttempts,
    input.sameKeyIsSameRun !== true,
  ]);
  return rows[0]!;
}

/** The oldest queued run of the highest priority, claimed for the worker; null when there is none. */
export async function claimNextOpsRun(
  db: Database,
  viewer: Viewer,
  input: { readonly workerId: string; readonly projectId: string | null; readonly env: string | null },
): Promise<OpsRunRow | null> {
  const { workerId, projectId, env } = input;
  const values = [viewer.tenantId, workerId, projectId, env];
  return (await callAs(db, workerId, 'ops_run_claim', values))[0] ?? null;
}

export async function appendOpsRunEvent(
  db: Database,
  viewer: Viewer,
  input: OpsClaim & {
    readonly level: EventLevel;
    readonly message: string;
    readonly payload: unknown;
    readonly idempotencyKey: string | null;
  },
): Promise<RunEventRow> {
  const { runId, workerId, attempt, level, message, payload, idempotencyKey } = input;
  return db.transaction(workerId, async (connection) => {
    const { rows } = await connection.query<RunEventRow>(
      `SELECT ${RUN_EVENT_COLUMNS} FROM ops_run_append($1, $2, $3, $4, $5, $6, $7, $8) AS run_event`,
      [viewer.tenantId, runId, level, message, toJson(payload), workerId, attempt, idempotencyKey],
    );
    return rows[0]!;
  });
}

/** Answers the run as it is, also when it is no longer the worker's to go on with. */
export async function heartbeatOpsRun(db: Database, viewer: Viewer, claim: OpsClaim): Promise<OpsRunRow> {
  const { runId, workerId, attempt } = claim;
  const rows = await callAs(db, workerId, 'ops_run_heartbeat', [viewer.tenantId, runId, workerId, attempt]);
  return rows[0]!;
}

export async function finishOpsRun(
  db: Database,
  viewer: Viewer,
  input: OpsClaim & { readonly status: OpsRunStatus; readonly metadata: unknown },
): Promise<OpsRunRow> {
  const { runId, workerId, attempt, status } = input;
  const metadata = toJson(input.metadata);
  try {
    const values = [viewer.tenantId, runId, status, metadata, workerId, attempt];
    return (await callAs(db, workerId, 'ops_run_finish', values))[0]!;
  } catch (error) {
    if (cameTooLate(error)) {
      await db.transaction(workerId, (connection) =>
        connection.query('SELECT ops_run_note_late_result($1, $2, $3, $4, $5)', [
          viewer.tenantId,
          runId,
          workerId,
          status,
          metadata,
        ]),
      );
    }
    throw error;
  }
}

// Refused, but the world was changed all the same: what the worker did is told in the ledger.
function cameTooLate(error: unknown): boolean {
  if (!(error instanceof AppError)) return false;
  return (
    error.code === 'CLAIM_LOST' ||
    (error.code === 'ILLEGAL_TRANSITION' && error.details?.['from'] === 'CANCELLED')
  );
}

export async function cancelOpsRun(
  db: Database,
  viewer: Viewer,
  input: { readonly runId: string; readonly reason: string | null },
): Promise<OpsRunRow> {
  const metadata = {
    cancelled_by: viewer.actor,
    ...(input.reason === null ? {} : { reason: input.reason }),
    timestamp: new Date().toISOString(),
  };
  const values = [viewer.tenantId, input.runId, 'cancelled', JSON.stringify(metadata), null, null];
  return (await callAs(db, viewer.actor, 'ops_run_finish', values))[0]!;
}

export async function findOpsRun(db: Database, viewer: Viewer, runId: string): Promise<OpsRunRow | null> {
  const id = storedRunId(runId);
  if (publicRunId('OPS', id) !== runId) return null;
  return (await findOpsRuns(db, viewer, [id])).get(id) ?? null;
}

/** By the rows' own ids. */
export async function findOpsRuns(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, OpsRunRow>> {
  const rows = await db.query<Row>(
    `SELECT ${OPS_RUN_COLUMNS} FROM ops_run WHERE id = ANY($1::uuid[]) AND tenant_id = $2`,
    [ids.filter(isUuid), viewer.tenantId],
  );
  return new Map(rows.map((row) => [row.id, row]));
}

/** Calls one of the database's verbs in a transaction of its own; the ledger names `actor`. */
function callAs(db: Database, actor: string, verb: string, values: unknown[]): Promise<Row[]> {
  const places = values.map((_, index) => `$${index + 1}`).join(', ');
  return db.transaction(actor, async (connection) => {
    const { rows } = await connection.query<Row>(`SELECT ${OPS_RUN_COLUMNS} FROM ${verb}(${places})`, values);
    return rows;
  });
}

// Null and "not given" are one to the verbs; anything else is theirs to judge.
function toJson(value: unknown): string | null {
  return value === null || value === undefined ? null : JSON.stringify(value);
}
