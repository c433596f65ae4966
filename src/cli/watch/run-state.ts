// A run as `watch` shows it: how each kind is followed, when it has ended and how well, and one line that says
// how it stands.

import type {
  AnyRunState,
  OpsRunState,
  PipelineRunState,
  RuleRunState,
  RunledgerClient,
} from '../../client/index.js';
import { EXIT } from '../command.js';
import type { Kind } from '../run-kind.js';

interface View<State extends AnyRunState> {
  /** Its states, until it comes to rest. */
  follow(client: RunledgerClient, runId: string): AsyncIterable<State>;
  readonly succeeded: readonly State['status'][];
  readonly failed: readonly State['status'][];
  /** How far it is, from 0 to 1, or null when nobody can say; and what there is to tell beside. */
  describe(run: State): { readonly progress: number | null; readonly facts: readonly string[] };
}

const ruleRunView: View<RuleRunState> = {
  follow: (client, runId) => client.ruleRunProgress(runId),
  succeeded: ['APPLIED'],
  failed: ['PARTIAL', 'FAILED'],
  describe: ({ progress, counts, ratePerSecond, etaSeconds, paused, error }) => ({
    progress,
    facts: [
      `${counts.applied} of ${counts.total} applied`,
      ...(counts.failed > 0 ? [`${counts.failed} failed`] : []),
      ...(ratePerSecond === null ? [] : [`${round(ratePerSecond)}/s`]),
      ...(etaSeconds === null ? [] : [`${round(etaSeconds)} s left`]),
      ...(paused ? ['paused'] : []),
      ...(error === null ? [] : [error]),
    ],
  }),
};

const pipelineRunView: View<PipelineRunState> = {
  follow: (client, runId) => client.pipelineRunProgress(runId),
  succeeded: ['COMPLETED'],
  failed: ['FAILED'],
  describe: ({
    expectedWorkers,
    completedWorkers,
    failedWorkers,
    recordsProcessed,
    recordsConsolidated,
  }) => ({
    progress: expectedWorkers > 0 ? completedWorkers / expectedWorkers : null,
    facts: [
      `${completedWorkers} of ${expectedWorkers} partitions`,
      ...(failedWorkers > 0 ? [`${failedWorkers} failed`] : []),
      `${recordsProcessed} records in`,
      `${recordsConsolidated} consolidated`,
    ],
  }),
};

interface Artifacts {
  readonly artifacts: readonly { readonly type: string; readonly url: string }[];
}

const opsRunView: View<OpsRunState & Artifacts> = {
  follow: (client, runId) => client.opsRunProgress(runId, { select: 'artifacts { type url }' }),
  succeeded: ['SUCCESS'],
  failed: ['FAILED'],
  describe: ({ status, claimedBy, artifacts, metadata: { error, reason } }) => ({
    progress: null,
    facts: [
      ...(claimedBy === null ? [] : [claimedBy]),
      ...(typeof error === 'string' ? [error] : []),
      ...(status === 'CANCELLED' && typeof reason === 'string' ? [reason] : []),
      ...artifacts.map(({ type, url }) => `${type} ${url}`),
    ],
  }),
};

export const VIEWS: Readonly<Record<Kind, View<AnyRunState>>> = {
  RuleRun: ruleRunView,
  PipelineRun: pipelineRunView,
  OpsRun: opsRunView,
};

/** The exit code for a run that has come to rest. */
export function exitCodeOf(kind: Kind, { status }: AnyRunState): number {
  const { succeeded, failed } = VIEWS[kind];
  if (succeeded.includes(status)) return EXIT.success;
  return failed.includes(status) ? EXIT.failure : EXIT.stopped;
}

const BAR_LENGTH = 24;

export function renderState(kind: Kind, run: AnyRunState): string {
  const { progress, facts } = VIEWS[kind].describe(run);
  const told = [run.status, ...facts].map((fact) => printable(fact).split('\n')[0]).join(' · ');
  if (progress === null) return told;
  const filled = Math.round(progress * BAR_LENGTH);
  const bar = '█'.repeat(filled) + '░'.repeat(BAR_LENGTH - filled);
  return `${bar} ${String(Math.floor(progress * 100)).padStart(3)} %  ${told}`;
}

/** Text of somebody else's, without what a terminal would obey. */
export function printable(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');
}

function round(value: number): string {
  return value >= 10 ? value.toFixed(0) : value.toFixed(1);
}
