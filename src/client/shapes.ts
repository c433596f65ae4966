// What is asked of each subscription and what comes back: a type and the selection that fills it, side by side.
// Callers may ask for more fields; these are always there, since the client needs some of them itself.

import type { OpsRunStatus } from '../domain/ops-run.js';
import type { PipelineRunStatus } from '../domain/pipeline-run.js';
import type { RuleRunStatus } from '../domain/rule-run.js';
import type { EventLevel, RunKind } from '../domain/run.js';

export type { EventLevel, RunKind };

/** One line of a run's ledger. */
export interface RunEvent {
  readonly runId: string;
  readonly seq: number;
  readonly type: string;
  readonly level: EventLevel;
  readonly message: string;
  readonly payload: Readonly<Record<string, unknown>>;
  readonly actor: string;
  /** ISO 8601, like every moment here. */
  readonly createdAt: string;
}

export const EVENT_FIELDS = 'runId seq type level message payload actor createdAt';

/** What every kind of run shows. */
export interface RunState {
  readonly id: string;
  readonly kind: RunKind;
  readonly projectId: string;
  /** The seq of its newest event. */
  readonly lastSeq: number;
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
}

const RUN_FIELDS = 'id kind projectId lastSeq createdAt startedAt finishedAt';

export interface RuleRunState extends RunState {
  readonly kind: 'RULE';
  readonly status: RuleRunStatus;
  /** From 0 to 1: the targets that came to an end, over all of them. */
  readonly progress: number;
  readonly ratePerSecond: number | null;
  readonly etaSeconds: number | null;
  readonly paused: boolean;
  readonly error: string | null;
  readonly counts: {
    readonly total: number;
    readonly preview: number;
    readonly queued: number;
    readonly applying: number;
    readonly applied: number;
    readonly failed: number;
    readonly cancelled: number;
    readonly rolledBack: number;
  };
  readonly rollback: { readonly underWay: boolean } | null;
}

const RULE_FIELDS = `progress ratePerSecond etaSeconds paused error
  counts { total preview queued applying applied failed cancelled rolledBack } rollback { underWay }`;

export interface PipelineRunState extends RunState {
  readonly kind: 'PIPELINE';
  readonly status: PipelineRunStatus;
  /** Partitions; 0 until the run is planned. */
  readonly expectedWorkers: number;
  readonly completedWorkers: number;
  readonly failedWorkers: number;
  readonly recordsProcessed: number;
  readonly recordsConsolidated: number;
  readonly recordsRejected: number;
  readonly error: string | null;
}

const PIPELINE_FIELDS = `expectedWorkers completedWorkers failedWorkers
  recordsProcessed recordsConsolidated recordsRejected error`;

export interface OpsRunState extends RunState {
  readonly kind: 'OPS';
  readonly status: Uppercase<OpsRunStatus>;
  readonly env: string;
  readonly claimedBy: string | null;
  readonly attempt: number;
  readonly metadata: Readonly<Record<string, unknown>>;
}

const OPS_FIELDS = 'env claimedBy attempt metadata';

/** A run of any kind: `kind` tells which. */
export type AnyRunState = RuleRunState | PipelineRunState | OpsRunState;

export const PROGRESS_FIELDS: Readonly<Record<RunKind, string>> = {
  RULE: `${RUN_FIELDS} status ${RULE_FIELDS}`,
  PIPELINE: `${RUN_FIELDS} status ${PIPELINE_FIELDS}`,
  OPS: `${RUN_FIELDS} status ${OPS_FIELDS}`,
};

/** GraphQL lets no two types show different enums under one name: `readBoardState` takes the names off again. */
export const BOARD_FIELDS = `${RUN_FIELDS}
  ... on RuleRun { ruleStatus: status ${RULE_FIELDS} }
  ... on PipelineRun { pipelineStatus: status ${PIPELINE_FIELDS} }
  ... on OpsRun { opsStatus: status ${OPS_FIELDS} }`;

export function readBoardState<State extends AnyRunState>(shown: Readonly<Record<string, unknown>>): State {
  const { ruleStatus, pipelineStatus, opsStatus, ...rest } = shown;
  return { ...rest, status: ruleStatus ?? pipelineStatus ?? opsStatus } as unknown as State;
}

const RULE_RUN_ENDS: readonly RuleRunStatus[] = ['APPLIED', 'PARTIAL', 'FAILED', 'ROLLED_BACK', 'CANCELLED'];
const PIPELINE_RUN_ENDS: readonly PipelineRunStatus[] = ['COMPLETED', 'FAILED', 'CANCELLED'];
const OPS_RUN_ENDS: readonly OpsRunState['status'][] = ['SUCCESS', 'FAILED', 'CANCELLED'];

/** Nothing more happens to the run unless somebody asks for it. */
export function isAtRest(run: AnyRunState): boolean {
  switch (run.kind) {
    case 'RULE': {
      // A cancelled run still hears of what was on its way; a rollback works on a run that had ended.
      const isBusy = run.counts.applying > 0 || run.rollback?.underWay === true;
      return RULE_RUN_ENDS.includes(run.status) && !isBusy;
    }
    case 'PIPELINE':
      return PIPELINE_RUN_ENDS.includes(run.status);
    case 'OPS':
      return OPS_RUN_ENDS.includes(run.status);
  }
}
