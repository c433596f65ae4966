// Ops runs: work that somebody else's workers claim and do.

import { Field, Int, ObjectType } from 'type-graphql';
import type { OpsRunStatus, StaleAction } from '../domain/ops-run.js';
import { defineEnum } from './enum.js';
import { Node } from './node.js';
import { cappedConnectionOf } from './page.js';
import { Payload } from './payload.js';
import { Run, RunEvent } from './run.js';
import { DateTimeScalar } from './scalar.js';

export const OpsRunStatusEnum = defineEnum<OpsRunStatus>('OpsRunStatus', 'Where an ops run stands.', {
  queued: 'Waits for a worker.',
  claimed: 'A worker has it and has not said a word yet.',
  running: 'A worker is at it.',
  success: 'The worker reported success.',
  failed: 'The worker reported a failure.',
  cancelled: 'A person or the worker stopped it, or its worker fell silent.',
});

export const StaleActionEnum = defineEnum<StaleAction>(
  'OpsRunStaleAction',
  'What becomes of an ops run whose worker falls silent.',
  {
    cancel: 'It is cancelled.',
    requeue: 'It is queued again, after a growing pause, until its attempts are used up.',
  },
);

@ObjectType({ simpleResolvers: true, description: 'Something that a worker made and left somewhere.' })
export class OpsRunArtifact {
  @Field(() => String, { description: 'What it is, e.g. image or sbom.' })
  type!: string;

  @Field(() => String, { description: 'Where it is.' })
  url!: string;
}

@ObjectType({
  implements: [Node, Run],
  simpleResolvers: true,
  description: 'A deploy, a backup, any work that a worker outside claims and does.',
})
export class OpsRun extends Run {
  @Field(() => OpsRunStatusEnum, { description: 'Where it stands.' })
  status!: OpsRunStatus;

  @Field(() => String, { description: 'The environment it is for, a label: workers may claim by it.' })
  env!: string;

  @Field(() => String, { nullable: true, description: 'The commit it is about.' })
  gitSha!: string | null;

  @Field(() => String, { nullable: true, description: 'The branch or tag it is about.' })
  gitRef!: string | null;

  @Field(() => Int, { description: 'Higher is claimed first; equals by age.' })
  priority!: number;

  @Field(() => String, { nullable: true, description: 'The worker that holds it, or held it to the end.' })
  claimedBy!: string | null;

  @Field(() => Int, {
    description:
      'How often it was claimed. A worker that reports with it is refused when there was a later claim.',
  })
  attempt!: number;

  @Field(() => Int, { description: 'How often it may be claimed.' })
  maxAttempts!: number;

  @Field(() => StaleActionEnum, { description: 'What becomes of it when its worker falls silent.' })
  onStale!: StaleAction;

  @Field(() => [OpsRunArtifact], { description: 'What its worker listed as `artifacts` in the metadata.' })
  artifacts!: readonly OpsRunArtifact[];

  @Field(() => DateTimeScalar, { description: 'When it was queued.' })
  queuedAt!: Date;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description: 'While it is queued again: when it may be claimed; null for at once.',
  })
  availableAt!: Date | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'The worker’s last sign of life.' })
  heartbeatAt!: Date | null;

  @Field(() => String, { nullable: true, description: 'The key under which it was queued.' })
  idempotencyKey!: string | null;
}

@ObjectType({ simpleResolvers: true, description: 'A page of ops runs, newest first.' })
export class OpsRunConnection extends cappedConnectionOf('OpsRun', () => OpsRun) {}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The run as the mutation left it.' })
export class OpsRunPayload extends Payload {
  @Field(() => OpsRun, {
    nullable: true,
    description: 'Null when the mutation was refused, or when there was nothing to claim.',
  })
  opsRun!: OpsRun | null;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'What a heartbeat is answered with.' })
export class OpsRunHeartbeatPayload extends Payload {
  @Field(() => OpsRun, {
    nullable: true,
    description: 'The run as it is; null when the heartbeat was refused.',
  })
  opsRun!: OpsRun | null;

  @Field(() => Boolean, { description: 'Whether the run was cancelled: its worker is to stop.' })
  cancelled!: boolean;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The line that was appended.' })
export class OpsRunEventPayload extends Payload {
  @Field(() => RunEvent, { nullable: true, description: 'Null when the mutation was refused.' })
  event!: RunEvent | null;
}
