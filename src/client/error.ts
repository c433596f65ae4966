// Why a subscription ended or was interrupted, and whether asking again can help.

import type { FormattedExecutionResult } from 'graphql-ws/client';

type Failures = NonNullable<FormattedExecutionResult['errors']>;

/** Codes that come about between client and server; every other one is the server's own. */
const UNREACHABLE = 'UNREACHABLE';
const PROTOCOL = 'PROTOCOL';

/** What WebSockets are closed with for good. Every other code means: come back. */
const FINAL_CLOSE_CODES: Readonly<Record<number, string>> = {
  1009: PROTOCOL,
  4400: PROTOCOL,
  4401: 'UNAUTHENTICATED',
  4403: 'FORBIDDEN',
  4406: PROTOCOL,
  4409: PROTOCOL,
  4429: PROTOCOL,
};
const PASSING_CLOSE_CODES: Readonly<Record<number, string>> = {
  1008: 'RATE_LIMITED',
  1013: 'UNAVAILABLE',
  4500: 'INTERNAL',
};

/** Answers of somebody who is there. */
const REFUSALS = ['RATE_LIMITED', 'INTERNAL', 'UNAUTHENTICATED'];
const PASSING = [UNREACHABLE, 'UNAVAILABLE', 'RATE_LIMITED', 'INTERNAL'];

export class RunledgerError extends Error {
  override readonly name = 'RunledgerError';

  constructor(
    /** The server's `extensions.code`, such as NOT_FOUND or UNAUTHENTICATED; UNREACHABLE; or PROTOCOL. */
    readonly code: string,
    message: string,
    readonly details: Readonly<Record<string, unknown>> | null = null,
    /** What the WebSocket was closed with. */
    readonly closeCode: number | null = null,
    options: ErrorOptions = {},
  ) {
    super(message, options);
  }

  /** The same subscription may go through later. */
  get isPassing(): boolean {
    return PASSING.includes(this.code) || this.details?.['subscribeAgain'] === true;
  }

  /** Somebody is there and says no: waiting for long is of no use. */
  get isAnswer(): boolean {
    return REFUSALS.includes(this.code);
  }

  /** The key is none, or none any more: with another one it may go through. */
  get isAboutKey(): boolean {
    return this.code === 'UNAUTHENTICATED';
  }
}

export function fromFailures(failures: Failures): RunledgerError {
  const [first] = failures;
  const { code = 'INTERNAL', details = null } = (first?.extensions ?? {}) as {
    code?: string;
    details?: Record<string, unknown> | null;
  };
  return new RunledgerError(code, first?.message ?? 'The subscription was refused.', details);
}

/** From whatever a WebSocket fails with: the server's errors, a close event, an error event, an error. */
export function fromFault(fault: unknown): RunledgerError {
  if (Array.isArray(fault)) return fromFailures(fault as unknown as Failures);
  const { code, reason, message } = (fault ?? {}) as { code?: unknown; reason?: string; message?: string };
  const closeCode = typeof code === 'number' ? code : null;
  const name = FINAL_CLOSE_CODES[closeCode ?? 0] ?? PASSING_CLOSE_CODES[closeCode ?? 0] ?? UNREACHABLE;
  const text = reason || message || 'The connection was lost';
  return new RunledgerError(name, text, null, closeCode, { cause: fault });
}

export function endedByServer(): RunledgerError {
  return new RunledgerError(UNREACHABLE, 'The server ended the subscription');
}
