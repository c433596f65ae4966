// What the mutations of rule runs take.

import { Field, ID, InputType } from 'type-graphql';
import type { OnConflict, RuleRunStatus } from '../domain/rule-run.js';
import { MAX_TARGETS_PER_CALL } from '../domain/rule-target.js';
import { OnConflictEnum, RuleRunStatusEnum } from './rule-run.js';
import { DateTimeScalar, JsonScalar } from './scalar.js';

const IDEMPOTENCY_KEY =
  'Makes a repeat of this call harmless: the same key with the same input answers as the first time, with another input it is refused.';

@InputType({ description: 'Which rule runs to list; what is absent does not matter.' })
export class RuleRunFilter {
  @Field(() => [RuleRunStatusEnum], { nullable: true, description: 'In one of these states.' })
  status?: RuleRunStatus[] | null;

  @Field(() => String, { nullable: true, description: 'Filed under this label.' })
  projectId?: string | null;

  @Field(() => ID, { nullable: true, description: 'Of this channel.' })
  channelId?: string | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'Made after this moment.' })
  createdAfter?: Date | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'Made before this moment.' })
  createdBefore?: Date | null;

  @Field(() => String, { nullable: true, description: 'With this correlationId.' })
  correlationId?: string | null;

  @Field(() => String, {
    nullable: true,
    description:
      'With all these words in its metadata, in names or values, in any order; of each word the beginning will do.',
  })
  text?: string | null;
}

@InputType({
  description: 'A price to set. Money is a whole number of minor units with an ISO 4217 currency.',
})
export class RuleTargetInput {
  @Field(() => String, { description: "The item's id in the channel; it stands once in a run." })
  externalId!: string;

  @Field(() => JsonScalar, {
    description: 'The price before: { unit_amount, currency }. A rollback sets it again.',
  })
  before!: unknown;

  @Field(() => JsonScalar, {
    description: 'The price to set: { unit_amount, currency }. A run has one currency.',
  })
  after!: unknown;
}

@InputType({ description: 'A new rule run.' })
export class CreateRuleRunInput {
  @Field(() => String, {
    nullable: true,
    defaultValue: 'default',
    description: 'The label to file it under.',
  })
  projectId?: string | null;

  @Field(() => ID, { description: 'The channel that the prices go to.' })
  channelId!: string;

  @Field(() => ID, {
    nullable: true,
    description:
      'Either the rule that makes its targets: one for every catalog item whose price it changes …',
  })
  ruleId?: string | null;

  @Field(() => [RuleTargetInput], {
    nullable: true,
    description: `… or the targets, up to ${MAX_TARGETS_PER_CALL}, or none yet; addRuleTargets adds more.`,
  })
  targets?: RuleTargetInput[] | null;

  @Field(() => JsonScalar, {
    nullable: true,
    description: 'Anything to keep with the run: a JSON object, up to 256 KiB.',
  })
  metadata?: unknown;

  @Field(() => String, {
    nullable: true,
    description:
      'What to file it under, to find it again; by default the `correlationId` in its metadata, or else its id.',
  })
  correlationId?: string | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'Once queued, it waits until this moment.' })
  startAt?: Date | null;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description:
      'Sets back by itself what it has applied by then: a sale that ends on time. Prices that somebody else has changed meanwhile are left.',
  })
  autoRevertAt?: Date | null;

  @Field(() => String, { nullable: true, description: IDEMPOTENCY_KEY })
  idempotencyKey?: string | null;
}

@InputType({ description: 'More targets for a run that is still in PREVIEW.' })
export class AddRuleTargetsInput {
  @Field(() => ID, { description: 'The run.' })
  runId!: string;

  @Field(() => [RuleTargetInput], {
    description: `Up to ${MAX_TARGETS_PER_CALL} targets; all of them or none are added.`,
  })
  targets!: RuleTargetInput[];
}

@InputType({ description: 'A rule run to act on.' })
export class RuleRunInput {
  @Field(() => ID, { description: 'The run.' })
  runId!: string;

  @Field(() => String, { nullable: true, description: IDEMPOTENCY_KEY })
  idempotencyKey?: string | null;

  @Field(() => String, {
    nullable: true,
    description:
      'For queueRuleRun: the hash of the preview, to queue a run that is beyond the guardrails. Another hash than the preview has by now is refused.',
  })
  confirm?: string | null;

  @Field(() => Boolean, {
    nullable: true,
    defaultValue: false,
    description:
      'For reconcileRuleRun: push the prices that differ again, by a new run of those alone. Its guardrails hold: beyond them it stays a preview.',
  })
  repair?: boolean | null;
}

@InputType({ description: 'Failed targets of a run to try again.' })
export class RetryFailedTargetsInput extends RuleRunInput {
  @Field(() => [ID], { nullable: true, description: 'Which of them; all when this is left out.' })
  targetIds?: string[] | null;
}

@InputType({ description: 'What of a run to set back.' })
export class RollBackRuleRunInput extends RuleRunInput {
  @Field(() => [ID], {
    nullable: true,
    description: 'Which applied targets; all of them, with those still in flight, when this is left out.',
  })
  targetIds?: string[] | null;

  @Field(() => OnConflictEnum, {
    nullable: true,
    defaultValue: 'SKIP',
    description: 'What to do with prices that somebody else has changed meanwhile.',
  })
  onConflict?: OnConflict | null;
}
