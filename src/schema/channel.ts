// Sales channels and supplier sources. How to reach them (addresses, tokens) is never shown.

import { Field, Float, ID, Int, ObjectType } from 'type-graphql';
import { defineEnum } from './enum.js';
import { Node } from './node.js';
import { DateTimeScalar } from './scalar.js';

export type CircuitState = 'CLOSED' | 'OPEN' | 'HALF_OPEN';

export const CircuitStateEnum = defineEnum<CircuitState>(
  'CircuitState',
  'Whether calls to a channel are let through.',
  {
    CLOSED: 'Calls are let through.',
    OPEN: 'The channel failed too often in a row: no calls until `openUntil`.',
    HALF_OPEN: 'The wait is over: the next call decides.',
  },
);

@ObjectType({ simpleResolvers: true, description: 'How a channel fares, as every server process sees it.' })
export class ChannelHealth {
  @Field(() => CircuitStateEnum, { description: 'Its circuit breaker.' })
  circuit!: CircuitState;

  @Field(() => DateTimeScalar, { nullable: true, description: 'Until when no calls are made.' })
  openUntil!: Date | null;

  @Field(() => Int, { description: 'How many answers in a row told us to slow down.' })
  consecutive429!: number;

  @Field(() => Float, {
    nullable: true,
    description: 'What is left of its rate limit by now; null until it has told us.',
  })
  availableTokens!: number | null;
}

@ObjectType({
  implements: Node,
  simpleResolvers: true,
  description: 'A sales channel that prices are pushed to.',
})
export class Channel extends Node {
  @Field(() => String, { description: 'What people call it.' })
  name!: string;

  @Field(() => String, { description: 'The technology behind it, e.g. shopify.' })
  kind!: string;

  @Field(() => ChannelHealth, { description: 'How it fares.' })
  health!: ChannelHealth;
}

@ObjectType({
  implements: Node,
  simpleResolvers: true,
  description: "A supplier's feed that fills the catalog.",
})
export class Source extends Node {
  @Field(() => String, { description: 'What people call it.' })
  name!: string;

  @Field(() => String, { description: 'The technology behind it, e.g. http.' })
  kind!: string;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description: 'Everything up to here is in the catalog; it moves only when a pipeline run completes.',
  })
  watermark!: Date | null;

  @Field(() => ID, { nullable: true, description: 'The pipeline run that moved the watermark last.' })
  lastRunId!: string | null;
}
