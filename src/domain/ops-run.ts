// An ops run: a deploy, a backup, any work that somebody else's worker claims and does. Owns its machine
// and what is done when an attempt came to nothing.

import { defineMachine, type StateOf } from './machine.js';

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
    requeue: {
      from: ['claimed', 'running'],
      to: 'queued',
      actors: ['SYSTEM'],
      condition: 'its claim went stale, it was queued to be tried again, and attempts are left',
    },
  },
});

export type OpsRunStatus = StateOf<typeof opsRunMachine>;

/** What becomes of a run whose worker fell silent. */
export const STALE_ACTIONS = ['cancel', 'requeue'] as const;
export type StaleAction = (typeof STALE_ACTIONS)[number];

/** Attempts in all, unless the run was queued with another number. */
export const DEFAULT_MAX_ATTEMPTS = 3;

/** The wait before another attempt: 5 s after the first, then twice as long each time, up to an hour. */
export const RETRY_BASE_MS = 5_000;
export const RETRY_MAX_MS = 3_600_000;

export function retryDelayMs(attempts: number): number {
  return Math.min(RETRY_BASE_MS * 2 ** (attempts - 1), RETRY_MAX_MS);
}
