// Turns a page of rows, as the store reads it, into a connection of the schema.

import { shape } from '../schema/shape.js';
import { PageInfo, type CappedConnection, type Connection } from '../schema/page.js';
import type { CappedCount, Page } from '../store/page.js';

export function connect<Row, Item>(
  page: Page<Row>,
  show: (row: Row) => Item,
  cursorOf: (row: Row) => string,
): Connection<Item> {
  const edges = page.nodes.map((row) => ({ node: show(row), cursor: cursorOf(row) }));
  return {
    edges,
    nodes: edges.map(({ node }) => node),
    pageInfo: shape(PageInfo, {
      hasNextPage: page.hasNextPage,
      hasPreviousPage: page.hasPreviousPage,
      startCursor: edges[0]?.cursor ?? null,
      endCursor: edges.at(-1)?.cursor ?? null,
    }),
  };
}

/** The fields of a connection that may be too long to count; counted once, and only when asked for. */
export function cappedTotal(
  count: () => Promise<CappedCount>,
): Pick<CappedConnection<unknown>, 'totalCount' | 'totalCountIsCapped'> {
  let counted: Promise<CappedCount> | undefined;
  const countOnce = () => (counted ??= count());
  return {
    totalCount: async () => (await countOnce()).count,
    totalCountIsCapped: async () => (await countOnce()).isCapped,
  };
}
