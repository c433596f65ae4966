// Items of a source that a full run did not see: counting them, and taking them out of the catalog batch by batch.
// An item that another source still has is not gone: it becomes that one's. Locks: raw items by source and id,
// whosever they are, then catalog items by id, then the run, as consolidation takes them.

import { CONSOLIDATION_BATCH, type UnseenReading } from '../domain/pipeline-run.js';
import { countIfConsolidating, unlessEnded } from './consolidation-count.js';
import type { Connection, Database } from './db.js';
import { appendRunLines } from './ledger.js';

export interface UnseenRun extends UnseenReading {
  readonly sourceId: string;
  readonly tenantId: string;
  /** Raw items that it did not see, whether they are in the catalog or not. */
  readonly stale: number;
  /** Records that were counted with the plan and never came. */
  readonly recordsLacking: number;
}

export async function readUnseenRun(db: Database, runId: string): Promise<UnseenRun> {
  const rows = await db.query<UnseenRun & { startedAt: string } & Record<string, unknown>>(
    `SELECT source_id AS "sourceId", tenant_id AS "tenantId", run_type AS "runType",
       expected_workers AS "expectedWorkers", failed_workers AS "failedWorkers", forced,
       started_at::text AS "startedAt",
       part.processed AS "recordsProcessed", part.missing AS "recordsMissing", part.duplicated AS "recordsDuplicated",
       part.lacking AS "recordsLacking", part."left" AS "recordsLeft",
       (SELECT count(*) FROM rejected_record WHERE run_id = run.run_id AND external_id IS NULL)::integer
         AS "recordsNameless",
       EXISTS (SELECT 1 FROM run_metadata other
         WHERE other.source_id = run.source_id AND other.run_id <> run.run_id AND other.plan_began_at IS NOT NULL
           AND coalesce(other.finished_at, 'infinity') > run.started_at) AS "isConcurrent"
     FROM run_metadata run CROSS JOIN LATERAL (
       SELECT coalesce(sum(records_processed), 0)::integer AS processed,
         coalesce(sum(records_missing), 0)::integer AS missing,
         coalesce(sum((reading ->> 'lacking')::integer), 0)::integer AS lacking,
         -- Where all ranges count the whole feed, what goes away leaves none for another.
         coalesce(sum((reading ->> 'left')::integer) FILTER (
           WHERE run.expected_workers > 1 AND coalesce(work_item_payload ->> 'counted', '') = ''), 0)::integer AS "left",
         coalesce(sum(records_duplicated - coalesce((reading ->> 'listedTwice')::integer, 0)), 0)::integer AS duplicated
       FROM worker_runs WHERE run_id = run.run_id) part
     WHERE run_id = $1`,
    [runId],
  );
  const run = rows[0]!;
  const none = { stale: 0, unseen: 0, live: 0, clockWentBack: false };
  return { ...run, ...(run.runType === 'full' ? await countUnseen(db, runId, run) : none) };
}

async function countUnseen(
  db: Database,
  runId: string,
  { sourceId, tenantId, startedAt }: { sourceId: string; tenantId: string; startedAt: string },
): Promise<Pick<UnseenRun, 'stale' | 'unseen' | 'live' | 'clockWentBack'>> {
  const rows = await db.query<{ stale: number; unseen: number; clockWentBack: boolean }>(
    `SELECT count(*)::integer AS stale, count(item.id)::integer AS unseen,
       coalesce(bool_or(raw.run_id = $4), false) AS "clockWentBack"
     FROM raw_item raw LEFT JOIN catalog_item item ON item.tenant_id = $2 AND item.external_id = raw.external_id
       AND item.source_id = raw.source_id AND item.deleted_at IS NULL
     WHERE raw.source_id = $1 AND raw.fetched_at < $3`,
    [sourceId, tenantId, startedAt, runId],
  );
  const counted = rows[0]!;
  if (counted.unseen === 0) return { ...counted, live: 0 };
  const [all] = await db.query<{ live: number }>(
    `SELECT count(*)::integer AS live FROM catalog_item
     WHERE tenant_id = $2 AND source_id = $1 AND deleted_at IS NULL`,
    [sourceId, tenantId],
  );
  return { ...counted, live: all!.live };
}

/** In batches, and tells before each: it may be the whole catalog. Ends where the run does. */
export async function deleteUnseen(
  db: Database,
  { runId, workerId, run }: { readonly runId: string; readonly workerId: string; readonly run: UnseenRun },
  onBatch: () => Promise<unknown>,
): Promise<void> {
  for (let after: string | null = ''; after !== null;) {
    await onBatch();
    const from: string = after;
    after = await unlessEnded(
      db.transaction(workerId, (connection) => deleteUnseenBatch(connection, runId, run, from)),
    );
  }
}

/** Answers the last raw item that it looked at; null when there are no more. */
async function deleteUnseenBatch(
  connection: Connection,
  runId: string,
  { sourceId, tenantId }: UnseenRun,
  after: string,
): Promise<string | null> {
  const { rows } = await connection.query<{ external_id: string }>(
    `SELECT external_id FROM raw_item
     WHERE source_id = $1 AND external_id > $3
       AND fetched_at < (SELECT started_at FROM run_metadata WHERE run_id = $2)
     ORDER BY external_id LIMIT ${CONSOLIDATION_BATCH}`,
    [sourceId, runId, after],
  );
  const stale = rows.map((row) => row.external_id);
  if (stale.length === 0) return null;
  const owner = { sourceId, tenantId };
  const { ids, heirs } = await lockUnseen(connection, runId, owner, stale);
  await connection.query(
    // In the order in which upserts take them, which the database's own language need not share.
    `SELECT 1 FROM catalog_item WHERE ${UNSEEN} ORDER BY external_id COLLATE "C" FOR UPDATE`,
    [sourceId, tenantId, ids],
  );
  const handed = await handOver(connection, owner, heirs);
  const deleted = await connection.query(
    `UPDATE catalog_item SET deleted_at = clock_timestamp(), updated_at = clock_timestamp() WHERE ${UNSEEN}`,
    [sourceId, tenantId, ids],
  );
  // What is left is what the source has: nothing else is handed over to it.
  await connection.query('DELETE FROM raw_item WHERE source_id = $1 AND external_id = ANY($2::text[])', [
    sourceId,
    ids,
  ]);
  if (handed > 0) {
    const message = `${handed} items that the source no longer has are another's, which has them`;
    await appendRunLines(connection, 'PIPELINE', runId, [
      { type: 'pipeline_run.hand_over', level: 'INFO', message, payload: { items: handed } },
    ]);
  }
  await countIfConsolidating(connection, runId, { deleted: deleted.rowCount ?? 0 });
  return stale.length === CONSOLIDATION_BATCH ? stale.at(-1)! : null;
}

const UNSEEN = 'tenant_id = $2 AND source_id = $1 AND deleted_at IS NULL AND external_id = ANY($3::text[])';

type Owner = Pick<UnseenRun, 'sourceId' | 'tenantId'>;

/** Ids, and beside each the other source of the tenant that saw it last. */
type Heirs = readonly [ids: readonly string[], sourceIds: readonly string[]];

/** Those that are unseen still, now that nobody else can see them, and who inherits them. */
async function lockUnseen(
  connection: Connection,
  runId: string,
  { sourceId, tenantId }: Owner,
  stale: readonly string[],
): Promise<{ readonly ids: readonly string[]; readonly heirs: Heirs }> {
  const { rows } = await connection.query<{ id: string; heir: string | null }>(
    `WITH held AS (
       SELECT raw.external_id, raw.source_id, raw.fetched_at
       FROM raw_item raw JOIN source ON source.id = raw.source_id
       WHERE source.tenant_id = $2 AND raw.external_id = ANY($3::text[])
       ORDER BY raw.source_id, raw.external_id FOR UPDATE OF raw
     ), heir AS (
       SELECT DISTINCT ON (external_id) external_id, source_id FROM held WHERE source_id <> $1
       ORDER BY external_id, fetched_at DESC
     )
     SELECT own.external_id AS id, heir.source_id AS heir FROM held own LEFT JOIN heir USING (external_id)
     WHERE own.source_id = $1 AND own.fetched_at < (SELECT started_at FROM run_metadata WHERE run_id = $4)`,
    [sourceId, tenantId, stale, runId],
  );
  const inherited = rows.flatMap(({ id, heir }) => (heir === null ? [] : [{ id, heir }]));
  return {
    ids: rows.map(({ id }) => id),
    heirs: [inherited.map(({ id }) => id), inherited.map(({ heir }) => heir)],
  };
}

/** Gives items to their heirs, whose next run maps them anew; answers how many. */
async function handOver(
  connection: Connection,
  { sourceId, tenantId }: Owner,
  heirs: Heirs,
): Promise<number> {
  if (heirs[0].length === 0) return 0;
  const { rowCount } = await connection.query(
    `WITH item AS (
       UPDATE catalog_item AS item SET source_id = heir.source_id, updated_at = clock_timestamp()
       FROM unnest($3::text[], $4::uuid[]) AS heir (external_id, source_id)
       WHERE item.tenant_id = $2 AND item.source_id = $1 AND item.external_id = heir.external_id
         AND item.deleted_at IS NULL
       RETURNING item.external_id, item.source_id
     )
     UPDATE raw_item AS raw SET consolidated_at = NULL FROM item
     WHERE raw.source_id = item.source_id AND raw.external_id = item.external_id`,
    [sourceId, tenantId, ...heirs],
  );
  return rowCount ?? 0;
}
