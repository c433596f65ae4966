// The catalog: what a tenant sells. An import is idempotent by external id, and leaves a row that already says
// the same untouched: an item's row version (xmin) changes exactly when the item does, and previews rely on it.

import type { CatalogItemInput, NewCatalogItem } from '../domain/catalog-item.js';
import { checkCatalogItems, MAX_ITEMS_PER_CALL } from '../domain/catalog-item.js';
import type { Fault } from '../domain/fault.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { isUuid, newId } from './id.js';
import { MAX_JSON_LENGTH, refuseFaults, refuseTooMany } from './input.js';
import { checkFirst, decodeCursor, encodeCursor, toPage, type Page } from './page.js';

export interface CatalogItemRow extends NewCatalogItem {
  readonly id: string;
  readonly updatedAt: Date;
}

/** Whose items they are: a source's go when it no longer has them; those of nobody stay until somebody takes them out. */
export interface ItemOwner {
  readonly tenantId: string;
  readonly sourceId: string | null;
}

export interface ImportResult {
  readonly created: number;
  readonly updated: number;
}

export const MAX_ITEMS_PER_PAGE = 100;

// Amounts fit a double: a CHECK keeps them safe integers.
const ITEM_COLUMNS = `id, external_id AS "externalId", title, unit_amount::float8 AS "unitAmount",
  cost_amount::float8 AS "costAmount", currency, attributes, updated_at AS "updatedAt"`;

export async function importCatalogItems(
  db: Database,
  viewer: Viewer,
  inputs: readonly CatalogItemInput[],
): Promise<ImportResult> {
  refuseTooMany('items', inputs.length, MAX_ITEMS_PER_CALL, 'send the rest in another');
  const { items, faults } = checkCatalogItems(inputs);
  refuseFaults([...faults, ...findLongAttributes(items)], 'items');
  return db.transaction(viewer.actor, (connection) =>
    upsertCatalogItems(connection, { tenantId: viewer.tenantId, sourceId: null }, items),
  );
}

// Of a source's items the records are bounded, where they are read.
function findLongAttributes(items: readonly NewCatalogItem[]): Fault[] {
  const message = `has more than ${MAX_JSON_LENGTH} characters as JSON`;
  return items.flatMap(({ attributes }, index) =>
    JSON.stringify(attributes).length > MAX_JSON_LENGTH
      ? [{ path: [String(index), 'attributes'], message }]
      : [],
  );
}

/** Writes items whose external ids differ; an item that was taken out of the catalog comes back. */
export async function upsertCatalogItems(
  connection: Connection,
  { tenantId, sourceId }: ItemOwner,
  items: readonly NewCatalogItem[],
): Promise<ImportResult> {
  if (items.length === 0) return { created: 0, updated: 0 };
  // In one order for everybody, so that two imports of the same items wait for each other and do not deadlock.
  const sorted = items.toSorted((a, b) => (a.externalId < b.externalId ? -1 : 1));
  const { rows } = await connection.query<{ created: boolean }>(
    // A row that this statement inserted has no xmax; one that it updated carries its own transaction there.
    `INSERT INTO catalog_item AS item
       (id, tenant_id, source_id, external_id, title, unit_amount, cost_amount, currency, attributes)
     SELECT new.id, $1, $2, new.external_id, new.title, new.unit_amount, new.cost_amount, new.currency,
       new.attributes
     FROM unnest($3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::jsonb[])
       AS new (id, external_id, title, unit_amount, cost_amount, currency, attributes)
     ON CONFLICT (tenant_id, external_id) DO UPDATE
     SET title = excluded.title, unit_amount = excluded.unit_amount, cost_amount = excluded.cost_amount,
       currency = excluded.currency, attributes = excluded.attributes, source_id = excluded.source_id,
       updated_at = clock_timestamp(), deleted_at = NULL
     WHERE (item.title, item.unit_amount, item.cost_amount, item.currency, item.attributes, item.source_id,
         item.deleted_at)
       IS DISTINCT FROM (excluded.title, excluded.unit_amount, excluded.cost_amount, excluded.currency,
         excluded.attributes, excluded.source_id, NULL::timestamptz)
     RETURNING item.xmax = 0 AS created`,
    [tenantId, sourceId, ...toColumns(sorted)],
  );
  const created = rows.filter((row) => row.created).length;
  return { created, updated: rows.length - created };
}

function toColumns(items: readonly NewCatalogItem[]): unknown[][] {
  return [
    items.map(() => newId()),
    items.map(({ externalId }) => externalId),
    items.map(({ title }) => title),
    items.map(({ unitAmount }) => unitAmount),
    items.map(({ costAmount }) => costAmount),
    items.map(({ currency }) => currency),
    items.map(({ attributes }) => JSON.stringify(attributes)),
  ];
}

export async function listCatalogItems(
  db: Database,
  viewer: Viewer,
  request: { readonly first: number; readonly after: string | null },
): Promise<Page<CatalogItemRow>> {
  checkFirst(request.first, MAX_ITEMS_PER_PAGE);
  const after = request.after === null ? null : decodeCursor(request.after, 1)[0]!;
  const rows = await db.query<CatalogItemRow>(
    `SELECT ${ITEM_COLUMNS} FROM catalog_item
     WHERE tenant_id = $1 AND deleted_at IS NULL ${after === null ? '' : 'AND external_id > $3'}
     ORDER BY external_id LIMIT $2`,
    [viewer.tenantId, request.first + 1, ...(after === null ? [] : [after])],
  );
  return toPage(rows, request.first, request.after);
}

export async function countCatalogItems(db: Database, viewer: Viewer): Promise<number> {
  const [row] = await db.query<{ count: number }>(
    'SELECT count(*)::integer AS count FROM catalog_item WHERE tenant_id = $1 AND deleted_at IS NULL',
    [viewer.tenantId],
  );
  return row!.count;
}

export function itemCursor(item: CatalogItemRow): string {
  return encodeCursor(item.externalId);
}

export async function findCatalogItems(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, CatalogItemRow>> {
  const rows = await db.query<CatalogItemRow>(
    `SELECT ${ITEM_COLUMNS} FROM catalog_item
     WHERE id = ANY($1::uuid[]) AND tenant_id = $2 AND deleted_at IS NULL`,
    [ids.filter(isUuid), viewer.tenantId],
  );
  return new Map(rows.map((row) => [row.id, row]));
}
