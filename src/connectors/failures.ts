// How an answer that is no success becomes an outcome, whatever the technology. Pure: owns the mapping from
// HTTP statuses and Retry-After to what the runner understands. Only connectors call it.

import type { Failure, FailureCode } from './channel.js';

export function retryable(code: FailureCode, message: string, retryAfterMs: number | null = null): Failure {
  const failure = { kind: 'retryable', code, message } as const;
  return retryAfterMs === null ? failure : { ...failure, retryAfterMs };
}

export function permanent(code: FailureCode, message: string): Failure {
  return { kind: 'permanent', code, message };
}

export function invalid(message: string): Failure {
  return permanent('INVALID', message);
}

export const MALFORMED: Failure = retryable('UPSTREAM', 'The answer could not be understood');

export function timeoutFailure(ms: number): Failure {
  return retryable('TIMEOUT', `No answer within ${ms} ms`);
}

/** Refused for what it carries: a smaller call may pass, and the culprit can be found by halving. */
export function isRefusal(failure: Failure): boolean {
  return failure.kind === 'permanent' && failure.code === 'INVALID';
}

export function statusFailure(status: number, headers: Headers | undefined, reason = ''): Failure {
  const message = `The channel answered HTTP ${status}${reason && `: ${reason}`}`;
  const retryAfterMs = parseRetryAfter(headers?.get('retry-after') ?? null, Date.now());
  if (status === 401 || status === 403) return permanent('AUTH', message);
  if (status === 429) return retryable('RATE_LIMITED', message, retryAfterMs);
  if (status === 408) return retryable('TIMEOUT', message, retryAfterMs);
  if (status >= 400 && status < 500) return invalid(message);
  return retryable('UPSTREAM', message, retryAfterMs);
}

/** Seconds, or an HTTP date; null when it is neither. */
export function parseRetryAfter(header: string | null, nowMs: number): number | null {
  if (header === null) return null;
  // fetch leaves blanks after a value in place; they are no part of it.
  const value = header.trim();
  if (/^\d{1,9}(\.\d+)?$/.test(value)) return Math.ceil(Number(value) * 1000);
  // Date.parse takes bare numbers for years: a date in a header always has a month's name. Its oldest form ends with
  // the year and means GMT all the same, not the time where this server stands.
  const date = /[a-z]/i.test(value) ? Date.parse(value.replace(/\d{4}$/, '$& GMT')) : NaN;
  return Number.isNaN(date) ? null : Math.max(0, date - nowMs);
}

/** "fetch failed" alone tells an operator nothing: the cause says what was wrong with the connection. */
export function networkMessage(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : '';
  return `${error instanceof Error ? error.message : 'fetch failed'}${cause}`;
}
