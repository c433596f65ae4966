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
  [UNKNOWN_ERROR]: 'nothing is known of the reason. Read the history of the targets before retrying.',
};

/** What to do about each reason, the most frequent first. */
export function adviseOn(countByCode: Readonly<Record<string, number>>): string[] {
  return Object.entries(countByCode)
    .sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1))
    .map(([code, count]) => `${code} (${count}): ${ADVICE[code] ?? ADVICE[UNKNOWN_ERROR]}`);
}
