// What the mutations of pipeline runs take.

import { Field, ID, InputType } from 'type-graphql';
import type { PipelineRunType } from '../domain/pipeline-run.js';
import { PipelineRunTypeEnum } from './pipeline-run.js';
import { JsonScalar } from './scalar.js';

@InputType({ description: 'A run to start.' })
export class StartPipelineRunInput {
  @Field(() => String, {
    nullable: true,
    defaultValue: 'default',
    description: 'The label to file it under; its pricing rules apply.',
  })
  projectId?: string | null;

  @Field(() => ID, { description: 'The source to read.' })
  sourceId!: string;

  @Field(() => PipelineRunTypeEnum, {
    nullable: true,
    description: 'By default FULL when the source was never read to the end, INCREMENTAL afterwards.',
  })
  runType?: PipelineRunType | null;

  @Field(() => Boolean, {
    nullable: true,
    defaultValue: false,
    description:
      'Start it beside runs of the source that are active; otherwise that is refused with CONFLICT.',
  })
  allowConcurrent?: boolean | null;

  @Field(() => JsonScalar, { nullable: true, description: 'A JSON object to attach to it, up to 256 KiB.' })
  metadata?: unknown;

  @Field(() => String, {
    nullable: true,
    description: 'The same key with the same input is the same run again; with another input it is refused.',
  })
  idempotencyKey?: string | null;
}

@InputType({ description: 'The run that is meant.' })
export class PipelineRunInput {
  @Field(() => ID, { description: 'The run.' })
  runId!: string;

  @Field(() => String, {
    nullable: true,
    description: 'The same key again does nothing and answers the run.',
  })
  idempotencyKey?: string | null;
}

@InputType({ description: 'The run to consolidate.' })
export class ConsolidatePipelineRunInput extends PipelineRunInput {
  @Field(() => Boolean, {
    nullable: true,
    defaultValue: false,
    description:
      'Consolidate what there is though partitions failed: the watermark then stays, and nothing is taken out. ' +
      'When none failed: take out what the feed no longer has, even most of the items.',
  })
  force?: boolean | null;
}
