// A rule target: one item's price in one channel. Owns its machine, what a valid target is, and which
// event an attempt's outcome stands for.

import { findExternalIdFault } from './external-id.js';
import type { Fault } from './fault.js';
import { defineMachine, type EventOf, type StateOf } from './machine.js';
import { isCurrency, isUnitAmount } from './money.js';
import { isExhausted, namedDelayMs, nextDelayMs, type RetryPolicy } from './retry-policy.js';
import type { OnConflict } from './rule-run.js';
import { storableText } from './text.js';

export const ruleTargetMachine = defineMachine({
  name: 'rule_target',
  title: 'Rule target',
  table: 'rule_target',
  states: ['PREVIEW', 'QUEUED', 'APPLYING', 'APPLIED', 'FAILED', 'ROLLED_BACK', 'CANCELLED'],
  initial: 'PREVIEW',
  finalStates: ['ROLLED_BACK', 'CANCELLED'],
  events: {
    include: { from: ['PREVIEW'], to: 'QUEUED', actors: ['API'], condition: 'its run is queued' },
    claim: {
      from: ['QUEUED'],
      to: 'APPLYING',
      actors: ['WORKER'],
      condition: 'a worker takes a lease on it',
    },
    succeed: {
      from: ['APPLYING'],
      to: 'APPLIED',
      actors: ['WORKER'],
      condition: 'the channel accepted the price',
    },
    retry: {
      from: ['APPLYING'],
      to: 'QUEUED',
      actors: ['WORKER', 'SYSTEM'],
      condition: 'the attempt failed in passing and attempts are left, or its lease was lost or handed back',
    },
    exhaust: {
      from: ['APPLYING'],
      to: 'FAILED',
      actors: ['WORKER', 'SYSTEM'],
      condition: 'attempts are used up, or the error cannot pass by itself',
    },
    requeue: { from: ['FAILED'], to: 'QUEUED', actors: ['API'], condition: 'a person asks to retry it' },
    roll_back: {
      from: ['APPLIED'],
      to: 'ROLLED_BACK',
      actors: ['API', 'WORKER'],
      condition: 'the channel has its former price again',
    },
    cancel: {
      from: ['PREVIEW', 'QUEUED'],
      to: 'CANCELLED',
      actors: ['API'],
      condition: 'its run is cancelled',
    },
  },
});

export type RuleTargetStatus = StateOf<typeof ruleTargetMachine>;
export type RuleTargetEvent = EventOf<typeof ruleTargetMachine>;

export const MAX_TARGETS_PER_CALL = 10_000;

export interface TargetInput {
  readonly externalId: string;
  readonly before: unknown;
  readonly after: unknown;
}

export interface NewTarget {
  readonly externalId: string;
  readonly beforeAmount: number;
  readonly afterAmount: number;
}

export interface CheckedTargets {
  readonly targets: readonly NewTarget[];
  /** The one currency of all of them; null when there are none. */
  readonly currency: string | null;
  readonly faults: readonly Fault[];
}

/** Reads targets as clients give them. A run has one currency, `runCurrency` once it is known. */
export function checkTargets(inputs: readonly TargetInput[], runCurrency: string | null): CheckedTargets {
  const faults: Fault[] = [];
  const targets: NewTarget[] = [];
  const seen = new Set<string>();
  let currency = runCurrency;
  inputs.forEach((input, index) => {
    const at = (...path: string[]) => [String(index), ...path];
    const fault = (path: string[], message: string) => faults.push({ path, message });
    const idFault = findExternalIdFault(input.externalId, seen);
    if (idFault) fault(at('externalId'), idFault);
    seen.add(input.externalId);
    const before = readMoney(input.before, at('before'), fault);
    const after = readMoney(input.after, at('after'), fault);
    if (!before || !after) return;
    currency ??= before.currency;
    for (const [side, money] of [['before', before] as const, ['after', after] as const]) {
      if (money.currency === currency) continue;
      fault(at(side, 'currency'), `${money.currency} is not the run's currency, ${currency}`);
    }
    targets.push({
      externalId: input.externalId,
      beforeAmount: before.unitAmount,
      afterAmount: after.unitAmount,
    });
  });
  return { targets, currency, faults };
}

function readMoney(
  value: unknown,
  path: string[],
  fault: (path: string[], message: string) => void,
): { unitAmount: number; currency: string } | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    fault(path, 'must be an object { unit_amount, currency }');
    return null;
  }
  const { unit_amount: unitAmount, currency, ...rest } = value as Record<string, unknown>;
  if (!isUnitAmount(unitAmount)) {
    fault([...path, 'unit_amount'], 'must be a whole number of minor units, zero or more');
  }
  if (!isCurrency(currency)) fault([...path, 'currency'], 'must be an ISO 4217 currency code such as EUR');
  for (const key of Object.keys(rest)) fault([...path, key], 'is not a field of a price');
  return isUnitAmount(unitAmount) && isCurrency(currency) ? { unitAmount, currency } : null;
}

/** What one attempt came to, in the words that the channel port uses. */
export type AttemptOutcome =
  | { readonly kind: 'applied' }
  | {
      readonly kind: 'retryable';
      readonly code: string;
      readonly message: string;
      readonly retryAfterMs?: number;
    }
  | { readonly kind: 'permanent'; readonly code: string; readonly message: string };

export type Settlement =
  | { readonly event: 'succeed' }
  | { readonly event: 'retry'; readonly delayMs: number; readonly code: string; readonly message: string }
  | { readonly event: 'exhaust'; readonly code: string; readonly message: string };

/** Turns the outcome of attempt number `attempts` (1, 2, 3 …) into the event that settles the target. */
export function settlementOf(
  outcome: AttemptOutcome,
  attempts: number,
  policy: RetryPolicy,
  random: () => number,
): Settlement {
  if (outcome.kind === 'applied') return { event: 'succeed' };
  const { code } = outcome;
  const message = errorMessageOf(outcome.message);
  if (outcome.kind === 'permanent' || isExhausted(policy, attempts))
    return { event: 'exhaust', code, message };
  const throttled = code === 'RATE_LIMITED';
  const delayMs = namedDelayMs(outcome) ?? nextDelayMs(policy, attempts, throttled, random);
  return { event: 'retry', delayMs, code, message };
}

/** Much longer than anything that a person would read of it. */
const MAX_ERROR_MESSAGE = 1_000;

/** A channel may say anything: this is what is kept of it. */
export function errorMessageOf(message: string): string {
  return storableText(message, MAX_ERROR_MESSAGE);
}

/**
 * What setting a target back comes to, by the price that the channel has now; null when the former price is
 * to be written. A price that stands already was set back before, by an attempt whose end was not recorded.
 */
export function judgeRollBack(
  target: { readonly beforeAmount: number; readonly afterAmount: number },
  current: number | undefined,
  onConflict: OnConflict,
): AttemptOutcome | null {
  if (current === undefined) {
    return { kind: 'permanent', code: 'INVALID', message: 'The channel does not have it any more' };
  }
  if (current === target.beforeAmount) return { kind: 'applied' };
  if (current === target.afterAmount || onConflict === 'OVERWRITE') return null;
  const message = `The channel's price is ${current} now, not the ${target.afterAmount} that this run set`;
  return { kind: 'permanent', code: 'CONFLICT', message };
}
