// The catalog: importing and reading it.

import { Arg, Ctx, Mutation, Query, Resolver } from 'type-graphql';
import {
  CatalogItem,
  CatalogItemConnection,
  ImportCatalogItemsInput,
  ImportCatalogItemsPayload,
} from '../schema/catalog-item.js';
import { After, First, type CountedConnection } from '../schema/page.js';
import { shape } from '../schema/shape.js';
import {
  countCatalogItems,
  importCatalogItems,
  itemCursor,
  listCatalogItems,
  MAX_ITEMS_PER_PAGE,
  type CatalogItemRow,
} from '../store/catalog-item.js';
import { Needs } from './authorise.js';
import { connect } from './connect.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

const ITEMS_PER_PAGE = 50;

@Resolver()
export class CatalogItemResolver {
  @Needs('READ')
  @Query(() => CatalogItemConnection, { description: 'The catalog, by external id.' })
  async catalogItems(
    @First(ITEMS_PER_PAGE, MAX_ITEMS_PER_PAGE) first: number | null,
    @After() after: string | null,
    @Ctx() { db, viewer }: Context,
  ): Promise<CountedConnection<CatalogItem>> {
    const page = await listCatalogItems(db, viewer, { first: first ?? ITEMS_PER_PAGE, after: after ?? null });
    return {
      ...connect(page, showCatalogItem, itemCursor),
      totalCount: () => countCatalogItems(db, viewer),
    };
  }

  @Needs('ADMINISTER')
  @Mutation(() => ImportCatalogItemsPayload, {
    description:
      'Writes items, each by its external id. The same import again changes nothing; a fault in one item refuses all.',
  })
  importCatalogItems(
    @Arg('input', () => ImportCatalogItemsInput, { description: 'The items to put in.' })
    { items }: ImportCatalogItemsInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<ImportCatalogItemsPayload> {
    const nothing = { imported: 0, created: 0, updated: 0 };
    return mutate<ImportCatalogItemsPayload>(nothing, async () => ({
      imported: items.length,
      ...(await importCatalogItems(db, viewer, items)),
    }));
  }
}

export async function findCatalogItemNode({ loaders }: Context, id: string): Promise<CatalogItem | null> {
  const row = await loaders.catalogItem.load(id);
  return row && showCatalogItem(row);
}

function showCatalogItem(row: CatalogItemRow): CatalogItem {
  return shape(CatalogItem, row);
}
