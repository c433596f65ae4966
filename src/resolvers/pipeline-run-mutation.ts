// Pipeline runs: starting, stopping and repeating them. Each mutation is one verb of the store.

import { Arg, Ctx, Mutation, Resolver } from 'type-graphql';
import {
  ConsolidatePipelineRunInput,
  PipelineRunInput,
  StartPipelineRunInput,
} from '../schema/pipeline-run-input.js';
import { PipelineRunPayload } from '../schema/pipeline-run.js';
import {
  cancelPipelineRun,
  consolidatePipelineRun,
  retryFailedPartitions,
  startPipelineRun,
  type PipelineRunRequest,
} from '../store/pipeline-run-control.js';
import type { PipelineRunRow } from '../store/pipeline-run.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';
import { showPipelineRun } from './pipeline-run.js';

@Resolver()
export class PipelineRunMutationResolver {
  @Needs('OPERATE')
  @Mutation(() => PipelineRunPayload, {
    description: 'Starts to read a source. One run of a source is active at a time, unless asked otherwise.',
  })
  startPipelineRun(
    @Arg('input', () => StartPipelineRunInput, { description: 'The run to start.' })
    input: StartPipelineRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<PipelineRunPayload> {
    return answer(() =>
      startPipelineRun(db, viewer, {
        projectId: input.projectId ?? 'default',
        sourceId: input.sourceId,
        runType: input.runType ?? null,
        allowConcurrent: input.allowConcurrent ?? false,
        metadata: input.metadata,
        idempotencyKey: input.idempotencyKey ?? null,
      }),
    );
  }

  @Needs('OPERATE')
  @Mutation(() => PipelineRunPayload, {
    description: 'FAILED → WORKERS_RUNNING: failed partitions go on from the page at which they failed.',
  })
  retryFailedPartitions(
    @Arg('input', () => PipelineRunInput, { description: 'The run.' }) input: PipelineRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<PipelineRunPayload> {
    return answer(() => retryFailedPartitions(db, viewer, requestOf(input)));
  }

  @Needs('OPERATE')
  @Mutation(() => PipelineRunPayload, {
    description:
      'FAILED → CONSOLIDATING: again when consolidation broke, or by `force` though partitions failed or most items go.',
  })
  consolidatePipelineRun(
    @Arg('input', () => ConsolidatePipelineRunInput, { description: 'The run.' })
    input: ConsolidatePipelineRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<PipelineRunPayload> {
    const force = input.force ?? false;
    return answer(() => consolidatePipelineRun(db, viewer, { ...requestOf(input), force }));
  }

  @Needs('OPERATE')
  @Mutation(() => PipelineRunPayload, {
    description: 'Stops a run that has not ended. What it has read stays for the next one.',
  })
  cancelPipelineRun(
    @Arg('input', () => PipelineRunInput, { description: 'The run.' }) input: PipelineRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<PipelineRunPayload> {
    return answer(() => cancelPipelineRun(db, viewer, requestOf(input)));
  }
}

function requestOf({ runId, idempotencyKey = null }: PipelineRunInput): PipelineRunRequest {
  return { runId, idempotencyKey };
}

function answer(verb: () => Promise<PipelineRunRow>): Promise<PipelineRunPayload> {
  return mutate<PipelineRunPayload>({ pipelineRun: null }, async () => ({
    pipelineRun: showPipelineRun(await verb()),
  }));
}
