// An ops run: a deploy, a backup, any work that somebody else's worker claims and does. Owns its machine.

import { defineMachine, type EventOf, type StateOf } from './machine.js';

export const opsRunMachine = defineMachine({
  name: 'ops_run',
  title: 'Ops run',
  table: 'ops_run',
  states: ['queued', 'claimed', 'running', 'success', 'failed', 'cancelled'],
  initial: 'queued',
  finalStates: ['success', 'failed', 'cancelled'],
  events: {
    claim: {
      from: ['queued'],
      to: 'claimed',
      actors: ['WORKER'],
      condition: 'a worker asks for the next run',
    },
    start: {
      from: ['claimed'],
      to: 'running',
      actors: ['WORKER'],
      condition: 'the worker that claimed it appends its first event',
    },
    succeed: {
      from: ['running'],
      to: 'success',
      actors: ['WORKER'],
      condition: 'the worker reports success',
    },
    fail: { from: ['running'], to: 'failed', actors: ['WORKER'], condition: 'the worker reports a failure' },
    cancel: {
      from: ['queued', 'claimed', 'running'],
      to: 'cancelled',
      actors: ['API', 'WORKER', 'SYSTEM'],
      condition: 'a person or the worker stops it, or its claim went stale',
    },
  },
});

export type OpsRunStatus = StateOf<typeof opsRunMachine>;
export type OpsRunEvent = EventOf<typeof opsRunMachine>;
