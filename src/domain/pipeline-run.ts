// A pipeline run: a supplier's feed brought into the catalog, partition by partition. Owns its machine.

import { defineMachine, type EventOf, type StateOf } from './machine.js';

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
