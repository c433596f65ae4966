// Relay connections: one page of a list, in a fixed order, with cursors that stay good while rows are added.

import { Arg, type ClassType, Field, Int, ObjectType } from 'type-graphql';

@ObjectType({ simpleResolvers: true, description: 'Where a page lies in its list.' })
export class PageInfo {
  @Field(() => Boolean, { description: 'Whether the list goes on after this page.' })
  hasNextPage!: boolean;

  @Field(() => Boolean, {
    description: 'Whether the page was asked for with a cursor, so that some lie before it.',
  })
  hasPreviousPage!: boolean;

  @Field(() => String, { nullable: true, description: 'Cursor of the first item; null on an empty page.' })
  startCursor!: string | null;

  @Field(() => String, {
    nullable: true,
    description: 'Cursor of the last item: give it as `after` for the next page.',
  })
  endCursor!: string | null;
}

export interface Edge<Item> {
  cursor: string;
  node: Item;
}

export interface Connection<Item> {
  nodes: readonly Item[];
  edges: readonly Edge<Item>[];
  pageInfo: PageInfo;
}

export interface CountedConnection<Item> extends Connection<Item> {
  /** Called only when the field is asked for. */
  totalCount: () => Promise<number>;
}

export interface CappedConnection<Item> extends CountedConnection<Item> {
  totalCountIsCapped: () => Promise<boolean>;
}

/** Base class of `<Name>Connection`; brings `<Name>Edge` with it. */
export function connectionOf<Item extends object>(name: string, itemType: () => ClassType<Item>) {
  @ObjectType(`${name}Edge`, {
    simpleResolvers: true,
    description: `One ${name} of a list, with its place in it.`,
  })
  class ItemEdge implements Edge<Item> {
    @Field(() => String, { description: 'Its place in the list, for `after`.' })
    cursor!: string;

    @Field(itemType, { description: 'The item itself.' })
    node!: Item;
  }

  @ObjectType({ simpleResolvers: true })
  abstract class ItemConnection implements Connection<Item> {
    @Field(() => [itemType()], { description: 'The items of this page.' })
    nodes!: readonly Item[];

    @Field(() => [ItemEdge], { description: 'The same items, each with its cursor.' })
    edges!: readonly Edge<Item>[];

    @Field(() => PageInfo, { description: 'Where this page lies in the list.' })
    pageInfo!: PageInfo;
  }

  return ItemConnection;
}

/** The same, for a list whose length may be asked for. */
export function countedConnectionOf<Item extends object>(name: string, itemType: () => ClassType<Item>) {
  @ObjectType({ simpleResolvers: true })
  abstract class CountedItemConnection
    extends connectionOf(name, itemType)
    implements CountedConnection<Item>
  {
    @Field(() => Int, { description: 'How many items the whole list has.' })
    totalCount!: () => Promise<number>;
  }

  return CountedItemConnection;
}

/** The same, for a list that may be too long to count. */
export function cappedConnectionOf<Item extends object>(name: string, itemType: () => ClassType<Item>) {
  @ObjectType({ simpleResolvers: true })
  abstract class CappedItemConnection
    extends countedConnectionOf(name, itemType)
    implements CappedConnection<Item>
  {
    @Field(() => Boolean, {
      description: 'Whether counting stopped at `totalCount`: there are more than that.',
    })
    totalCountIsCapped!: () => Promise<boolean>;
  }

  return CappedItemConnection;
}

/** The argument `first` of a list; its bounds are the store's to check. */
export function First(defaultValue: number, most: number): ParameterDecorator {
  return Arg('first', () => Int, {
    nullable: true,
    defaultValue,
    description: `Length of the page, 1 to ${most}.`,
  }) as ParameterDecorator;
}

/** The argument `after` of a list. */
export function After(): ParameterDecorator {
  return Arg('after', () => String, {
    nullable: true,
    description: 'Cursor after which the page begins; from the start when absent.',
  }) as ParameterDecorator;
}
