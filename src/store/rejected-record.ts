// Records that a pipeline run set aside, each with its reason: visible and countable, and in nobody's way.

import { MAX_LONG_PAGE } from '../domain/page.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { isRowNumber, isUuid } from './id.js';
import { checkFirst, decodeCursor, encodeCursor, toPages, type Page } from './page.js';

export interface RejectedRecord {
  readonly externalId: string | null;
  readonly reason: string;
  /** What there is of it, as JSON text. */
  readonly json: string;
}

export interface RejectedRecordRow {
  readonly id: string;
  readonly runId: string;
  readonly partitionId: string | null;
  readonly externalId: string | null;
  readonly reason: string;
  readonly payload: unknown;
  readonly createdAt: Date;
}

export async function writeRejected(
  connection: Connection,
  { runId, tenantId }: { readonly runId: string; readonly tenantId: string },
  partitionId: string | null,
  records: readonly RejectedRecord[],
): Promise<void> {
  if (records.length === 0) return;
  await connection.query(
    `INSERT INTO rejected_record (run_id, tenant_id, partition_id, external_id, reason, payload)
     SELECT $1, $2, $3, record.external_id, record.reason, record.payload
     FROM unnest($4::text[], $5::text[], $6::jsonb[]) AS record (external_id, reason, payload)`,
    [
      runId,
      tenantId,
      partitionId,
      records.map(({ externalId }) => externalId),
      records.map(({ reason }) => reason),
      records.map(({ json }) => json),
    ],
  );
}

export interface RejectedPageRequest {
  readonly first: number;
  readonly after: string | null;
}

/** The records that each run set aside, in that order. */
export async function listRejectedRecords(
  db: Database,
  viewer: Viewer,
  runIds: readonly string[],
  { first, after }: RejectedPageRequest,
): Promise<Map<string, Page<RejectedRecordRow>>> {
  checkFirst(first, MAX_LONG_PAGE);
  const position = after === null ? '0' : decodeCursor(after, 1)[0]!;
  const rows = await db.query<RejectedRecordRow & Record<string, unknown>>(
    `SELECT record.* FROM unnest($1::uuid[]) AS run (id) CROSS JOIN LATERAL (
       SELECT rejected.id::text AS id, run_id AS "runId", partition_id AS "partitionId",
         external_id AS "externalId", reason, payload, created_at AS "createdAt"
       FROM rejected_record rejected
       WHERE run_id = run.id AND tenant_id = $2 AND rejected.id > $3 ORDER BY rejected.id LIMIT $4) record`,
    [runIds.filter(isUuid), viewer.tenantId, isRowNumber(position) ? position : '0', first + 1],
  );
  return toPages(runIds, rows, first, after);
}

export function rejectedCursor({ id }: RejectedRecordRow): string {
  return encodeCursor(id);
}
