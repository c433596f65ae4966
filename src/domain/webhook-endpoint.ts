// What an endpoint for webhooks is sent, and when it is tried again. Owns its figures, the patterns by which types
// of event are chosen, and the names of deliveries. Pure.

import { FaultList, type Fault } from './fault.js';
import { nextDelayMs, type RetryPolicy } from './retry-policy.js';
import { publicRunId, type RunKind } from './run.js';
import { isStorable } from './text.js';

/** What of the ledger an endpoint is sent, and its figures. */
export interface WebhookChoice {
  readonly kinds: readonly RunKind[];
  readonly eventTypes: readonly string[];
  /** Null for every project. */
  readonly projectId: string | null;
  readonly batchSize: number;
  readonly deadAfterHours: number;
  readonly deadAfterFailures: number;
}

export const DEFAULT_WEBHOOK_FIGURES = {
  eventTypes: ['*'],
  batchSize: 100,
  deadAfterHours: 72,
  deadAfterFailures: 20,
} as const;

/** Endpoints that a tenant may have. */
export const MAX_WEBHOOK_ENDPOINTS = 50;

/** After a change of the secret, the former one signs too for so long. */
export const FORMER_SECRET_HOURS = 24;

export const WEBHOOK_RETRY: RetryPolicy = {
  // Never used up: an endpoint is switched off instead.
  maxAttempts: Infinity,
  baseMs: 2_000,
  maxMs: 15 * 60_000,
  multiplier: 2,
  jitter: 0.2,
  throttleBaseMs: 16_000,
};

/** A receiver may ask for patience, up to this. */
const MAX_RETRY_AFTER_MS = 60 * 60_000;

/** Why a delivery was not taken. */
export interface WebhookRefusal {
  readonly reason: string;
  /** Null when there was no answer. */
  readonly status: number | null;
  readonly retryAfterMs: number | null;
}

/** How long to wait after so many failures in a row; a receiver that names a time is given it. */
export function webhookDelayMs(
  policy: RetryPolicy,
  failures: number,
  { status, retryAfterMs }: WebhookRefusal,
  random: () => number,
): number {
  const delay = nextDelayMs(policy, failures, status === 429, random);
  return Math.max(delay, Math.min(retryAfterMs ?? 0, MAX_RETRY_AFTER_MS));
}

/** By this answer a receiver says that it is gone for good. */
export function isGone({ status }: WebhookRefusal): boolean {
  return status === 410;
}

const MAX_PATTERNS = 50;
const MAX_PATTERN_LENGTH = 100;
const MOST = { batchSize: 500, deadAfterHours: 30 * 24, deadAfterFailures: 10_000 } as const;
const LEAST = { batchSize: 1, deadAfterHours: 0, deadAfterFailures: 1 } as const;

/** `*`, `rule_run.complete`, or `rule_run.*` for all that begin so. */
export function findChoiceFaults(choice: WebhookChoice): readonly Fault[] {
  const list = new FaultList();
  if (choice.kinds.length === 0) list.add(['kinds'], 'must name at least one kind of run');
  const { eventTypes } = choice;
  if (eventTypes.length === 0 || eventTypes.length > MAX_PATTERNS) {
    list.add(['eventTypes'], `must have 1 to ${MAX_PATTERNS} entries`);
  }
  eventTypes.slice(0, MAX_PATTERNS).forEach((pattern, index) => {
    if (isPattern(pattern)) return;
    list.add(
      ['eventTypes', String(index)],
      'must be a type such as rule_run.complete, with at most one *, at its end',
    );
  });
  for (const figure of ['batchSize', 'deadAfterHours', 'deadAfterFailures'] as const) {
    if (choice[figure] >= LEAST[figure] && choice[figure] <= MOST[figure]) continue;
    list.add([figure], `must be ${LEAST[figure]} to ${MOST[figure]}`);
  }
  return list.faults;
}

function isPattern(pattern: string): boolean {
  return pattern.length <= MAX_PATTERN_LENGTH && isStorable(pattern) && /^(\*|[^*\s]+\*?)$/.test(pattern);
}

/** The same as SQL's LIKE has it. */
export function toLikePattern(pattern: string): string {
  return pattern.replace(/[\\%_]/g, '\\$&').replace(/\*$/, '%');
}

export function wantsRun(
  { kinds, projectId }: Pick<WebhookChoice, 'kinds' | 'projectId'>,
  run: { readonly kind: RunKind; readonly projectId: string },
): boolean {
  return kinds.includes(run.kind) && (projectId === null || projectId === run.projectId);
}

/** The same for every try at one delivery: the run, and the lines it covers. */
export function webhookDeliveryId(kind: RunKind, runId: string, first: number, last: number): string {
  return `${publicRunId(kind, runId)}:${first}-${last}`;
}
