// Pipeline runs: a supplier's feed brought into the catalog.

import { Field, Int, ObjectType } from 'type-graphql';
import type { PipelineRunAction, PipelineRunStatus, PipelineRunType } from '../domain/pipeline-run.js';
import { defineEnum } from './enum.js';
import { Node } from './node.js';
import { cappedConnectionOf } from './page.js';
import { Payload } from './payload.js';
import { Run } from './run.js';
import { DateTimeScalar } from './scalar.js';

export const PipelineRunStatusEnum = defineEnum<PipelineRunStatus>(
  'PipelineRunStatus',
  'Where a pipeline run stands.',
  {
    CREATED: 'Its feed is being planned.',
    WORKERS_RUNNING: 'Its partitions are being read.',
    CONSOLIDATION_SKIPPED: 'Some partitions failed: what was read is not brought into the catalog.',
    CONSOLIDATING: 'What was read is brought into the catalog.',
    COMPLETED: 'Everything is in the catalog, and the watermark is moved.',
    FAILED:
      'It could not be planned, some partitions failed, consolidation broke, or most items would go. The watermark stays.',
    CANCELLED: 'A person stopped it.',
  },
);

export const PipelineRunTypeEnum = defineEnum<PipelineRunType>(
  'PipelineRunType',
  'How much of a feed is read.',
  {
    full: 'All of it; what it no longer has is taken out of the catalog.',
    incremental: 'What changed since the watermark.',
  },
);

export const PipelineRunActionEnum = defineEnum<PipelineRunAction>(
  'PipelineRunAction',
  'What may be asked of a pipeline run.',
  {
    CANCEL: 'cancelPipelineRun',
    RETRY_PARTITIONS: 'retryFailedPartitions',
    CONSOLIDATE: 'consolidatePipelineRun; with `force` when partitions failed, or when most items are to go',
  },
);

@ObjectType({
  implements: [Node, Run],
  simpleResolvers: true,
  description: 'A supplier’s feed brought into the catalog: planned, read in partitions, consolidated.',
})
export class PipelineRun extends Run {
  /** For the resolver of `source`. */
  sourceId!: string;

  /** For the resolver of `allowedActions`. */
  planBeganAt!: Date | null;

  @Field(() => PipelineRunStatusEnum, { description: 'Where it stands.' })
  status!: PipelineRunStatus;

  @Field(() => PipelineRunTypeEnum, { description: 'How much of the feed it reads.' })
  runType!: PipelineRunType;

  @Field(() => Int, { description: 'How many partitions it has; 0 until it is planned.' })
  expectedWorkers!: number;

  @Field(() => Int, { description: 'Partitions that are read to their end.' })
  completedWorkers!: number;

  @Field(() => Int, { description: 'Partitions that failed.' })
  failedWorkers!: number;

  @Field(() => Int, { description: 'Records read so far.' })
  recordsProcessed!: number;

  @Field(() => Int, { description: 'Records that are in the catalog.' })
  recordsConsolidated!: number;

  @Field(() => Int, { description: 'Records that came more than once.' })
  recordsDuplicated!: number;

  @Field(() => Int, { description: 'Records that were set aside: `rejectedRecords` has them.' })
  recordsRejected!: number;

  @Field(() => Int, { description: 'Records that the source counted and never gave.' })
  recordsMissing!: number;

  @Field(() => Int, {
    description: 'Items that were taken out of the catalog, because the feed no longer has them.',
  })
  recordsDeleted!: number;

  @Field(() => Int, {
    description: 'Items that a full run did not see and left in the catalog, since they may still be there.',
  })
  recordsKept!: number;

  @Field(() => String, { nullable: true, description: 'Why it left them; null when it left none.' })
  keptReason!: string | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'The source’s watermark when it was started.' })
  watermarkBefore!: Date | null;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description:
      'The watermark that it left: the instant at which its plan began, so that nothing which changed since is missed.',
  })
  watermarkAfter!: Date | null;

  @Field(() => String, { description: 'Who started it.' })
  actor!: string;

  @Field(() => String, { nullable: true, description: 'What went wrong with the run as a whole.' })
  error!: string | null;
}

@ObjectType({ simpleResolvers: true, description: 'A page of pipeline runs, newest first.' })
export class PipelineRunConnection extends cappedConnectionOf('PipelineRun', () => PipelineRun) {}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The run as the mutation left it.' })
export class PipelineRunPayload extends Payload {
  @Field(() => PipelineRun, { nullable: true, description: 'Null when the mutation was refused.' })
  pipelineRun!: PipelineRun | null;
}
