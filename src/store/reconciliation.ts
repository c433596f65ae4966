// Reconciliation reports: reading them.

import type { Viewer } from '../domain/viewer.js';
import { translated, type Database } from './db.js';
import { isUuid } from './id.js';
import type { ReconciliationReport } from './prisma/client.js';

export interface Mismatch {
  readonly targetId: string;
  readonly externalId: string;
  readonly expected: number;
  readonly actual: number | null;
  readonly difference: number | null;
}

export type ReconciliationRow = Omit<ReconciliationReport, 'details'> & {
  readonly details: readonly Mismatch[];
};

/** The reports of many runs in one read, newest first. */
export async function listReconciliations(
  db: Database,
  viewer: Viewer,
  runIds: readonly string[],
): Promise<Map<string, ReconciliationRow[]>> {
  const reports = new Map<string, ReconciliationRow[]>(runIds.map((id) => [id, []]));
  const rows = await translated(
    db.prisma.reconciliationReport.findMany({
      where: { tenantId: viewer.tenantId, runId: { in: runIds.filter(isUuid) } },
      orderBy: { id: 'desc' },
    }),
  );
  for (const row of rows) {
    reports.get(row.runId)?.push({ ...row, details: row.details as unknown as readonly Mismatch[] });
  }
  return reports;
}
