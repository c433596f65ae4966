// What every kind of run shares: its ledger, read page by page or live.

import { Arg, Ctx, FieldResolver, ID, Int, Resolver, Root, Subscription } from 'type-graphql';
import { MAX_LONG_PAGE } from '../domain/page.js';
import { storedRunId, type RunKind } from '../domain/run.js';
import type { RunRow } from '../events/run-row.js';
import { First, type Connection } from '../schema/page.js';
import { Run, RunEvent, RunEventConnection, RunKindEnum } from '../schema/run.js';
import type { RunEventRow } from '../store/ledger.js';
import { Needs } from './authorise.js';
import { connect } from './connect.js';
import type { Context } from './context.js';
import { showOpsRun } from './ops-run.js';
import { showPipelineRun } from './pipeline-run.js';
import { showRuleRun } from './rule-run.js';
import { showRunEvent } from './run-event.js';

const EVENTS_PER_PAGE = 100;

@Resolver(() => Run)
export class RunResolver {
  @FieldResolver(() => RunEventConnection, { description: 'Its ledger, oldest line first.' })
  async events(
    @Root() run: Run,
    @First(EVENTS_PER_PAGE, MAX_LONG_PAGE) first: number | null,
    @Arg('after', () => Int, {
      nullable: true,
      defaultValue: 0,
      description: 'The seq after which to begin: the `endCursor` of the page before, as a number.',
    })
    after: number | null,
    @Ctx() { loaders }: Context,
  ): Promise<Connection<RunEvent>> {
    const page = await loaders.runEvents.load(storedRunId(run.id), {
      first: first ?? EVENTS_PER_PAGE,
      after: after ?? 0,
    });
    return connect(page, showRunEvent, ({ seq }) => String(seq));
  }

  @Needs('READ')
  @Subscription(() => RunEvent, {
    subscribe: ({ args, context }: { args: RunEventsArgs; context: Context }) =>
      context.feed.runEvents(context.viewer, args.runId, args.after ?? 0),
    description:
      'Every line of a run’s ledger after `after`: first what is there, then live; none missing, none twice, in order.',
  })
  runEvents(
    @Root() event: RunEventRow,
    @Arg('runId', () => ID, { description: 'The run, of any kind.' }) _runId: string,
    @Arg('after', () => Int, {
      nullable: true,
      defaultValue: 0,
      description: 'The last seq that the client has; 0 for all of it.',
    })
    _after: number | null,
  ): RunEvent {
    return showRunEvent(event);
  }

  @Needs('READ')
  @Subscription(() => Run, {
    subscribe: ({ args, context }: { args: RunChangedArgs; context: Context }) =>
      context.feed.runChanges(context.viewer, { kind: args.kind ?? null, projectId: args.projectId ?? null }),
    description:
      'For a board: first the runs that are under way, the newest 100 of them, as they are now; then any run that ' +
      'changes, as it is then, and always as it ends up.',
  })
  runChanged(
    @Root() row: RunRow,
    @Arg('kind', () => RunKindEnum, { nullable: true, description: 'Only runs of this kind.' })
    _kind: RunKind | null,
    @Arg('projectId', () => String, { nullable: true, description: 'Only runs of this project.' })
    _projectId: string | null,
  ): Run {
    return showRun(row);
  }
}

interface RunEventsArgs {
  readonly runId: string;
  readonly after?: number | null;
}

interface RunChangedArgs {
  readonly kind?: RunKind | null;
  readonly projectId?: string | null;
}

function showRun(row: RunRow): Run {
  switch (row.kind) {
    case 'RULE':
      return showRuleRun(row.run);
    case 'PIPELINE':
      return showPipelineRun(row.run);
    case 'OPS':
      return showOpsRun(row.run);
  }
}
