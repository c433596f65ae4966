// A partition of a pipeline run: one range of the feed, read page by page. Owns its machine.

import { defineMachine, type EventOf, type StateOf } from './machine.js';

export const partitionMachine = defineMachine({
  name: 'partition',
  title: 'Partition',
  table: 'worker_runs',
  states: ['pending', 'running', 'completed', 'failed'],
  initial: 'pending',
  finalStates: ['completed'],
  events: {
    start: {
      from: ['pending'],
      to: 'running',
      actors: ['WORKER'],
      condition: 'a worker reads its first page',
    },
    complete: { from: ['running'], to: 'completed', actors: ['WORKER'], condition: 'the last page is in' },
    fail: {
      from: ['running'],
      to: 'failed',
      actors: ['WORKER', 'SYSTEM'],
      condition: 'a permanent error, or the deliveries of a page are used up',
    },
    retry: { from: ['failed'], to: 'pending', actors: ['API'], condition: 'a person asks to continue it' },
  },
});

export type PartitionStatus = StateOf<typeof partitionMachine>;
export type PartitionEvent = EventOf<typeof partitionMachine>;
