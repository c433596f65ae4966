// Schedules: runs that are started by the clock.

import { Field, ID, InputType, ObjectType } from 'type-graphql';
import type { PipelineRunType } from '../domain/pipeline-run.js';
import type { MissedPolicy, ScheduleKind } from '../domain/schedule.js';
import { defineEnum } from './enum.js';
import { Payload } from './payload.js';
import { PipelineRunTypeEnum } from './pipeline-run.js';
import { DateTimeScalar } from './scalar.js';

export const ScheduleKindEnum = defineEnum<ScheduleKind>('ScheduleKind', 'What a schedule starts.', {
  RULE: 'A rule run: the rule is evaluated over the catalog, and the run is queued.',
  PIPELINE: 'A pipeline run.',
});

export const MissedPolicyEnum = defineEnum<MissedPolicy>(
  'MissedPolicy',
  'What becomes of ticks that no server was there for (more than a minute late).',
  {
    ONCE: 'However many were missed, one run is started for them all.',
    SKIP: 'None is started; the next tick comes in its time.',
  },
);

@ObjectType({
  simpleResolvers: true,
  description: 'Starts a run at each of its times, once over all servers.',
})
export class Schedule {
  @Field(() => ID, { description: 'Its id.' })
  id!: string;

  @Field(() => String, { description: 'What people call it.' })
  name!: string;

  @Field(() => String, { description: 'The label that its runs are filed under.' })
  projectId!: string;

  @Field(() => ScheduleKindEnum, { description: 'What it starts.' })
  kind!: ScheduleKind;

  @Field(() => ID, { nullable: true, description: 'Of a RULE: the rule.' })
  ruleId!: string | null;

  @Field(() => ID, { nullable: true, description: 'Of a RULE: where its prices go.' })
  channelId!: string | null;

  @Field(() => ID, { nullable: true, description: 'Of a PIPELINE: the source.' })
  sourceId!: string | null;

  @Field(() => PipelineRunTypeEnum, {
    nullable: true,
    description: 'Of a PIPELINE: how much is read; null leaves it to the source.',
  })
  runType!: PipelineRunType | null;

  @Field(() => String, { description: 'Its times: minute, hour, day, month, weekday.' })
  cron!: string;

  @Field(() => String, { description: 'The zone in which they are meant.' })
  timeZone!: string;

  @Field(() => MissedPolicyEnum, { description: 'What becomes of ticks that were missed.' })
  missed!: MissedPolicy;

  @Field(() => Boolean, { description: 'Whether it starts anything.' })
  enabled!: boolean;

  @Field(() => DateTimeScalar, { nullable: true, description: 'Its next tick; null when it is disabled.' })
  nextAt!: Date | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'Its last tick.' })
  lastAt!: Date | null;

  @Field(() => ID, { nullable: true, description: 'The last run that it started, or left to be confirmed.' })
  lastRunId!: string | null;

  @Field(() => String, {
    nullable: true,
    description:
      'Why its last tick started nothing, or left its run to be confirmed; null when it started one.',
  })
  lastError!: string | null;
}

@InputType({ description: 'A schedule as it is to be.' })
export class SaveScheduleInput {
  @Field(() => ID, { nullable: true, description: 'The schedule to change; a new one when absent.' })
  id?: string | null;

  @Field(() => String, { description: 'What people call it; no other schedule has the same name.' })
  name!: string;

  @Field(() => String, {
    nullable: true,
    defaultValue: 'default',
    description: 'The label to file its runs under.',
  })
  projectId?: string | null;

  @Field(() => ScheduleKindEnum, { description: 'What it starts.' })
  kind!: ScheduleKind;

  @Field(() => ID, { nullable: true, description: 'Of a RULE: the rule.' })
  ruleId?: string | null;

  @Field(() => ID, { nullable: true, description: 'Of a RULE: where its prices go.' })
  channelId?: string | null;

  @Field(() => ID, { nullable: true, description: 'Of a PIPELINE: the source.' })
  sourceId?: string | null;

  @Field(() => PipelineRunTypeEnum, {
    nullable: true,
    description: 'Of a PIPELINE: how much is read; absent leaves it to the source.',
  })
  runType?: PipelineRunType | null;

  @Field(() => String, {
    description: 'Its times, e.g. "30 6 * * MON-FRI": minute, hour, day, month, weekday.',
  })
  cron!: string;

  @Field(() => String, {
    nullable: true,
    defaultValue: 'UTC',
    description: 'The zone in which they are meant, e.g. Europe/Berlin.',
  })
  timeZone?: string | null;

  @Field(() => MissedPolicyEnum, {
    nullable: true,
    defaultValue: 'SKIP',
    description: 'What becomes of ticks that are missed.',
  })
  missed?: MissedPolicy | null;

  @Field(() => Boolean, { nullable: true, defaultValue: true, description: 'Whether it starts anything.' })
  enabled?: boolean | null;
}

@InputType({ description: 'Which schedule.' })
export class ScheduleInput {
  @Field(() => ID, { description: 'The schedule.' })
  id!: string;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The schedule as it is now.' })
export class SchedulePayload extends Payload {
  @Field(() => Schedule, { nullable: true, description: 'Null when it was refused, or is gone.' })
  schedule!: Schedule | null;
}
