// How long what runs leave behind is kept.

import { Field, InputType, Int, ObjectType } from 'type-graphql';
import type { RunKind } from '../domain/run.js';
import { Payload } from './payload.js';
import { RunKindEnum } from './run.js';
import { DateTimeScalar } from './scalar.js';

@ObjectType({
  simpleResolvers: true,
  description:
    'How long the events and the parts (targets, partitions, rejected records) of ended runs are kept. The run itself and its counts stay for ever.',
})
export class RetentionPolicy {
  @Field(() => RunKindEnum, { description: 'The runs that it is for.' })
  kind!: RunKind;

  @Field(() => Int, { nullable: true, description: 'Days after the end of a run; null: for ever.' })
  keepDays!: number | null;

  @Field(() => Int, {
    nullable: true,
    description:
      'Days after the end of a rule run whose prices stand in the channel, which can be rolled back until then; null: as long as they stand.',
  })
  rollbackDays!: number | null;

  @Field(() => String, { nullable: true, description: 'Who set it; null when nobody has.' })
  updatedBy!: string | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When it was set.' })
  updatedAt!: Date | null;
}

@InputType({ description: 'A policy as it is to be. What is left out is kept for ever.' })
export class SaveRetentionPolicyInput {
  @Field(() => RunKindEnum, { description: 'The runs that it is for.' })
  kind!: RunKind;

  @Field(() => Int, { nullable: true, description: 'Days after the end of a run.' })
  keepDays?: number | null;

  @Field(() => Int, {
    nullable: true,
    description:
      'RULE only: days after which even a run whose prices stand is pruned, and can no longer be rolled back. No less than keepDays.',
  })
  rollbackDays?: number | null;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The policy as it holds now.' })
export class RetentionPolicyPayload extends Payload {
  @Field(() => RetentionPolicy, { nullable: true, description: 'Null when the save was refused.' })
  retentionPolicy!: RetentionPolicy | null;
}
