// A pipeline run: a supplier's feed brought into the catalog, partition by partition. Owns its machine.

import { allowedEvents, defineMachine, type StateOf } from './machine.js';

export const pipelineRunMachine = defineMachine({
  name: 'pipeline_run',
  title: 'Pipeline run',
  table: 'run_metadata',
  states: [
    'CREATED',
    'WORKERS_RUNNING',
    'CONSOLIDATION_SKIPPED',
    'CONSOLIDATING',
    'COMPLETED',
    'FAILED',
    'CANCELLED',
  ],
  initial: 'CREATED',
  finalStates: ['COMPLETED', 'CANCELLED'],
  events: {
    start: {
      from: ['CREATED'],
      to: 'WORKERS_RUNNING',
      actors: ['WORKER'],
      condition: 'the feed is planned and workers take up its partitions',
    },
    consolidate: {
      from: ['WORKERS_RUNNING'],
      to: 'CONSOLIDATING',
      actors: ['WORKER'],
      condition: 'every partition completed',
    },
    skip_consolidation: {
      from: ['WORKERS_RUNNING'],
      to: 'CONSOLIDATION_SKIPPED',
      actors: ['WORKER'],
      condition: 'every partition ended, some failed, and consolidation is not forced',
    },
    complete: {
      from: ['CONSOLIDATING'],
      to: 'COMPLETED',
      actors: ['WORKER'],
      condition: 'every raw item is consolidated and the watermark is saved',
    },
    fail: {
      from: ['CREATED', 'CONSOLIDATION_SKIPPED', 'CONSOLIDATING'],
      to: 'FAILED',
      actors: ['WORKER', 'SYSTEM'],
      condition: 'the feed could not be planned, or consolidation was skipped or broke; the watermark stays',
    },
    retry_partitions: {
      from: ['FAILED'],
      to: 'WORKERS_RUNNING',
      actors: ['API'],
      condition: 'a person asks to continue the failed partitions',
    },
    force_consolidate: {
      from: ['FAILED'],
      to: 'CONSOLIDATING',
      actors: ['API'],
      condition: 'a person asks to consolidate what there is',
    },
    cancel: {
      from: ['CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING'],
      to: 'CANCELLED',
      actors: ['API'],
      condition: 'a person stops it',
    },
  },
});

export type PipelineRunStatus = StateOf<typeof pipelineRunMachine>;

export type PipelineRunAction = 'CANCEL' | 'RETRY_PARTITIONS' | 'CONSOLIDATE';

/** What a person may ask of a run: what its machine allows, where there is something to do. */
export function allowedPipelineActions({
  status,
  expectedWorkers,
  failedWorkers,
  planBeganAt,
  prunedAt,
}: {
  readonly status: PipelineRunStatus;
  readonly expectedWorkers: number;
  readonly failedWorkers: number;
  /** Null where it was never planned, or by somebody else. */
  readonly planBeganAt: Date | null;
  /** Null while it is whole. */
  readonly prunedAt: Date | null;
}): PipelineRunAction[] {
  if (prunedAt !== null) return [];
  const events = new Set(allowedEvents(pipelineRunMachine, status));
  const actions: PipelineRunAction[] = [];
  if (events.has('cancel')) actions.push('CANCEL');
  if (events.has('retry_partitions') && failedWorkers > 0) actions.push('RETRY_PARTITIONS');
  const isPlanned = expectedWorkers > 0 || planBeganAt !== null;
  if (events.has('force_consolidate') && isPlanned) actions.push('CONSOLIDATE');
  return actions;
}

export type PipelineRunType = 'full' | 'incremental';

/** Sources whose runs somebody else drives, by SQL; the runner leaves them alone. */
export const EXTERNAL_SOURCE_KIND = 'external';

/** Raw items that one transaction consolidates. */
export const CONSOLIDATION_BATCH = 2_000;

/** Fewer when they are so heavy: a process has several batches in memory. */
export const CONSOLIDATION_BYTES = 16 * 1024 * 1024;

/** Batches that may break in a row before the run fails. */
export const MAX_CONSOLIDATION_ATTEMPTS = 3;

/** What a run knows of the items of its source that it did not see. */
export interface UnseenReading {
  readonly runType: PipelineRunType;
  /** Its partitions: none where the source had nothing at all. */
  readonly expectedWorkers: number;
  readonly failedWorkers: number;
  readonly recordsProcessed: number;
  readonly recordsMissing: number;
  /** But for those that the source is known to list more than once. */
  readonly recordsDuplicated: number;
  /** Records that were set aside and had no id that could be read. */
  readonly recordsNameless: number;
  /** Records that left one of several ranges while it was read. */
  readonly recordsLeft: number;
  /** Another run of the source was read at the same time. */
  readonly isConcurrent: boolean;
  /** Records that it read are from before it began. */
  readonly clockWentBack: boolean;
  /** Items of the source that are in the catalog. */
  readonly live: number;
  /** Of those, items that it did not see. */
  readonly unseen: number;
  /** A person insists. */
  readonly forced: boolean;
}

/** `refuse`: so many would go that a person is to say so. */
export type UnseenVerdict =
  { readonly kind: 'delete' } | { readonly kind: 'keep' | 'refuse'; readonly reason: string };

/** So few may always go, and so large a share of all. */
const GUARDED = { items: 100, share: 0.5 };

/**
 * What becomes of the items that a run did not see. They are gone only if it can vouch that it saw everything
 * there is; a doubt keeps them all, since the next full run can still take them out.
 */
export function judgeUnseen(run: UnseenReading): UnseenVerdict {
  const doubt = findBlindness(run);
  if (doubt !== null) return { kind: 'keep', reason: doubt };
  const { live, unseen, forced } = run;
  if (forced || unseen <= GUARDED.items || unseen <= live * GUARDED.share) return { kind: 'delete' };
  return { kind: 'refuse', reason: `${unseen} of the ${live} items would go: consolidate it with force` };
}

function findBlindness(run: UnseenReading): string | null {
  const { recordsMissing: missing, recordsDuplicated: duplicated, recordsNameless: nameless } = run;
  if (run.runType !== 'full') return 'an incremental run looks only at what changed';
  if (run.failedWorkers > 0) return `partitions that were not read to their end: ${run.failedWorkers}`;
  // That there is none is no doubt where the plan found none and a person confirms it.
  const isKnownEmpty = run.expectedWorkers === 0 && run.forced;
  if (run.recordsProcessed === 0 && !isKnownEmpty) return 'it saw no record at all';
  if (missing > 0) return `records that the source counted and never gave: ${missing}`;
  // Where one stands twice, another may have been passed over.
  if (duplicated > 0) return `records that came twice, perhaps in the place of others: ${duplicated}`;
  if (nameless > 0) return `records whose id cannot be read, and which may be any: ${nameless}`;
  // They may have come into a range that had been read before.
  if (run.recordsLeft > 0) return `records that left their range while it was read: ${run.recordsLeft}`;
  if (run.clockWentBack) return 'the clock was put back while it read';
  if (run.isConcurrent) return 'another run of the source was read at the same time';
  return null;
}
