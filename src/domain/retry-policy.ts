// When to try again. Pure arithmetic: exponential with a cap and jitter; a throttled call backs off from a
// higher base. Attempts count the calls made: with three attempts in all, the third failure is the last.

export interface RetryPolicy {
  readonly maxAttempts: number;
  readonly baseMs: number;
  readonly maxMs: number;
  readonly multiplier: number;
  /** 0.2 spreads a delay over ± 20 %. */
  readonly jitter: number;
  /** The first delay after a throttled call that named no delay of its own. */
  readonly throttleBaseMs: number;
}

export const DEFAULT_RETRY_POLICY: RetryPolicy = {
  maxAttempts: 3,
  baseMs: 2_000,
  maxMs: 64_000,
  multiplier: 2,
  jitter: 0.2,
  throttleBaseMs: 16_000,
};

export function isExhausted(policy: RetryPolicy, attempts: number): boolean {
  return attempts >= policy.maxAttempts;
}

/** The wait after attempt number `attempts` (1, 2, 3 …) failed. `random` is uniform in [0, 1). */
export function nextDelayMs(
  policy: RetryPolicy,
  attempts: number,
  throttled: boolean,
  random: () => number,
): number {
  const base = throttled ? policy.throttleBaseMs : policy.baseMs;
  const delay = Math.min(base * policy.multiplier ** (attempts - 1), policy.maxMs);
  const spread = (random() * 2 - 1) * policy.jitter;
  return Math.floor(delay * (1 + spread));
}

const LONGEST_NAMED_MS = 366 * 24 * 3_600_000;

/** The wait that a channel asked for, as far as anybody can wait; null when it named none. */
export function namedDelayMs(failure: { readonly retryAfterMs?: number }): number | null {
  const { retryAfterMs } = failure;
  return retryAfterMs === undefined ? null : Math.min(retryAfterMs, LONGEST_NAMED_MS);
}
