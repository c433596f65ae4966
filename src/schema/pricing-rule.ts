// Pricing rules: what turns a catalog price into a channel price.

import { Field, Int, ObjectType } from 'type-graphql';
import { Node } from './node.js';
import { JsonScalar } from './scalar.js';

@ObjectType({
  implements: Node,
  simpleResolvers: true,
  description: 'A rule that makes new prices of the catalog’s.',
})
export class PricingRule extends Node {
  @Field(() => String, { description: 'What people call it.' })
  name!: string;

  @Field(() => String, { description: 'The label it is filed under.' })
  projectId!: string;

  @Field(() => Boolean, { description: 'Whether it may be used.' })
  enabled!: boolean;

  @Field(() => Int, { description: 'Of rules that fit the same item, the highest wins.' })
  priority!: number;

  @Field(() => Int, { description: 'Grows by one with every change.' })
  version!: number;

  @Field(() => JsonScalar, { description: 'What it selects, what it does to a price, and its guardrails.' })
  definition!: unknown;
}
