// The one error type. Owns the codes that clients see: a refusal becomes a `userErrors` entry and leaves
// the data as it was; a fault becomes a GraphQL error with `extensions.code`. Anybody may throw it.

/** What a person can cause and mend. */
export const REFUSALS = [
  'NOT_FOUND',
  'ILLEGAL_TRANSITION',
  'INVALID_INPUT',
  'CONFLICT',
  'IDEMPOTENCY_MISMATCH',
  'GUARDRAIL',
  'CLAIM_LOST',
  'LIMIT_EXCEEDED',
] as const;

/** Everything else. */
export const FAULTS = [
  'UNAUTHENTICATED',
  'FORBIDDEN',
  'BAD_USER_INPUT',
  'RATE_LIMITED',
  'UNAVAILABLE',
  'INTERNAL',
] as const;

export type Refusal = (typeof REFUSALS)[number];
export type Fault = (typeof FAULTS)[number];
export type ErrorCode = Refusal | Fault;

export interface ErrorExtras {
  /** Path of the input field at fault, e.g. ['input', 'targets', '3', 'after']. */
  readonly field?: readonly string[];
  readonly details?: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
}

export class AppError extends Error {
  readonly code: ErrorCode;
  readonly field: readonly string[] | null;
  readonly details: Readonly<Record<string, unknown>> | null;

  constructor(code: ErrorCode, message: string, extras: ErrorExtras = {}) {
    super(message, { cause: extras.cause });
    this.name = 'AppError';
    this.code = code;
    this.field = extras.field ?? null;
    this.details = extras.details ?? null;
  }

  /** A refusal is an answer, not a failure of the server. */
  get isRefusal(): boolean {
    return (REFUSALS as readonly string[]).includes(this.code);
  }
}
