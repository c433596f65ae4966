// Records that a pipeline run set aside, each with its reason: visible and countable, and in nobody's way.

import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { isRowNumber } from './id.js';
import { checkFirst, decodeCursor, encodeCursor, toPage, type Page } from './page.js';

export interface RejectedRecord {
  readonly externalId: string | null;
  readonly reason: string;
  /** What there is of it, as JSON text. */
  readonly json: string;
}

export interface RejectedRecordRow {
  readonly id: string;
  readonly partitionId: string | null;
  readonly externalId: string | null;
  readonly reason: string;
  readonly payload: unknown;
  readonly createdAt: Date;
}

export const MAX_REJECTED_PER_PAGE = 1_000;

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

/** In the order in which they were set aside. */
export async function listRejectedRecords(
  db: Database,
  viewer: Viewer,
  request: { readonly runId: string; readonly first: number; readonly after: string | null },
): Promise<Page<RejectedRecordRow>> {
  checkFirst(request.first, MAX_REJECTED_PER_PAGE);
  const after = request.after === null ? '0' : decodeCursor(request.after, 1)[0]!;
  const rows = await db.query<RejectedRecordRow & Record<string, unknown>>(
    `SELECT id::text AS id, partition_id AS "partitionId", external_id AS "externalId", reason, payload,
       created_at AS "createdAt"
     FROM rejected_record WHERE run_id = $1 AND tenant_id = $2 AND id > $3 ORDER BY rejected_record.id LIMIT $4`,
    [request.runId, viewer.tenantId, isRowNumber(after) ? after : '0', request.first + 1],
  );
  return toPage(rows, request.first, request.after);
}

export function rejectedCursor({ id }: RejectedRecordRow): string {
  return encodeCursor(id);
}
