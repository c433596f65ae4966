// Reconciliation: what a channel shows, held against what a run has set.

import { Field, ID, Int, ObjectType } from 'type-graphql';
import { Payload } from './payload.js';
import { DateTimeScalar, SafeIntScalar } from './scalar.js';

@ObjectType({
  simpleResolvers: true,
  description: 'A target whose price in the channel is not the one that was set.',
})
export class ReconciliationMismatch {
  @Field(() => ID, { description: 'The target.' })
  targetId!: string;

  @Field(() => String, { description: "The item's id in the channel." })
  externalId!: string;

  @Field(() => SafeIntScalar, { description: 'What the run has set, in minor units.' })
  expected!: number;

  @Field(() => SafeIntScalar, {
    nullable: true,
    description: 'What the channel shows; null when it has no such item.',
  })
  actual!: number | null;

  @Field(() => SafeIntScalar, { nullable: true, description: 'Actual less expected.' })
  difference!: number | null;
}

@ObjectType({ simpleResolvers: true, description: 'A target whose price the channel did not give.' })
export class ReconciliationUnread {
  @Field(() => ID, { description: 'The target.' })
  targetId!: string;

  @Field(() => String, { description: "The item's id in the channel." })
  externalId!: string;

  @Field(() => String, { description: 'Why not: INVALID, UPSTREAM, TIMEOUT …' })
  code!: string;

  @Field(() => String, { description: 'The same in words.' })
  message!: string;
}

@ObjectType({ simpleResolvers: true, description: 'One comparison of a run with its channel.' })
export class ReconciliationReport {
  @Field(() => ID, { description: 'Opaque.' })
  id!: string;

  @Field(() => ID, { description: 'The run.' })
  runId!: string;

  @Field(() => String, { description: 'What set it off: manual, immediate, delayed or periodic.' })
  trigger!: string;

  @Field(() => Int, { description: 'How many applied targets were compared.' })
  totalChecked!: number;

  @Field(() => Int, {
    description: 'How many of them differed; a price that a later run has set is no difference.',
  })
  mismatches!: number;

  @Field(() => Int, {
    description: 'How many more could not be compared: the channel did not give their price.',
  })
  unread!: number;

  @Field(() => ID, { nullable: true, description: 'The run that pushes them again, if that was asked for.' })
  repairRunId!: string | null;

  @Field(() => DateTimeScalar, { description: 'When it was made.' })
  createdAt!: Date;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The comparison that was asked for.' })
export class ReconciliationPayload extends Payload {
  @Field(() => ReconciliationReport, {
    nullable: true,
    description: 'Null when it was refused, and while it is pending.',
  })
  report!: ReconciliationReport | null;

  @Field(() => Boolean, {
    description:
      'Still under way when this was answered: the report will be among the run’s reconciliations.',
  })
  pending!: boolean;
}
