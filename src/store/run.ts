// Where each run's ledger stands, whatever the kind of run: what a bell says, asked instead of heard. Called by
// events, for a run that is about to be watched and for bells that may have been missed.

import { publicRunId, storedRunId, type RunKind } from '../domain/run.js';
import type { Viewer } from '../domain/viewer.js';
import type { Database } from './db.js';
import { isUuid } from './id.js';

export interface RunHead {
  readonly kind: RunKind;
  readonly id: string;
  readonly tenantId: string;
  /** Of the run's newest ledger line. */
  readonly seq: number;
  /** Lines up to this were deleted by retention; 0 when none was. A bell does not say it. */
  readonly prunedSeq?: number;
}

/** Of which runs to tell: of any, unless it says otherwise. */
export interface RunFilter {
  readonly kind?: RunKind | null;
  readonly projectId?: string | null;
}

const HEADS = `
  SELECT 'RULE' AS kind, id, tenant_id AS "tenantId", last_seq AS seq, coalesce(pruned_seq, 0) AS "prunedSeq"
  FROM rule_run WHERE id = ANY($1::uuid[])
  UNION ALL
  SELECT 'PIPELINE', run_id, tenant_id, last_seq, coalesce(pruned_seq, 0) FROM run_metadata WHERE run_id = ANY($1::uuid[])
  UNION ALL
  SELECT 'OPS', id, tenant_id, last_seq, coalesce(pruned_seq, 0) FROM ops_run WHERE id = ANY($1::uuid[])`;

/** By the id that people see: a row's own key is an id of nothing where the two differ. */
export async function findRunHead(
  db: Database,
  viewer: Pick<Viewer, 'tenantId'>,
  id: string,
): Promise<RunHead | null> {
  const [head] = await readRunHeads(db, [storedRunId(id)]);
  if (head?.tenantId !== viewer.tenantId) return null;
  return publicRunId(head.kind, head.id) === id ? head : null;
}

/** Of any tenant: for the server's own use, never for an answer to a client. */
export async function readRunHeads(db: Database, ids: readonly string[]): Promise<RunHead[]> {
  return db.query<RunHead & Record<string, unknown>>(HEADS, [ids.filter(isUuid)]);
}

/** Where the runs stand that got ledger lines in the last `ms` milliseconds, by the database's clock. */
export async function readRunHeadsSince(
  db: Database,
  tenantIds: readonly string[],
  ms: number,
): Promise<RunHead[]> {
  // The statement's time: no index is read by a clock that moves on while it runs.
  return db.query<RunHead & Record<string, unknown>>(
    `SELECT run_kind AS kind, run_id AS id, tenant_id AS "tenantId", max(seq) AS seq
     FROM run_event
     WHERE created_at > statement_timestamp() - $2 * interval '1 millisecond' AND tenant_id = ANY($1)
     GROUP BY 1, 2, 3`,
    [tenantIds, ms],
  );
}

/** The tenant's newest runs that have not come to their end. */
export async function readActiveRuns(
  db: Database,
  tenantId: string,
  { kind = null, projectId = null }: RunFilter,
  most: number,
): Promise<Omit<RunHead, 'seq'>[]> {
  // A run that is rolled back had ended before: it is found by an index of its own.
  return db.query<RunHead & Record<string, unknown>>(
    `SELECT kind, id, $1 AS "tenantId" FROM (
       SELECT 'RULE' AS kind, id, project_id, created_at FROM rule_run
       WHERE tenant_id = $1 AND finished_at IS NULL
       UNION ALL
       SELECT 'RULE', id, project_id, created_at FROM rule_run
       WHERE tenant_id = $1 AND finished_at IS NOT NULL AND rolling_back
       UNION ALL
       SELECT 'PIPELINE', run_id, project_id, created_at FROM run_metadata
       WHERE tenant_id = $1 AND finished_at IS NULL
       UNION ALL
       SELECT 'OPS', id, project_id, created_at FROM ops_run
       WHERE tenant_id = $1 AND finished_at IS NULL
     ) AS run
     WHERE ($2::text IS NULL OR kind = $2) AND ($3::text IS NULL OR project_id = $3)
     ORDER BY created_at DESC, id DESC LIMIT $4`,
    [tenantId, kind, projectId, most],
  );
}
