// Dead letters: targets that failed for good. Owns what to tell a person about each reason. Pure.

/** A target that failed without saying why. */
export const UNKNOWN_ERROR = 'UNKNOWN';

const ADVICE: Readonly<Record<string, string>> = {
  RATE_LIMITED:
    'the channel kept asking for fewer calls. Lower policy.rateLimit of the channel or run fewer runs at once, then retry them.',
  TIMEOUT:
    'the channel did not answer in time, so some of them may have been applied. Reconcile the run, check the channel with testChannel, then retry them.',
  AUTH: 'the channel refused our credentials. Save valid ones with saveChannel, check them with testChannel, then retry.',
  INVALID:
    'the channel refused the item or its price, and will again. Read errorMessage, correct the item or the rule, and make a new run for them.',
  CONFLICT:
    'the item was changed in the channel in the meantime. Reconcile the run, decide which price is right, then retry or leave them.',
  UPSTREAM: 'the channel failed on its side. Wait until testChannel succeeds, then retry them.',
  LEASE_EXPIRED:
    'the workers that held them went away again and again. Look at the workers and their logs, then retry them.',
  UNRECORDED:
    'the channel answered, and the database would not keep the answer. Read errorMessage, reconcile the run, then retry those that differ.',
  [UNKNOWN_ERROR]: 'nothing is known of the reason. Read the history of the targets before retrying.',
};

export interface DeadLetterCount {
  readonly code: string;
  readonly count: number;
  /** Of those: how many are of runs that can no longer be tried again. */
  readonly beyondRetry: number;
}

/** What to do about each reason, the most frequent first; then about those that nothing can be done about. */
export function adviseOn(counts: readonly DeadLetterCount[]): string[] {
  const advice = counts
    .map(({ code, count, beyondRetry }) => ({ code, count: count - beyondRetry }))
    .filter(({ count }) => count > 0)
    .sort((a, b) => b.count - a.count || (a.code < b.code ? -1 : 1))
    .map(({ code, count }) => `${code} (${count}): ${ADVICE[code] ?? ADVICE[UNKNOWN_ERROR]}`);
  const beyond = counts.reduce((sum, { beyondRetry }) => sum + beyondRetry, 0);
  return beyond === 0 ? advice : [...advice, `${beyond} of them ${BEYOND_RETRY}`];
}

const BEYOND_RETRY =
  'cannot be retried: their runs were cancelled, rolled back or are over. Make a new run for what is still wanted.';
