// Raw items: a supplier's records as they came last, until consolidation has mapped them. One row per record
// and source, whoever read it: what an earlier run left waiting is the next one's to consolidate.

import type { Connection, Database } from './db.js';

export interface RawRecord {
  readonly externalId: string;
  /** The payload, as JSON text. */
  readonly json: string;
}

export interface RawItem {
  readonly externalId: string;
  readonly payload: unknown;
}

interface Reading {
  readonly runId: string;
  readonly sourceId: string;
  /** Before the page was asked for. */
  readonly claimedAt: string;
  /** Only what changed since is read; null: everything. */
  readonly since: Date | null;
}

/** Keeps a page's records; answers the ids of those that the run had read before, in the page's order. */
export async function writeRawItems(
  connection: Connection,
  { runId, sourceId, claimedAt, since }: Reading,
  records: readonly RawRecord[],
): Promise<string[]> {
  if (records.length === 0) return [];
  // Of a record that comes twice the later is kept. In one order for everybody, so that two pages with the
  // same records wait for each other and do not deadlock.
  const distinct = [...new Map(records.map((record) => [record.externalId, record])).values()];
  const sorted = distinct.sort((a, b) => (a.externalId < b.externalId ? -1 : 1));
  const ids = sorted.map(({ externalId }) => externalId);
  const { rows } = await connection.query<{ id: string }>(
    // They are locked before they are counted: another page of the run may be writing the same ones.
    `WITH held AS (
       SELECT external_id, run_id FROM raw_item
       WHERE source_id = $1 AND external_id = ANY($3::text[]) ORDER BY external_id FOR UPDATE
     ), written AS (
       INSERT INTO raw_item AS item (source_id, run_id, external_id, payload, fetched_at)
       SELECT $1, $2, new.external_id, new.payload, $5
       FROM unnest($3::text[], $4::jsonb[]) WITH ORDINALITY AS new (external_id, payload, position)
         LEFT JOIN held USING (external_id)
       ORDER BY new.position
       ON CONFLICT (source_id, external_id) DO UPDATE
       SET run_id = excluded.run_id, payload = excluded.payload, fetched_at = excluded.fetched_at,
         consolidated_at = NULL,
         -- What came twice when it was last read is listed twice. Only who reads everything can see that it no
         -- longer is: of two entries one may have changed alone.
         listed_twice = CASE WHEN item.run_id = excluded.run_id THEN item.listed_twice ELSE item.came_twice END,
         came_twice = item.came_twice AND (item.run_id = excluded.run_id OR NOT $6)
       -- Two runs may read at once: an older page that is settled late does not undo a newer one. What says that
       -- it is from the future was written by a clock that was put back since, and is newer than nothing.
       WHERE item.fetched_at <= excluded.fetched_at OR item.fetched_at > clock_timestamp()
       RETURNING item.external_id, item.xmax = 0 AS is_new
     )
     SELECT external_id AS id FROM held WHERE run_id = $2
     UNION ALL
     -- What was not there, and is not new either, came from beside us in the meantime.
     SELECT id FROM unnest($3::text[]) AS id
     WHERE NOT EXISTS (SELECT 1 FROM held WHERE external_id = id)
       AND NOT EXISTS (SELECT 1 FROM written WHERE external_id = id AND is_new)`,
    [sourceId, runId, ids, sorted.map(({ json }) => json), claimedAt, since === null],
  );
  const seen = new Set(rows.map(({ id }) => id));
  const again: string[] = [];
  for (const { externalId } of records) {
    if (seen.has(externalId)) again.push(externalId);
    else seen.add(externalId);
  }
  return again;
}

/** Notes what came twice, for the next run; answers how many of the ids did so when they were last read, too. */
export async function noteTwice(
  connection: Connection,
  { sourceId }: Pick<Reading, 'sourceId'>,
  ids: readonly string[],
): Promise<number> {
  if (ids.length === 0) return 0;
  const { rows } = await connection.query<{ listed: number }>(
    `WITH again AS (
       UPDATE raw_item SET came_twice = true WHERE source_id = $1 AND external_id = ANY($2::text[])
       RETURNING external_id, listed_twice
     )
     SELECT count(*)::integer AS listed FROM unnest($2::text[]) AS id JOIN again ON external_id = id
     WHERE listed_twice`,
    [sourceId, ids],
  );
  return rows[0]!.listed;
}

/** Records that cannot be kept are still there: what they were before stays. */
export async function noteSeen(
  connection: Connection,
  { sourceId, claimedAt }: Omit<Reading, 'since'>,
  records: readonly { readonly externalId: string | null }[],
): Promise<void> {
  const ids = records.map(({ externalId }) => externalId).filter((id) => id !== null);
  if (ids.length === 0) return;
  await connection.query(
    `UPDATE raw_item SET fetched_at = $3
     WHERE source_id = $1 AND (fetched_at < $3 OR fetched_at > clock_timestamp()) AND external_id = ANY(ARRAY(
       SELECT external_id FROM raw_item WHERE source_id = $1 AND external_id = ANY($2::text[])
       ORDER BY external_id FOR UPDATE))`,
    [sourceId, ids, claimedAt],
  );
}

/**
 * Whether the run has read the record by now, be it that it was set aside. One that another run has read since this
 * one began is known as well, and may have been read here before.
 */
export async function wasRead(
  db: Database,
  { runId, sourceId }: Pick<Reading, 'runId' | 'sourceId'>,
  externalId: string,
): Promise<boolean> {
  const rows = await db.query(
    `SELECT 1 FROM raw_item WHERE source_id = $1 AND external_id = $3
       AND (run_id = $2 OR fetched_at >= (SELECT started_at FROM run_metadata WHERE run_id = $2))
     UNION ALL SELECT 1 FROM rejected_record WHERE run_id = $2 AND external_id = $3 LIMIT 1`,
    [sourceId, runId, externalId],
  );
  return rows.length > 0;
}

/**
 * Locks up to `limit` items that wait, in order after `after`, and that nobody else has locked; answers those of them
 * that begin within the first `bytes`, so at least one. The others are free again with the transaction's end.
 */
export async function lockWaitingItems(
  connection: Connection,
  { sourceId, after }: { readonly sourceId: string; readonly after: string },
  { limit, bytes }: { readonly limit: number; readonly bytes: number },
): Promise<RawItem[]> {
  const { rows } = await connection.query<RawItem>(
    // The limit stands in the text because a generic plan would not see a parameter's value.
    `WITH locked AS MATERIALIZED (
       SELECT external_id, payload FROM raw_item
       WHERE source_id = $1 AND external_id > $2 AND consolidated_at IS NULL
       ORDER BY external_id LIMIT ${limit} FOR UPDATE SKIP LOCKED
     ), weighed AS (
       -- Most are not compressed, and need not be unfolded to be weighed.
       SELECT *, sum(CASE WHEN pg_column_compression(payload) IS NULL THEN pg_column_size(payload)
           ELSE octet_length(payload::text) END)
         OVER (ORDER BY external_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
       FROM locked
     )
     SELECT external_id AS "externalId", payload FROM weighed WHERE coalesce(before, 0) < $3 ORDER BY external_id`,
    [sourceId, after, bytes],
  );
  return rows;
}

export async function markConsolidated(
  connection: Connection,
  sourceId: string,
  externalIds: readonly string[],
): Promise<void> {
  await connection.query(
    `UPDATE raw_item SET consolidated_at = clock_timestamp() WHERE source_id = $1 AND external_id = ANY($2::text[])`,
    [sourceId, externalIds],
  );
}

export async function hasWaitingItems(connection: Connection, sourceId: string): Promise<boolean> {
  const { rowCount } = await connection.query(
    'SELECT 1 FROM raw_item WHERE source_id = $1 AND consolidated_at IS NULL LIMIT 1',
    [sourceId],
  );
  return rowCount === 1;
}
