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
/** Of PostgreSQL, of the network, and Prisma's own names for what it takes the network's away from. */
const UNAVAILABLE = /^(08|53|57P|25P03|ECONN|EPIPE|ENOTFOUND|ETIMEDOUT|EAI_AGAIN|P1001|P1008|P1017)/;
/** A limit of the program: its stack, the size of an index entry or of a word list. */
const TOO_COMPLEX = /^54/;
/** A wrong password, a role or a database that there is not. */
const NOT_LET_IN = /^(28|3D000)/;
/** How the indexes end that keep apart the names of a tenant's channels, sources, sinks and so on. */
const TAKEN_NAME = '_tenant_id_name_key';
/** What pg says without a code. */
const UNAVAILABLE_WORDS =
  /Connection terminated|timeout exceeded when trying to connect|connection error and is not queryable|Query read timeout/;

/** Losing a race to another transaction; the same transaction again will go through. */
export function isRetryable(error: unknown): boolean {
  const fault = readFault(error);
  return fault !== null && RETRYABLE.has(fault.code);
}

/** What a statement is told whose transaction an earlier one has broken. */
export function isAftermath(error: unknown): boolean {
  return readFault(error)?.code === '25P02';
}

/** The transaction found that it must not be (`call_off_unless`). */
export function isCalledOff(error: unknown): boolean {
  return readFault(error)?.code === 'RL009';
}

export function isUnavailable(error: unknown): boolean {
  if (error instanceof AppError) return error.code === 'UNAVAILABLE';
  const fault = readFault(error);
  if (fault) return UNAVAILABLE.test(fault.code);
  return error instanceof Error && UNAVAILABLE_WORDS.test(error.message);
}

export function translateError(error: unknown): unknown {
  if (error instanceof AppError) return error;
  if (isUnavailable(error)) {
    return new AppError('UNAVAILABLE', 'The database cannot be reached; try again shortly.', {
      cause: error,
    });
  }
  const fault = readFault(error);
  if (fault && NOT_LET_IN.test(fault.code)) {
    return new AppError('UNAVAILABLE', `The database does not let us in: ${fault.message}.`, {
      cause: error,
    });
  }
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
      return duplicate(fault, cause);
    case '40001':
    case '40P01':
      return new AppError('CONFLICT', 'Another change came in between; try again.', { cause });
    // A NUL in text or JSON.
    case '22021':
    case '22P05':
      return unstorable(cause);
    // A time that the calendar, or the database, does not have.
    case '22007':
    case '22008':
    case '22009':
      return new AppError('INVALID_INPUT', 'A date or a time is not one that can be.', { cause });
    case '22P02':
      return isLoneSurrogate(fault) ? unstorable(cause) : null;
    default:
      return TOO_COMPLEX.test(fault.code) ? tooComplex(cause) : null;
  }
}

// The database's own words would show how it is stored, and for whom.
function duplicate({ message }: DatabaseFault, cause: unknown): AppError {
  if (message.includes(TAKEN_NAME)) {
    return new AppError('CONFLICT', 'The name is taken: another one has it already.', {
      cause,
      field: ['input', 'name'],
    });
  }
  return new AppError('CONFLICT', 'It exists already.', { cause });
}

function tooComplex(cause: unknown): AppError {
  return new AppError('LIMIT_EXCEEDED', 'It is too long, or nested too deeply, for the database.', { cause });
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
  if (typeof inner?.originalCode === 'string') {
    return {
      code: inner.originalCode,
      message: String(inner.originalMessage ?? ''),
      detail: undefined,
      constraint: undefined,
    };
  }
  const { code, message, detail, constraint } = error as Partial<DatabaseFault>;
  return typeof code === 'string' ? { code, message: message ?? '', detail, constraint } : null;
}
