// What the mutations of ops runs take.

import { Field, ID, InputType, Int } from 'type-graphql';
import { DEFAULT_MAX_ATTEMPTS, type OpsRunStatus, type StaleAction } from '../domain/ops-run.js';
import type { EventLevel } from '../domain/run.js';
import { OpsRunStatusEnum, StaleActionEnum } from './ops-run.js';
import { EventLevelEnum } from './run.js';
import { JsonScalar } from './scalar.js';

@InputType({ description: 'A run to queue.' })
export class QueueOpsRunInput {
  @Field(() => String, { description: 'The label to file it under.' })
  projectId!: string;

  @Field(() => String, { description: 'The environment it is for, a label: workers may claim by it.' })
  env!: string;

  @Field(() => String, { nullable: true, description: 'The commit it is about.' })
  gitSha?: string | null;

  @Field(() => String, { nullable: true, description: 'The branch or tag it is about.' })
  gitRef?: string | null;

  @Field(() => JsonScalar, { nullable: true, description: 'A JSON object for the worker, up to 256 KiB.' })
  metadata?: unknown;

  @Field(() => String, {
    nullable: true,
    description: 'The same key with the same input is the same run again; with another input it is refused.',
  })
  idempotencyKey?: string | null;

  @Field(() => Int, {
    nullable: true,
    defaultValue: 0,
    description: 'Higher is claimed first; equals by age.',
  })
  priority?: number | null;

  @Field(() => StaleActionEnum, {
    nullable: true,
    defaultValue: 'cancel',
    description: 'What becomes of it when its worker falls silent.',
  })
  onStale?: StaleAction | null;

  @Field(() => Int, {
    nullable: true,
    defaultValue: DEFAULT_MAX_ATTEMPTS,
    description: 'How often it may be claimed, with onStale REQUEUE; from 1 to 100.',
  })
  maxAttempts?: number | null;
}

@InputType({ description: 'Who claims, and what.' })
export class ClaimNextOpsRunInput {
  @Field(() => String, { description: 'The worker’s name, of its own choosing: one per process.' })
  workerId!: string;

  @Field(() => String, { nullable: true, description: 'Only runs of this project.' })
  projectId?: string | null;

  @Field(() => String, { nullable: true, description: 'Only runs for this environment.' })
  env?: string | null;
}

@InputType({ description: 'The claim that a worker speaks for.' })
export class OpsRunClaimInput {
  @Field(() => ID, { description: 'The run.' })
  runId!: string;

  @Field(() => String, { description: 'The worker that claimed it; any other is refused with CLAIM_LOST.' })
  workerId!: string;

  @Field(() => Int, {
    nullable: true,
    description:
      'The run’s `attempt` as it was claimed: refused with CLAIM_LOST when there was a later claim.',
  })
  attempt?: number | null;
}

@InputType({ description: 'A line for the ledger of a run that the worker holds.' })
export class AppendOpsRunEventInput extends OpsRunClaimInput {
  @Field(() => EventLevelEnum, { nullable: true, defaultValue: 'INFO', description: 'How grave it is.' })
  level?: EventLevel | null;

  @Field(() => String, { description: 'What happened, up to 64 KiB.' })
  message!: string;

  @Field(() => JsonScalar, { nullable: true, description: 'A JSON object with the facts, up to 64 KiB.' })
  payload?: unknown;

  @Field(() => String, {
    nullable: true,
    description:
      'Tells one event from another. Without it, the same level and message within ten seconds is the same event.',
  })
  idempotencyKey?: string | null;
}

@InputType({ description: 'How a run ended.' })
export class FinishOpsRunInput extends OpsRunClaimInput {
  @Field(() => OpsRunStatusEnum, { description: 'SUCCESS, FAILED or CANCELLED.' })
  status!: OpsRunStatus;

  @Field(() => JsonScalar, {
    nullable: true,
    description:
      'A JSON object that is added to the run’s metadata: exit_code, error, retry_count, artifacts …',
  })
  metadata?: unknown;
}

@InputType({ description: 'A run to cancel.' })
export class CancelOpsRunInput {
  @Field(() => ID, { description: 'The run.' })
  runId!: string;

  @Field(() => String, { nullable: true, description: 'Why, for whoever reads the ledger.' })
  reason?: string | null;
}
