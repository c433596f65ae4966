// Sales channels and supplier sources. Their credentials are never shown.

import { Field, Float, ID, InputType, Int, ObjectType } from 'type-graphql';
import type { Settings } from '../domain/settings.js';
import { defineEnum } from './enum.js';
import { Node } from './node.js';
import { Payload } from './payload.js';
import { DateTimeScalar, JsonScalar } from './scalar.js';

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

  @Field(() => DateTimeScalar, { description: 'When it was last saved.' })
  updatedAt!: Date;

  /** As it is stored; what may be shown of it is a field of its own. */
  storedConfig!: Settings;
}

@InputType({ description: 'A channel as it is to be.' })
export class SaveChannelInput {
  @Field(() => ID, { nullable: true, description: 'The channel to change; a new one when absent.' })
  id?: string | null;

  @Field(() => String, { description: 'What people call it; no other channel has the same name.' })
  name!: string;

  @Field(() => String, { description: 'The technology: shopify or http. A channel keeps its kind.' })
  kind!: string;

  @Field(() => JsonScalar, {
    description:
      'Its settings, whole, credentials among them, and under `policy` its retry, rate and circuit figures. Where a credential comes as its mask, ********, the one that is stored stays.',
  })
  config!: unknown;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The channel as it was saved.' })
export class ChannelPayload extends Payload {
  @Field(() => Channel, { nullable: true, description: 'Null when the save was refused.' })
  channel!: Channel | null;
}

@InputType({ description: 'Which channel to call.' })
export class TestChannelInput {
  @Field(() => ID, { description: 'The channel, as it is saved.' })
  channelId!: string;
}

@ObjectType({ simpleResolvers: true, description: 'What came of one real call that changes nothing.' })
export class ChannelTest {
  @Field(() => Boolean, { description: 'The channel answered, and let us in.' })
  ok!: boolean;

  @Field(() => String, { nullable: true, description: 'Why not: AUTH, TIMEOUT, UPSTREAM, INVALID …' })
  code!: string | null;

  @Field(() => String, { description: 'The same, for a person to read.' })
  message!: string;

  @Field(() => Int, { description: 'How long the call took, in milliseconds.' })
  latencyMs!: number;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'How the channel answered.' })
export class ChannelTestPayload extends Payload {
  @Field(() => ChannelTest, { nullable: true, description: 'Null when no call could be made.' })
  test!: ChannelTest | null;
}
