// Schedules: what is started by the clock, and what becomes of a tick that nobody was there for. Pure.

import type { PipelineRunType } from './pipeline-run.js';

export type ScheduleKind = 'RULE' | 'PIPELINE';

export type MissedPolicy = 'ONCE' | 'SKIP';

export type ScheduleRequest =
  | { readonly kind: 'RULE'; readonly ruleId: string; readonly channelId: string }
  | { readonly kind: 'PIPELINE'; readonly sourceId: string; readonly runType: PipelineRunType | null };

/** A tick that is later than this was missed: no server was up, or its clock jumped. */
const MISSED_AFTER_MS = 60_000;

/** Whether a tick that is `lateMs` late still starts a run. */
export function isFired(missed: MissedPolicy, lateMs: number): boolean {
  return missed === 'ONCE' || lateMs <= MISSED_AFTER_MS;
}
