// The gate before a channel: how many items a batch may have now, by the channel's circuit breaker, its
// budget and the batches under way; and what its answers do to the circuit. Pure: the store keeps the state in
// the channel's row, shared by every replica.

export type CircuitState = 'CLOSED' | 'OPEN' | 'HALF_OPEN';

export interface GateState {
  readonly circuit: CircuitState;
  /** Of a circuit that is not closed: whether the wait is over. */
  readonly waitIsOver: boolean;
  /** What the budget has come to by now; null when there is none. */
  readonly tokens: number | null;
  /** The most it can come to. */
  readonly capacity: number | null;
  /** Batches of others that are under way. */
  readonly busy: number;
}

export interface GateLimits {
  readonly concurrency: number | null;
  /** Tokens that a batch of so many items is expected to cost; it grows with the items. */
  readonly costOf: (items: number) => number;
}

export interface Admission {
  readonly items: number;
  readonly cost: number;
  /** The one batch that a half-open circuit lets through. */
  readonly isProbe: boolean;
}

/** Small: if the channel still throttles, it costs each item of the probe an attempt. */
export const PROBE_ITEMS = 10;

/** How much of a batch of `wanted` items may go now; null when none may. */
export function admitBatch(state: GateState, limits: GateLimits, wanted: number): Admission | null {
  const isProbe = state.circuit !== 'CLOSED';
  if (isProbe && !state.waitIsOver) return null;
  if (limits.concurrency !== null && state.busy >= limits.concurrency) return null;
  const most = isProbe ? Math.min(wanted, PROBE_ITEMS) : wanted;
  const items = state.tokens === null ? most : mostItems(state.tokens, limits.costOf, most);
  if (items > 0) return { items, cost: limits.costOf(items), isProbe };
  // What costs more than the budget can hold would else never go.
  const isFull = state.tokens !== null && state.capacity !== null && state.tokens >= state.capacity;
  return isFull ? { items: 1, cost: state.capacity, isProbe } : null;
}

/** The most items, up to `most`, that the tokens pay for: by halving, since the cost grows with them. */
function mostItems(tokens: number, costOf: GateLimits['costOf'], most: number): number {
  let [fits, tooMany] = [0, most + 1];
  while (tooMany - fits > 1) {
    const middle = Math.floor((fits + tooMany) / 2);
    if (costOf(middle) <= tokens) fits = middle;
    else tooMany = middle;
  }
  return fits;
}

/** The throttled answers within a batch's answers, in the order they came. */
export interface Streaks {
  /** Before the first answer of another kind; all of them when there is none. */
  readonly leading: number;
  /** After the last answer of another kind. */
  readonly trailing: number;
  readonly longest: number;
  /** All of them. */
  readonly throttled: number;
  readonly sawOther: boolean;
}

export function countStreaks(isThrottled: readonly boolean[]): Streaks {
  const lengths = [0];
  for (const throttled of isThrottled) {
    if (throttled) lengths[lengths.length - 1]! += 1;
    else lengths.push(0);
  }
  return {
    leading: lengths[0]!,
    trailing: lengths.at(-1)!,
    longest: Math.max(...lengths),
    throttled: lengths.reduce((sum, length) => sum + length, 0),
    sawOther: lengths.length > 1,
  };
}
