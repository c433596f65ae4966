// Catalog items: what a tenant sells, at which price.

import { Field, InputType, Int, ObjectType } from 'type-graphql';
import { MAX_ITEMS_PER_CALL, type CatalogItemInput as ItemInput } from '../domain/catalog-item.js';
import { Node } from './node.js';
import { countedConnectionOf } from './page.js';
import { Payload } from './payload.js';
import { DateTimeScalar, JsonScalar, SafeIntScalar } from './scalar.js';

@ObjectType({ implements: Node, simpleResolvers: true, description: 'Something that is sold.' })
export class CatalogItem extends Node {
  @Field(() => String, { description: "The item's id outside: in the feed and in the channels." })
  externalId!: string;

  @Field(() => String, { description: 'What it is called.' })
  title!: string;

  @Field(() => SafeIntScalar, { description: 'Its price, in minor units.' })
  unitAmount!: number;

  @Field(() => SafeIntScalar, { nullable: true, description: 'What it costs to buy, in minor units.' })
  costAmount!: number | null;

  @Field(() => String, { description: 'The ISO 4217 currency of both.' })
  currency!: string;

  @Field(() => JsonScalar, {
    description: 'Whatever else is known of it: a JSON object, for rules to match.',
  })
  attributes!: unknown;

  @Field(() => DateTimeScalar, { description: 'When anything of it changed last.' })
  updatedAt!: Date;
}

@ObjectType({ simpleResolvers: true, description: 'A page of the catalog, by external id.' })
export class CatalogItemConnection extends countedConnectionOf('CatalogItem', () => CatalogItem) {}

@InputType({ description: 'An item as it is to be.' })
export class CatalogItemInput implements ItemInput {
  @Field(() => String, { description: "The item's id outside; an item that has it already is changed." })
  externalId!: string;

  @Field(() => String, { description: 'What it is called.' })
  title!: string;

  @Field(() => SafeIntScalar, { description: 'Its price, in minor units.' })
  unitAmount!: number;

  @Field(() => SafeIntScalar, { nullable: true, description: 'What it costs to buy, in minor units.' })
  costAmount?: number | null;

  @Field(() => String, { description: 'The ISO 4217 currency of both.' })
  currency!: string;

  @Field(() => JsonScalar, {
    nullable: true,
    description: 'Whatever else is known of it: a JSON object, up to 256 KiB.',
  })
  attributes?: unknown;
}

@InputType({ description: 'Items to write: all of them, or none when one is at fault.' })
export class ImportCatalogItemsInput {
  @Field(() => [CatalogItemInput], { description: `Up to ${MAX_ITEMS_PER_CALL} items.` })
  items!: CatalogItemInput[];
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'What an import came to.' })
export class ImportCatalogItemsPayload extends Payload {
  @Field(() => Int, { description: 'How many items are now as they were given; 0 when it was refused.' })
  imported!: number;

  @Field(() => Int, { description: 'How many of them are new.' })
  created!: number;

  @Field(() => Int, { description: 'How many of them were there and said something else.' })
  updated!: number;
}
