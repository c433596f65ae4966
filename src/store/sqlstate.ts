// The one place that knows SQLSTATEs. Turns what PostgreSQL, its driver or Prisma throws into an AppError;
// what it does not know passes through unchanged and is an INTERNAL fault to whoever shows it.

import { AppError, type Refusal } from '../errors.js';

interface DatabaseFault {
  readonly code: string;
  readonly message: string;
  readonly detail: string | undefined;
  readonly constraint: string | undefined;
}

const RETRYABLE = new Set(['40001', '40P01']);
const UNAVAILABLE = /^(08|53|57P|25P03|ECONN|EPIPE|ENOTFOUND|ETIMEDOUT|EAI_AGAIN)/;

/** Losing a race to another transaction; the same transaction again will go through. */
export function isRetryable(error: unknown): boolean {
  const fault = readFault(error);
  return fault !== null && RETRYABLE.has(fault.code);
}

export function isUnavailable(error: unknown): boolean {
  if (error instanceof AppError) return error.code === 'UNAVAILABLE';
  const fault = readFault(error);
  if (fault) return UNAVAILABLE.test(fault.code);
  return (
    error instanceof Error &&
    /Connection terminated|timeout exceeded when trying to connect/.test(error.message)
  );
}

export function translateError(error: unknown): unknown {
  if (error instanceof AppError) return error;
  if (isUnavailable(error)) {
    return new AppError('UNAVAILABLE', 'The database cannot be reached; try again shortly.', {
      cause: error,
    });
  }
  const fault = readFault(error);
  return fault ? (translateFault(fault, error) ?? error) : error;
}

function translateFault(fault: DatabaseFault, cause: unknown): AppError | null {
  switch (fault.code) {
    case 'RL001':
      return new AppError('ILLEGAL_TRANSITION', fault.message, { cause, details: parseDetail(fault.detail) });
    case 'RL002':
      return new AppError('ILLEGAL_TRANSITION', fault.message, { cause });
    case 'RL003':
      return new AppError('CONFLICT', fault.message, { cause });
    case 'RL004':
      return describedRefusal('CLAIM_LOST', fault, cause);
    case 'RL005':
      return describedRefusal('INVALID_INPUT', fault, cause);
    case 'RL006':
      return describedRefusal('NOT_FOUND', fault, cause);
    case 'RL007':
      return describedRefusal('IDEMPOTENCY_MISMATCH', fault, cause);
    case 'RL008':
      return describedRefusal('LIMIT_EXCEEDED', fault, cause);
    case '23505':
      return new AppError('CONFLICT', fault.detail ?? 'It exists already.', { cause });
    case '40001':
    case '40P01':
      return new AppError('CONFLICT', 'Another change came in between; try again.', { cause });
    // A NUL in text or JSON.
    case '22021':
    case '22P05':
      return unstorable(cause);
    case '22P02':
      return isLoneSurrogate(fault) ? unstorable(cause) : null;
    default:
      return null;
  }
}

// In JSON the half of a pair is a syntax error to PostgreSQL; any other syntax error is a fault of ours.
function isLoneSurrogate({ detail }: DatabaseFault): boolean {
  return detail?.includes('surrogate') ?? false;
}

function unstorable(cause: unknown): AppError {
  return new AppError('INVALID_INPUT', 'A text contains a character that cannot be stored.', { cause });
}

/** A refusal whose DETAIL names the input field at fault, beside facts for a program. */
function describedRefusal(code: Refusal, fault: DatabaseFault, cause: unknown): AppError {
  const { field, ...details } = parseDetail(fault.detail);
  return new AppError(code, fault.message, {
    cause,
    ...(typeof field === 'string' ? { field: ['input', field] } : {}),
    ...(Object.keys(details).length > 0 ? { details } : {}),
  });
}

function parseDetail(detail: string | undefined): Record<string, unknown> {
  return detail ? (JSON.parse(detail) as Record<string, unknown>) : {};
}

// Prisma wraps the driver's error; the driver's own has the code at the top.
function readFault(error: unknown): DatabaseFault | null {
  if (typeof error !== 'object' || error === null) return null;
  const wrapped = (error as { meta?: { driverAdapterError?: { cause?: Record<string, unknown> } } }).meta;
  const inner = wrapped?.driverAdapterError?.cause;
  if (inner) {
    return {
      code: String(inner.originalCode ?? ''),
      message: String(inner.originalMessage ?? ''),
      detail: undefined,
      constraint: undefined,
    };
  }
  const { code, message, detail, constraint } = error as Partial<DatabaseFault>;
  return typeof code === 'string' ? { code, message: message ?? '', detail, constraint } : null;
}
