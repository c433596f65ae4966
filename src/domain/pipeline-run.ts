// A pipeline run: a supplier's feed brought into the catalog, partition by partition. Owns its machine.

import { allowedEvents, defineMachine, type EventOf, type StateOf } from './machine.js';

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
export type PipelineRunEvent = EventOf<typeof pipelineRunMachine>;

export const PIPELINE_RUN_ACTIONS = ['CANCEL', 'RETRY_PARTITIONS', 'CONSOLIDATE'] as const;
export type PipelineRunAction = (typeof PIPELINE_RUN_ACTIONS)[number];

/** What a person may ask of a run: what its machine allows, where there is something to do. */
export function allowedPipelineActions({
  status,
  expectedWorkers,
  failedWorkers,
}: {
  readonly status: PipelineRunStatus;
  readonly expectedWorkers: number;
  readonly failedWorkers: number;
}): PipelineRunAction[] {
  const events = new Set(allowedEvents(pipelineRunMachine, status));
  const actions: PipelineRunAction[] = [];
  if (events.has('cancel')) actions.push('CANCEL');
  if (events.has('retry_partitions') && failedWorkers > 0) actions.push('RETRY_PARTITIONS');
  if (events.has('force_consolidate') && expectedWorkers > 0) actions.push('CONSOLIDATE');
  return actions;
}

export const PIPELINE_RUN_TYPES = ['full', 'incremental'] as const;
export type PipelineRunType = (typeof PIPELINE_RUN_TYPES)[number];

/** Sources whose runs somebody else drives, by SQL; the runner leaves them alone. */
export const EXTERNAL_SOURCE_KIND = 'external';

/** Raw items that one transaction consolidates. */
export const CONSOLIDATION_BATCH = 2_000;

/** Batches that may break in a row before the run fails. */
export const MAX_CONSOLIDATION_ATTEMPTS = 3;

/** Up to this share of missing records, what a full run did not see is taken to be gone. */
const TOLERATED_SHORTFALL = 0.01;

export interface PipelineRunReading {
  readonly runType: PipelineRunType;
  readonly failedWorkers: number;
  readonly recordsProcessed: number;
  readonly recordsMissing: number;
}

/**
 * Why what a run did not see may still be there; null when it is gone. Only a full run looks at everything,
 * and only one that read all of what the source counted can tell. A feed that changes while it is read
 * always lacks a few.
 */
export function findBlindness(run: PipelineRunReading): string | null {
  const { runType, failedWorkers, recordsProcessed, recordsMissing } = run;
  if (runType !== 'full') return 'an incremental run looks only at what changed';
  if (failedWorkers > 0) return `${failedWorkers} partitions were not read to their end`;
  if (recordsMissing > Math.floor(recordsProcessed * TOLERATED_SHORTFALL)) {
    return `${recordsMissing} records that the source counted never came`;
  }
  return null;
}
