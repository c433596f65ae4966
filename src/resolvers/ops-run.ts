// Ops runs: reading and watching them.

import { Arg, Ctx, ID, Query, Resolver, Root, Subscription } from 'type-graphql';
import type { OpsRunStatus } from '../domain/ops-run.js';
import { MAX_PAGE } from '../domain/page.js';
import { publicRunId } from '../domain/run.js';
import type { RunRowOf } from '../events/run-row.js';
import { OpsRun, OpsRunArtifact, OpsRunConnection, OpsRunStatusEnum } from '../schema/ops-run.js';
import { After, First, type CappedConnection } from '../schema/page.js';
import { shape } from '../schema/shape.js';
import { countOpsRuns, listOpsRuns, opsRunCursor, type OpsRunFilter } from '../store/ops-run-list.js';
import { findOpsRun, type OpsRunRow } from '../store/ops-run.js';
import { Needs } from './authorise.js';
import { cappedTotal, connect } from './connect.js';
import type { Context } from './context.js';

const RUNS_PER_PAGE = 20;

@Resolver()
export class OpsRunResolver {
  @Needs('READ_OPS')
  @Query(() => OpsRun, { nullable: true, description: 'An ops run by its id; null for an id of none.' })
  opsRun(
    @Arg('id', () => ID, { description: 'The id of the run: `run-` and a UUID.' }) id: string,
    @Ctx() context: Context,
  ): Promise<OpsRun | null> {
    return findOpsRunNode(context, id);
  }

  @Needs('READ_OPS')
  @Query(() => OpsRunConnection, { description: 'Ops runs, newest first.' })
  async opsRuns(
    @First(RUNS_PER_PAGE, MAX_PAGE) first: number | null,
    @After() after: string | null,
    @Arg('status', () => [OpsRunStatusEnum], { nullable: true, description: 'Only runs in one of these.' })
    status: OpsRunStatus[] | null,
    @Arg('projectId', () => String, { nullable: true, description: 'Only runs of this project.' })
    projectId: string | null,
    @Arg('env', () => String, { nullable: true, description: 'Only runs for this environment.' })
    env: string | null,
    @Arg('claimedBy', () => String, { nullable: true, description: 'Only runs that this worker claimed.' })
    claimedBy: string | null,
    @Ctx() { db, viewer }: Context,
  ): Promise<CappedConnection<OpsRun>> {
    const filter: OpsRunFilter = {
      status: status ?? null,
      projectId: projectId ?? null,
      env: env ?? null,
      claimedBy: claimedBy ?? null,
    };
    const page = await listOpsRuns(db, viewer, {
      first: first ?? RUNS_PER_PAGE,
      after: after ?? null,
      filter,
    });
    const total = cappedTotal(() => countOpsRuns(db, viewer, filter));
    return { ...connect(page, showOpsRun, opsRunCursor), ...total };
  }

  @Needs('READ_OPS')
  @Subscription(() => OpsRun, {
    subscribe: ({ args, context }: { args: { runId: string }; context: Context }) =>
      context.feed.runProgress(context.viewer, 'OPS', args.runId),
    description:
      'The run as it is now, then again whenever it changes: at most about ten times a second, and always its final state.',
  })
  opsRunProgress(
    @Root() row: RunRowOf<'OPS'>,
    @Arg('runId', () => ID, { description: 'The run to watch.' }) _runId: string,
  ): OpsRun {
    return showOpsRun(row.run);
  }
}

export async function findOpsRunNode({ db, viewer }: Context, id: string): Promise<OpsRun | null> {
  const row = await findOpsRun(db, viewer, id);
  return row && showOpsRun(row);
}

export function showOpsRun(row: OpsRunRow): OpsRun {
  return shape(OpsRun, {
    ...row,
    id: publicRunId('OPS', row.id),
    kind: 'OPS',
    attempt: row.attempts,
    artifacts: artifactsOf(row.metadata['artifacts']),
  });
}

/** Metadata is the worker's own: what does not look like an artifact is shown there alone. */
function artifactsOf(value: unknown): OpsRunArtifact[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((item: unknown) => {
    const { type, url } = (item ?? {}) as Partial<Record<string, unknown>>;
    return typeof type === 'string' && typeof url === 'string' ? [shape(OpsRunArtifact, { type, url })] : [];
  });
}
