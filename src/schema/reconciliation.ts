// Reconciliation: what a channel shows, held against what a run has set.

import { Field, ID, Int, ObjectType } from 'type-graphql';
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

@ObjectType({ simpleResolvers: true, description: 'One comparison of a run with its channel.' })
export class ReconciliationReport {
  @Field(() => ID, { description: 'Opaque.' })
  id!: string;

  @Field(() => ID, { description: 'The run.' })
  runId!: string;

  @Field(() => String, { description: 'What set it off: manual, immediate, delayed or periodic.' })
  trigger!: string;

  @Field(() => Int, { description: 'How many targets were compared.' })
  totalChecked!: number;

  @Field(() => Int, { description: 'How many of them differed.' })
  mismatches!: number;

  @Field(() => [ReconciliationMismatch], { description: 'Those that differed.' })
  details!: readonly ReconciliationMismatch[];

  @Field(() => DateTimeScalar, { description: 'When it was made.' })
  createdAt!: Date;
}
