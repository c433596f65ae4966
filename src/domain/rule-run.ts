// A rule run: price changes pushed to one sales channel, target by target. Owns its machine and how the
// states of its targets roll up into its own.

import { defineMachine, nextState, type EventOf, type StateOf } from './machine.js';
import type { RuleTargetStatus } from './rule-target.js';

export const ruleRunMachine = defineMachine({
  name: 'rule_run',
  title: 'Rule run',
  table: 'rule_run',
  states: ['PREVIEW', 'QUEUED', 'APPLYING', 'APPLIED', 'PARTIAL', 'FAILED', 'ROLLED_BACK', 'CANCELLED'],
  initial: 'PREVIEW',
  finalStates: ['ROLLED_BACK'],
  events: {
    queue: {
      from: ['PREVIEW'],
      to: 'QUEUED',
      actors: ['API', 'SYSTEM'],
      condition: 'a person or a schedule asks for it, and it has targets',
    },
    start: { from: ['QUEUED'], to: 'APPLYING', actors: ['WORKER'], condition: 'a worker picks it up' },
    complete: { from: ['APPLYING'], to: 'APPLIED', actors: ['WORKER'], condition: 'every target is applied' },
    complete_partially: {
      from: ['APPLYING'],
      to: 'PARTIAL',
      actors: ['WORKER'],
      condition: 'nothing is left to try, and some targets failed',
    },
    fail: {
      from: ['APPLYING'],
      to: 'FAILED',
      actors: ['WORKER'],
      condition: 'a critical error, or every target failed',
    },
    retry_failed: {
      from: ['PARTIAL'],
      to: 'APPLYING',
      actors: ['API'],
      condition: 'a person asks to retry failed targets',
    },
    retry_all: {
      from: ['FAILED'],
      to: 'APPLYING',
      actors: ['API'],
      condition: 'a person asks to retry the whole run',
    },
    roll_back: {
      from: ['APPLIED', 'PARTIAL', 'CANCELLED'],
      to: 'ROLLED_BACK',
      actors: ['API', 'WORKER', 'SYSTEM'],
      condition: 'rollback was asked for, and the last applied target is set back',
    },
    cancel: {
      from: ['PREVIEW', 'QUEUED', 'APPLYING'],
      to: 'CANCELLED',
      actors: ['API'],
      condition: 'a person stops it; work in flight settles with its true result',
    },
  },
});

export type RuleRunStatus = StateOf<typeof ruleRunMachine>;
export type RuleRunEvent = EventOf<typeof ruleRunMachine>;

export interface TargetCounts {
  readonly total: number;
  readonly preview: number;
  readonly queued: number;
  readonly applying: number;
  readonly applied: number;
  readonly failed: number;
  readonly rolledBack: number;
  readonly cancelled: number;
}

/**
 * The event that an APPLYING run's counts call for; null while any target is still under way. Targets that
 * were set back before a retry count as applied once.
 */
export function rollUp(counts: TargetCounts): 'complete' | 'complete_partially' | 'fail' | null {
  if (counts.preview + counts.queued + counts.applying > 0) return null;
  if (counts.applied + counts.rolledBack === counts.total) return 'complete';
  return counts.failed === counts.total ? 'fail' : 'complete_partially';
}

/** 0..1: what has come to an end over all there is. */
export function progressOf(counts: TargetCounts): number {
  if (counts.total === 0) return 0;
  return (counts.total - counts.preview - counts.queued - counts.applying) / counts.total;
}

const COUNT_OF: Readonly<Record<RuleTargetStatus, keyof TargetCounts>> = {
  PREVIEW: 'preview',
  QUEUED: 'queued',
  APPLYING: 'applying',
  APPLIED: 'applied',
  FAILED: 'failed',
  ROLLED_BACK: 'rolledBack',
  CANCELLED: 'cancelled',
};

/** How many targets are in one of these states; null stands for all of them. */
export function countOf(counts: TargetCounts, statuses: readonly RuleTargetStatus[] | null): number {
  if (statuses === null) return counts.total;
  return [...new Set(statuses)].reduce((sum, status) => sum + counts[COUNT_OF[status]], 0);
}

/** What a rollback does with a target whose price in the channel is no longer the one that the run set. */
export type OnConflict = 'SKIP' | 'OVERWRITE';

/** What a person may ask of a run; each is a mutation. */
export type RuleRunAction =
  'QUEUE' | 'CANCEL' | 'PAUSE' | 'RESUME' | 'RETRY_FAILED' | 'RETRY_ALL' | 'ROLL_BACK' | 'RECONCILE';

interface Askable {
  readonly status: RuleRunStatus;
  readonly paused: boolean;
  readonly rollingBack: boolean;
  readonly counts: TargetCounts;
  readonly autoRevertAt: Date | null;
  /** Null while it is whole. */
  readonly prunedAt: Date | null;
}

/** When an action would not be refused. Those that are an event of the machine are allowed where that is. */
const ACTIONS: Readonly<Record<RuleRunAction, (run: Askable, now: Date) => boolean>> = {
  QUEUE: (run, now) => canFire(run, 'queue') && run.counts.total > 0 && !isRevertDue(run, now),
  CANCEL: (run) => canFire(run, 'cancel'),
  PAUSE: (run) => isUnderWay(run) && !run.paused,
  RESUME: (run) => isUnderWay(run) && run.paused,
  RETRY_FAILED: (run, now) => canFire(run, 'retry_failed') && !run.rollingBack && !isRevertDue(run, now),
  RETRY_ALL: (run, now) => canFire(run, 'retry_all') && !isRevertDue(run, now),
  // One of which nothing stands is ROLLED_BACK at once.
  ROLL_BACK: (run) => canFire(run, 'roll_back'),
  RECONCILE: (run) => run.counts.applied > 0,
};

export function allowedActions(run: Askable, now: Date): RuleRunAction[] {
  if (run.prunedAt !== null) return [];
  return (Object.keys(ACTIONS) as RuleRunAction[]).filter((action) => ACTIONS[action](run, now));
}

/** Whether it was to be set back by now: what is applied after that would stay. */
export function isRevertDue({ autoRevertAt }: Pick<Askable, 'autoRevertAt'>, now: Date): boolean {
  return autoRevertAt !== null && autoRevertAt.getTime() <= now.getTime();
}

/** States from which failed targets may be tried again. */
export const RETRYABLE_STATUSES: readonly RuleRunStatus[] = ruleRunMachine.states.filter(
  (status) =>
    nextState(ruleRunMachine, status, 'retry_failed') ?? nextState(ruleRunMachine, status, 'retry_all'),
);

function canFire({ status }: Askable, event: RuleRunEvent): boolean {
  return nextState(ruleRunMachine, status, event) !== null;
}

/** Whether workers have something to do for it, so that it can be asked to wait. */
export function isUnderWay({ status, rollingBack }: Pick<Askable, 'status' | 'rollingBack'>): boolean {
  return status === 'QUEUED' || status === 'APPLYING' || rollingBack;
}
