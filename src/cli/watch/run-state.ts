// A run as `watch` shows it: what is asked of each kind, when it has come to rest, and one line that says how
// it stands.

import { EXIT } from '../command.js';
import type { Kind } from '../run-kind.js';

export interface RunState {
  readonly id: string;
  readonly status: string;
  readonly lastSeq: number;
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  readonly [field: string]: unknown;
}

interface View {
  /** The subscription's field. */
  readonly subscription: string;
  readonly fields: string;
  readonly succeeded: readonly string[];
  readonly failed: readonly string[];
  readonly stopped: readonly string[];
  /** How far it is, from 0 to 1, or null when nobody can say; and what there is to tell beside. */
  describe(run: RunState): { readonly progress: number | null; readonly facts: readonly string[] };
}

const COMMON = 'id status lastSeq startedAt finishedAt';

export const VIEWS: Readonly<Record<Kind, View>> = {
  RuleRun: {
    subscription: 'ruleRunProgress',
    fields: `${COMMON} progress ratePerSecond etaSeconds paused error counts { total applied failed }`,
    succeeded: ['APPLIED'],
    failed: ['PARTIAL', 'FAILED'],
    stopped: ['ROLLED_BACK', 'CANCELLED'],
    describe: (run) => {
      const counts = run['counts'] as { total: number; applied: number; failed: number };
      return {
        progress: run['progress'] as number,
        facts: [
          `${counts.applied} of ${counts.total} applied`,
          ...(counts.failed > 0 ? [`${counts.failed} failed`] : []),
          ...(typeof run['ratePerSecond'] === 'number' ? [`${round(run['ratePerSecond'])}/s`] : []),
          ...(typeof run['etaSeconds'] === 'number' ? [`${round(run['etaSeconds'])} s left`] : []),
          ...(run['paused'] === true ? ['paused'] : []),
          ...(typeof run['error'] === 'string' ? [run['error']] : []),
        ],
      };
    },
  },
  PipelineRun: {
    subscription: 'pipelineRunProgress',
    fields: `${COMMON} expectedWorkers completedWorkers failedWorkers recordsProcessed recordsConsolidated`,
    succeeded: ['COMPLETED'],
    failed: ['FAILED'],
    stopped: ['CANCELLED'],
    describe: (run) => {
      const [expected, completed, failed] = ['expectedWorkers', 'completedWorkers', 'failedWorkers'].map(
        (field) => run[field] as number,
      ) as [number, number, number];
      return {
        progress: expected > 0 ? completed / expected : null,
        facts: [
          `${completed} of ${expected} partitions`,
          ...(failed > 0 ? [`${failed} failed`] : []),
          `${String(run['recordsProcessed'])} records in`,
          `${String(run['recordsConsolidated'])} consolidated`,
        ],
      };
    },
  },
  OpsRun: {
    subscription: 'opsRunProgress',
    fields: `${COMMON} projectId env claimedBy attempt metadata artifacts { type url }`,
    succeeded: ['SUCCESS'],
    failed: ['FAILED'],
    stopped: ['CANCELLED'],
    describe: (run) => {
      const { error, reason } = (run['metadata'] ?? {}) as Partial<Record<string, unknown>>;
      const artifacts = (run['artifacts'] ?? []) as { type: string; url: string }[];
      return {
        progress: null,
        facts: [
          ...(typeof run['claimedBy'] === 'string' ? [run['claimedBy']] : []),
          ...(typeof error === 'string' ? [error] : []),
          ...(run.status === 'CANCELLED' && typeof reason === 'string' ? [reason] : []),
          ...artifacts.map(({ type, url }) => `${type} ${url}`),
        ],
      };
    },
  },
};

/** The exit code for a run that has come to rest; null while it has not. */
export function exitCodeOf(kind: Kind, { status }: RunState): number | null {
  const { succeeded, failed, stopped } = VIEWS[kind];
  if (succeeded.includes(status)) return EXIT.success;
  if (failed.includes(status)) return EXIT.failure;
  return stopped.includes(status) ? EXIT.stopped : null;
}

const BAR_LENGTH = 24;

export function renderState(kind: Kind, run: RunState): string {
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
