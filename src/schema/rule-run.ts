// Rule runs: price changes pushed to one sales channel.

import { Field, Float, Int, ObjectType } from 'type-graphql';
import type { OnConflict, RuleRunAction, RuleRunStatus, TargetCounts as Counts } from '../domain/rule-run.js';
import { Node } from './node.js';
import { defineEnum } from './enum.js';
import { cappedConnectionOf } from './page.js';
import { Payload } from './payload.js';
import { PricingRule } from './pricing-rule.js';
import { Run } from './run.js';
import { DateTimeScalar } from './scalar.js';

export const RuleRunStatusEnum = defineEnum<RuleRunStatus>('RuleRunStatus', 'Where a rule run stands.', {
  PREVIEW: 'Proposed: targets can be added and looked at, nothing is sent.',
  QUEUED: 'Waits for a worker.',
  APPLYING: 'Prices are being set.',
  APPLIED: 'Every target is applied.',
  PARTIAL: 'Nothing is left to try, and some targets failed.',
  FAILED: 'Every target failed, or a critical error ended it.',
  ROLLED_BACK: 'What it had applied is set back.',
  CANCELLED: 'A person stopped it.',
});

export const RuleRunActionEnum = defineEnum<RuleRunAction>(
  'RuleRunAction',
  'What may be asked of a rule run.',
  {
    QUEUE: 'Set it off, by `queueRuleRun`.',
    CANCEL: 'Stop it for good, by `cancelRuleRun`.',
    PAUSE: 'Let it wait, by `pauseRuleRun`.',
    RESUME: 'Let it go on, by `resumeRuleRun`.',
    RETRY_FAILED: 'Try its failed targets again, by `retryFailedTargets`.',
    RETRY_ALL: 'Try all of it again, by `retryRuleRun`.',
    ROLL_BACK: 'Set back what it applied, by `rollBackRuleRun`.',
    RECONCILE: 'Compare it with the channel, by `reconcileRuleRun`.',
  },
);

@ObjectType({ simpleResolvers: true, description: 'How many targets of a run stand where.' })
export class TargetCounts implements Counts {
  @Field(() => Int, { description: 'All of them.' })
  total!: number;

  @Field(() => Int, { description: 'In PREVIEW.' })
  preview!: number;

  @Field(() => Int, { description: 'QUEUED, first time or again.' })
  queued!: number;

  @Field(() => Int, { description: 'APPLYING: held by a worker.' })
  applying!: number;

  @Field(() => Int, { description: 'APPLIED.' })
  applied!: number;

  @Field(() => Int, { description: 'FAILED: the dead letters.' })
  failed!: number;

  @Field(() => Int, { description: 'ROLLED_BACK.' })
  rolledBack!: number;

  @Field(() => Int, { description: 'CANCELLED.' })
  cancelled!: number;
}

export const OnConflictEnum = defineEnum<OnConflict>(
  'OnConflict',
  "What to do when the channel's price is no longer the one that the run set.",
  { SKIP: 'Leave it, and say so on the target.', OVERWRITE: 'Set the former price all the same.' },
);

@ObjectType({ simpleResolvers: true, description: 'The newest rollback that was asked for.' })
export class RuleRunRollback {
  @Field(() => DateTimeScalar, { description: 'When it was asked for.' })
  askedAt!: Date;

  @Field(() => Boolean, { description: 'Whether all of the run is to be set back, or some targets.' })
  all!: boolean;

  @Field(() => OnConflictEnum, { description: 'The rule for prices that somebody else has changed.' })
  onConflict!: OnConflict;

  @Field(() => Boolean, {
    description:
      'Whether it is still under way. When it is over and the run is not ROLLED_BACK though all of it was asked for, `error` says how many targets were left and why; rollBackRuleRun takes them up again.',
  })
  underWay!: boolean;
}

@ObjectType({
  implements: [Node, Run],
  simpleResolvers: true,
  description: 'Price changes pushed to one sales channel, target by target.',
})
export class RuleRun extends Run {
  /** For the resolver of `channel`. */
  channelId!: string;

  /** For the resolver of `allowedActions`. */
  rollingBack!: boolean;

  @Field(() => RuleRunStatusEnum, { description: 'Where it stands.' })
  status!: RuleRunStatus;

  @Field(() => PricingRule, {
    nullable: true,
    description: 'The rule it was made from, as it was then; null when its targets were given.',
  })
  rule!: PricingRule | null;

  @Field(() => TargetCounts, { description: 'How many targets stand where.' })
  counts!: Counts;

  @Field(() => Float, { description: 'From 0 to 1: the targets that came to an end, over all of them.' })
  progress!: number;

  @Field(() => Boolean, {
    description: 'Whether a person has asked it to wait; nothing is claimed while it does.',
  })
  paused!: boolean;

  @Field(() => String, { description: 'Who made it.' })
  actor!: string;

  @Field(() => String, {
    description: 'What its maker filed it under, to find it again; its id if nothing was said.',
  })
  correlationId!: string;

  @Field(() => String, { description: 'What made it: api, or a schedule.' })
  source!: string;

  @Field(() => String, {
    nullable: true,
    description: 'What ended it, when that was an error of the whole run.',
  })
  error!: string | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When it was queued.' })
  queuedAt!: Date | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'Nothing is sent before this moment.' })
  startAt!: Date | null;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description:
      'When what it has applied is set back by itself; what is still under way is cancelled then. What the channel does not take is asked for again every five minutes, for a day.',
  })
  autoRevertAt!: Date | null;

  @Field(() => RuleRunRollback, {
    nullable: true,
    description: 'The newest rollback; null when none was asked for.',
  })
  rollback!: RuleRunRollback | null;
}

@ObjectType({ simpleResolvers: true, description: 'A page of rule runs, newest first.' })
export class RuleRunConnection extends cappedConnectionOf('RuleRun', () => RuleRun) {}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The run as the mutation left it.' })
export class RuleRunPayload extends Payload {
  @Field(() => RuleRun, { nullable: true, description: 'Null when the mutation was refused.' })
  ruleRun!: RuleRun | null;
}
