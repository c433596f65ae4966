// Pricing rules: what turns a catalog price into a channel price.

import { Field, ID, InputType, Int, ObjectType } from 'type-graphql';
import { Node } from './node.js';
import { Payload } from './payload.js';
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

  @Field(() => Boolean, { description: 'Whether runs can be made from it.' })
  enabled!: boolean;

  @Field(() => Int, { description: 'A run made from it is served before runs of lower priority.' })
  priority!: number;

  @Field(() => Int, { description: 'Grows by one with every save.' })
  version!: number;

  @Field(() => JsonScalar, {
    description: 'Which items it is for (match), their new price (adjust, round) and its limits.',
  })
  definition!: unknown;
}

@InputType({ description: 'A rule as it is to be: what is left out gets its default, on a change too.' })
export class SavePricingRuleInput {
  @Field(() => ID, { nullable: true, description: 'The rule to change; a new one when absent.' })
  id?: string | null;

  @Field(() => String, {
    nullable: true,
    defaultValue: 'default',
    description: 'The label to file it under.',
  })
  projectId?: string | null;

  @Field(() => String, { description: 'What people call it.' })
  name!: string;

  @Field(() => Boolean, {
    nullable: true,
    defaultValue: true,
    description: 'Whether runs can be made from it.',
  })
  enabled?: boolean | null;

  @Field(() => Int, {
    nullable: true,
    defaultValue: 0,
    description: 'A run made from it is served before runs of lower priority.',
  })
  priority?: number | null;

  @Field(() => JsonScalar, {
    description:
      '{ currency, match, adjust, round, limits }, of which only adjust is needed, e.g. { "adjust": { "percent": -10 } }.',
  })
  definition!: unknown;

  @Field(() => Int, {
    nullable: true,
    description:
      'The version that the change was made from: refused with CONFLICT when there is a newer one.',
  })
  expectedVersion?: number | null;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The rule as it was saved.' })
export class PricingRulePayload extends Payload {
  @Field(() => PricingRule, { nullable: true, description: 'Null when the save was refused.' })
  pricingRule!: PricingRule | null;
}
