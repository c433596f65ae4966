// Pipeline runs: reading and watching them.

import { Arg, Ctx, FieldResolver, ID, Query, Resolver, Root, Subscription } from 'type-graphql';
import { MAX_LONG_PAGE, MAX_PAGE } from '../domain/page.js';
import type { PartitionStatus } from '../domain/partition.js';
import { allowedPipelineActions, type PipelineRunAction } from '../domain/pipeline-run.js';
import { isAllowed } from '../domain/viewer.js';
import type { RunRowOf } from '../events/run-row.js';
import { After, First, type Connection } from '../schema/page.js';
import {
  Partition,
  PartitionStatusEnum,
  RejectedRecord,
  RejectedRecordConnection,
} from '../schema/partition.js';
import { PipelineRun, PipelineRunActionEnum, PipelineRunConnection } from '../schema/pipeline-run.js';
import { shape } from '../schema/shape.js';
import { Source } from '../schema/source.js';
import {
  countPipelineRuns,
  listPipelineRuns,
  pipelineRunCursor,
  type PipelineRunRow,
} from '../store/pipeline-run.js';
import { rejectedCursor } from '../store/rejected-record.js';
import { Needs } from './authorise.js';
import { cappedTotal, connect } from './connect.js';
import type { Context } from './context.js';
import { showSource } from './source.js';

const RUNS_PER_PAGE = 20;
const REJECTED_PER_PAGE = 50;

@Resolver(() => PipelineRun)
export class PipelineRunResolver {
  @Needs('READ')
  @Query(() => PipelineRun, {
    nullable: true,
    description: 'A pipeline run by its id; null for an id of none.',
  })
  pipelineRun(
    @Arg('id', () => ID, { description: 'The id of the run: its `run_id` in SQL.' }) id: string,
    @Ctx() context: Context,
  ): Promise<PipelineRun | null> {
    return findPipelineRunNode(context, id);
  }

  @Needs('READ')
  @Query(() => PipelineRunConnection, { description: 'Pipeline runs, newest first.' })
  async pipelineRuns(
    @First(RUNS_PER_PAGE, MAX_PAGE) first: number | null,
    @After() after: string | null,
    @Ctx() { db, viewer }: Context,
  ): Promise<PipelineRunConnection> {
    const page = await listPipelineRuns(db, viewer, { first: first ?? RUNS_PER_PAGE, after: after ?? null });
    const total = cappedTotal(() => countPipelineRuns(db, viewer));
    return { ...connect(page, showPipelineRun, pipelineRunCursor), ...total };
  }

  @FieldResolver(() => Source, { description: 'The feed it reads.' })
  async source(@Root() run: PipelineRun, @Ctx() { loaders }: Context): Promise<Source> {
    return showSource((await loaders.source.load(run.sourceId))!);
  }

  @FieldResolver(() => [Partition], { description: 'Its partitions, in order.' })
  async partitions(
    @Root() run: PipelineRun,
    @Arg('status', () => [PartitionStatusEnum], {
      nullable: true,
      description: 'Only those in one of these.',
    })
    status: PartitionStatus[] | null,
    @Ctx() { loaders }: Context,
  ): Promise<Partition[]> {
    const rows = (await loaders.partitions.load(run.id)) ?? [];
    return rows.filter((row) => !status || status.includes(row.status)).map((row) => shape(Partition, row));
  }

  @FieldResolver(() => RejectedRecordConnection, { description: 'The records that it set aside, and why.' })
  async rejectedRecords(
    @Root() run: PipelineRun,
    @First(REJECTED_PER_PAGE, MAX_LONG_PAGE) first: number | null,
    @After() after: string | null,
    @Ctx() { loaders }: Context,
  ): Promise<Connection<RejectedRecord>> {
    const page = await loaders.rejectedRecords.load(run.id, {
      first: first ?? REJECTED_PER_PAGE,
      after: after ?? null,
    });
    return connect(page, (row) => shape(RejectedRecord, row), rejectedCursor);
  }

  @FieldResolver(() => [PipelineRunActionEnum], {
    description: 'What this caller may ask of it now. Another caller may be faster, and then it is refused.',
  })
  allowedActions(@Root() run: PipelineRun, @Ctx() { viewer }: Context): PipelineRunAction[] {
    return isAllowed(viewer.role, 'OPERATE') ? allowedPipelineActions(run) : [];
  }

  @Needs('READ')
  @Subscription(() => PipelineRun, {
    subscribe: ({ args, context }: { args: { runId: string }; context: Context }) =>
      context.feed.runProgress(context.viewer, 'PIPELINE', args.runId),
    description:
      'The run as it is now, then again whenever it changes: at most about ten times a second, and always its final state.',
  })
  pipelineRunProgress(
    @Root() row: RunRowOf<'PIPELINE'>,
    @Arg('runId', () => ID, { description: 'The run to watch.' }) _runId: string,
  ): PipelineRun {
    return showPipelineRun(row.run);
  }
}

export async function findPipelineRunNode({ loaders }: Context, id: string): Promise<PipelineRun | null> {
  const row = await loaders.pipelineRun.load(id);
  return row && showPipelineRun(row);
}

export function showPipelineRun(row: PipelineRunRow): PipelineRun {
  return shape(PipelineRun, { ...row, kind: 'PIPELINE' });
}
