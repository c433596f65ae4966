// Rule targets: one item's price in one channel.

import { Field, ID, Int, ObjectType } from 'type-graphql';
import type { RuleTargetStatus } from '../domain/rule-target.js';
import { defineEnum } from './enum.js';
import { Node } from './node.js';
import { countedConnectionOf } from './page.js';
import { DateTimeScalar, JsonScalar } from './scalar.js';

export const RuleTargetStatusEnum = defineEnum<RuleTargetStatus>(
  'RuleTargetStatus',
  'Where a target stands.',
  {
    PREVIEW: 'Proposed: its run has not been queued.',
    QUEUED: 'Waits for a worker, perhaps until nextAttemptAt.',
    APPLYING: 'A worker holds it and calls the channel.',
    APPLIED: 'The channel has the new price.',
    FAILED: 'A dead letter: attempts are used up, or trying again cannot help.',
    ROLLED_BACK: 'The channel has the former price again.',
    CANCELLED: 'Its run was cancelled before it was tried.',
  },
);

@ObjectType({ implements: Node, simpleResolvers: true, description: "One item's price in one channel." })
export class RuleTarget extends Node {
  @Field(() => ID, { description: 'The run it belongs to.' })
  runId!: string;

  @Field(() => String, { description: "The item's id in the channel." })
  externalId!: string;

  @Field(() => RuleTargetStatusEnum, { description: 'Where it stands.' })
  status!: RuleTargetStatus;

  @Field(() => JsonScalar, { description: 'The price before: { unit_amount, currency }.' })
  before!: unknown;

  @Field(() => JsonScalar, { description: 'The price to set: { unit_amount, currency }.' })
  after!: unknown;

  @Field(() => Int, { description: 'How often the channel was called for it.' })
  attempts!: number;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description: 'When it is tried again, while it waits for that.',
  })
  nextAttemptAt!: Date | null;

  @Field(() => String, {
    nullable: true,
    description:
      'Why the latest attempt failed: RATE_LIMITED, TIMEOUT, AUTH, INVALID, CONFLICT, UPSTREAM, LEASE_EXPIRED, UNRECORDED …',
  })
  errorCode!: string | null;

  @Field(() => String, { nullable: true, description: 'The same, for a person to read.' })
  errorMessage!: string | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When the channel took the new price.' })
  appliedAt!: Date | null;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description: 'When the channel took the former price back.',
  })
  rolledBackAt!: Date | null;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description: 'Since when it is a dead letter, while it is.',
  })
  failedAt!: Date | null;
}

@ObjectType({
  simpleResolvers: true,
  description: 'A page of targets, in the order in which they were added.',
})
export class RuleTargetConnection extends countedConnectionOf('RuleTarget', () => RuleTarget) {}
