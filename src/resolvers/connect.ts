// Turns a page of rows, as the store reads it, into a connection of the schema.

import { shape } from '../schema/shape.js';
import { PageInfo, type Connection } from '../schema/page.js';
import type { Page } from '../store/page.js';

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
