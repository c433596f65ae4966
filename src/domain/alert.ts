// When people are told. Owns the policies, their figures, and when an alert fires and resolves. Pure: what is
// measured is the store's to find out, and how it is told is the sinks'.

import { OPERATING_TENANT } from './viewer.js';

export const ALERT_POLICIES = [
  'LOW_SUCCESS_RATE',
  'CRITICAL_SUCCESS_RATE',
  'DLQ_BACKLOG',
  'DLQ_CRITICAL',
  'THROTTLE_BURST',
  'CIRCUIT_OPEN',
  'PIPELINE_FAILED',
  'OLD_TRANSACTION',
] as const;
export type AlertPolicyName = (typeof ALERT_POLICIES)[number];

export const ALERT_SEVERITIES = ['WARNING', 'CRITICAL'] as const;
export type AlertSeverity = (typeof ALERT_SEVERITIES)[number];

export type AlertEvent = 'FIRED' | 'RESOLVED' | 'TEST';

/** What a policy looks at. */
export type Measure =
  'success_rate' | 'dead_letters' | 'throttles' | 'open_circuits' | 'failed_pipelines' | 'oldest_xmin';

export interface PolicyRule {
  readonly measure: Measure;
  readonly severity: AlertSeverity;
  readonly breach: 'below' | 'above';
  readonly threshold: number;
  /** How far back the measure looks; null when it is what is so now. */
  readonly windowSeconds: number | null;
  /** It is about the database, which all tenants share: only whoever operates the server has it. */
  readonly isOperators?: true;
  readonly title: string;
  /** What to do about it. */
  readonly advice: string;
}

const HOUR_S = 3600;

export const POLICY_RULES: Readonly<Record<AlertPolicyName, PolicyRule>> = {
  LOW_SUCCESS_RATE: {
    measure: 'success_rate',
    severity: 'WARNING',
    breach: 'below',
    threshold: 97,
    windowSeconds: HOUR_S,
    title: 'Low success rate',
    advice: 'Look at the dead letters by error code.',
  },
  CRITICAL_SUCCESS_RATE: {
    measure: 'success_rate',
    severity: 'CRITICAL',
    breach: 'below',
    threshold: 90,
    windowSeconds: HOUR_S,
    title: 'Critical success rate',
    advice: 'Pause the runs under way and look at the dead letters by error code.',
  },
  DLQ_BACKLOG: {
    measure: 'dead_letters',
    severity: 'WARNING',
    breach: 'above',
    threshold: 50,
    windowSeconds: null,
    title: 'Dead-letter backlog',
    advice: 'Drain the dead letters for a report, mend the cause, then retry them.',
  },
  DLQ_CRITICAL: {
    measure: 'dead_letters',
    severity: 'CRITICAL',
    breach: 'above',
    threshold: 100,
    windowSeconds: null,
    title: 'Critical dead-letter backlog',
    advice: 'Drain the dead letters for a report, mend the cause, then retry them.',
  },
  THROTTLE_BURST: {
    measure: 'throttles',
    severity: 'WARNING',
    breach: 'above',
    threshold: 3,
    windowSeconds: 300,
    title: 'Burst of 429',
    advice: 'Slow down: lower the rate or the concurrency in the channel’s policy.',
  },
  CIRCUIT_OPEN: {
    measure: 'open_circuits',
    severity: 'WARNING',
    breach: 'above',
    threshold: 0,
    windowSeconds: null,
    title: 'Circuit open',
    advice: 'Nothing is lost: calls go on by themselves. If it opens again, lower the channel’s rate.',
  },
  PIPELINE_FAILED: {
    measure: 'failed_pipelines',
    severity: 'CRITICAL',
    breach: 'above',
    threshold: 0,
    windowSeconds: null,
    title: 'Pipeline failed',
    advice: 'Retry the failed partitions, or consolidate what there is.',
  },
  OLD_TRANSACTION: {
    measure: 'oldest_xmin',
    severity: 'WARNING',
    breach: 'above',
    threshold: 600,
    windowSeconds: null,
    isOperators: true,
    title: 'Old transaction',
    advice: 'End what holds it, or SELECT pg_terminate_backend(pid): until then vacuum and claims slow down.',
  },
};

/** A policy as one tenant has it. */
export interface PolicySettings {
  readonly enabled: boolean;
  readonly threshold: number;
  readonly windowSeconds: number | null;
  /** After an alert has resolved, it does not fire again for so long. */
  readonly cooldownSeconds: number;
}

/** The policies that a tenant has. */
export function policiesOf(tenantId: string): readonly AlertPolicyName[] {
  return ALERT_POLICIES.filter(
    (policy) => !POLICY_RULES[policy].isOperators || tenantId === OPERATING_TENANT,
  );
}

const DEFAULT_COOLDOWN_SECONDS = 300;

export function defaultSettings(policy: AlertPolicyName): PolicySettings {
  const { threshold, windowSeconds } = POLICY_RULES[policy];
  return { enabled: true, threshold, windowSeconds, cooldownSeconds: DEFAULT_COOLDOWN_SECONDS };
}

export function isBreached(
  policy: AlertPolicyName,
  { enabled, threshold }: PolicySettings,
  value: number,
): boolean {
  if (!enabled) return false;
  return POLICY_RULES[policy].breach === 'below' ? value < threshold : value > threshold;
}

/** What is known of a policy's alert on one subject. */
export interface AlertState {
  readonly isFiring: boolean;
  readonly resolvedSecondsAgo: number | null;
}

/** What is to be done now: an alert that fires stays one until it resolves, and then rests for a while. */
export function nextAlertEvent(
  isBreachedNow: boolean,
  { isFiring, resolvedSecondsAgo }: AlertState,
  cooldownSeconds: number,
): 'fire' | 'resolve' | null {
  if (isFiring) return isBreachedNow ? null : 'resolve';
  // A clock that went back by less shows it as in the future; by more, and nobody knows how long it has rested.
  const isResting = resolvedSecondsAgo !== null && Math.abs(resolvedSecondsAgo) < cooldownSeconds;
  return isBreachedNow && !isResting ? 'fire' : null;
}

/** In one line, for people. */
export function describeAlert(
  policy: AlertPolicyName,
  value: number,
  settings: PolicySettings,
  what: string,
): string {
  const { measure } = POLICY_RULES[policy];
  switch (measure) {
    case 'success_rate':
      return `${value.toFixed(1)} % of targets succeeded within ${minutes(settings)}, below ${settings.threshold} %`;
    case 'dead_letters':
      return `${value} dead letters, more than ${settings.threshold}`;
    case 'throttles':
      return `${value} times 429 within ${minutes(settings)}, more than ${settings.threshold}`;
    case 'open_circuits':
      return `${what} asked for fewer calls too often in a row, and gets none for a while`;
    case 'failed_pipelines':
      return `${what} failed`;
    case 'oldest_xmin':
      return `A transaction is open for ${Math.round(value)} s, more than ${settings.threshold}: ${what}`;
  }
}

function minutes({ windowSeconds }: PolicySettings): string {
  return `${Math.round((windowSeconds ?? 0) / 60)} minutes`;
}

/**
 * How long to wait after a failed try to tell somebody: patient, and as patient as a sink asks for, but never longer
 * than a quarter of an hour.
 */
export function noticeDelaySeconds(attempts: number, retryAfterMs: number | null): number {
  return Math.min(Math.max(5 * 2 ** (attempts - 1), (retryAfterMs ?? 0) / 1000), 900);
}

/** A notice that a sink refuses for good is tried for an hour for all that: what refuses it may be mended by then. */
export const REFUSED_NOTICE_LIFETIME_SECONDS = HOUR_S;

/** … and so often, of which an hour has more: a clock that jumps gives nothing up. */
export const MIN_REFUSED_NOTICE_TRIES = 10;

/** A sink that has not taken a notice for so long is not tried with it again. */
export const NOTICE_LIFETIME_SECONDS = 3 * 24 * HOUR_S;

/** … and not before so many tries, of which three days have three times as many: a clock that jumps gives nothing up. */
export const MIN_NOTICE_TRIES = 100;
