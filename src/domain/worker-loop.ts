// The runner's loop: what a worker is doing right now. Owns its machine, which the runner walks in the
// process; the database keeps a sample of the state for people to see.

import { defineMachine, nextState, type EventOf, type StateOf } from './machine.js';

const AT_WORK = [
  'CONNECTING',
  'RECOVERY',
  'POLLING',
  'BACKOFF',
  'IDLE',
  'CLAIMING',
  'PROCESSING',
  'REPORTING_SUCCESS',
  'REPORTING_FAILURE',
] as const;

export const workerLoopMachine = defineMachine({
  name: 'worker_loop',
  title: 'Runner loop',
  table: null,
  states: ['STARTUP', ...AT_WORK, 'ERROR_WAIT', 'STOPPED'],
  initial: 'STARTUP',
  finalStates: ['STOPPED'],
  events: {
    boot: { from: ['STARTUP'], to: 'CONNECTING', actors: ['WORKER'], condition: 'the runner starts' },
    connect: { from: ['CONNECTING'], to: 'RECOVERY', actors: ['WORKER'], condition: 'the database answers' },
    recover: {
      from: ['RECOVERY'],
      to: 'POLLING',
      actors: ['WORKER'],
      condition: 'expired leases were taken back, or were looked for a moment ago',
    },
    find: {
      from: ['POLLING'],
      to: 'CLAIMING',
      actors: ['WORKER'],
      condition: 'some run has work that is due',
    },
    find_nothing: { from: ['POLLING'], to: 'BACKOFF', actors: ['WORKER'], condition: 'no run has' },
    rest: { from: ['BACKOFF'], to: 'IDLE', actors: ['WORKER'], condition: 'the length of the rest is known' },
    wake: {
      from: ['IDLE'],
      to: 'CONNECTING',
      actors: ['WORKER'],
      condition: 'the rest is over or a bell rang',
    },
    claim: { from: ['CLAIMING'], to: 'PROCESSING', actors: ['WORKER'], condition: 'leases were taken' },
    miss: { from: ['CLAIMING'], to: 'POLLING', actors: ['WORKER'], condition: 'another worker was faster' },
    succeed: {
      from: ['PROCESSING'],
      to: 'REPORTING_SUCCESS',
      actors: ['WORKER'],
      condition: 'every item of the unit of work succeeded',
    },
    fail: {
      from: ['PROCESSING'],
      to: 'REPORTING_FAILURE',
      actors: ['WORKER'],
      condition: 'some item of the unit of work failed',
    },
    report: {
      from: ['REPORTING_SUCCESS', 'REPORTING_FAILURE'],
      to: 'POLLING',
      actors: ['WORKER'],
      condition: 'the results are settled',
    },
    error: { from: AT_WORK, to: 'ERROR_WAIT', actors: ['WORKER'], condition: 'anything unexpected' },
    retry: { from: ['ERROR_WAIT'], to: 'CONNECTING', actors: ['WORKER'], condition: 'five seconds are over' },
    stop: {
      from: ['STARTUP', ...AT_WORK, 'ERROR_WAIT'],
      to: 'STOPPED',
      actors: ['SYSTEM'],
      condition: 'the process is asked to stop',
    },
  },
});

export type WorkerState = StateOf<typeof workerLoopMachine>;
export type WorkerEvent = EventOf<typeof workerLoopMachine>;

/** One step of the loop; a step that the machine forbids is a fault of the runner's own code. */
export function stepWorker(state: WorkerState, event: WorkerEvent): WorkerState {
  const next = nextState(workerLoopMachine, state, event);
  if (!next) throw new Error(`worker_loop: ${event} is not allowed in ${state}`);
  return next;
}
