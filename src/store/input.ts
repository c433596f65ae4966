// Refusals of input that could not be stored, or that a check of the domain has found faults in, each with
// the path that the client knows it by.

import { AppError } from '../errors.js';
import type { Fault } from '../domain/fault.js';
import { isStorable } from '../domain/text.js';

const MAX_FAULTS_SHOWN = 100;
const MAX_LABEL_LENGTH = 255;
/** As much as a supplier's record may have: a list shows a hundred of them in one answer. */
export const MAX_JSON_LENGTH = 256 * 1024;

/** The first fault is the message; all of them, up to what anybody reads, are in the details. */
export function refuseFaults(faults: readonly Fault[], ...prefix: readonly string[]): void {
  const first = faults[0];
  if (!first) return;
  const field = ({ path }: Fault) => ['input', ...prefix, ...path];
  throw new AppError('INVALID_INPUT', `${field(first).join('.')} ${first.message}`, {
    field: field(first),
    details: {
      faultCount: faults.length,
      faults: faults
        .slice(0, MAX_FAULTS_SHOWN)
        .map((fault) => ({ field: field(fault), message: fault.message })),
    },
  });
}

/** Refuses more than one call takes, before any of it is looked at. */
export function refuseTooMany(field: string, given: number, limit: number, instead: string): void {
  if (given <= limit) return;
  throw new AppError(
    'LIMIT_EXCEEDED',
    `${given} ${field} are more than the ${limit} that one call takes; ${instead}.`,
    { field: ['input', field], details: { limit, given } },
  );
}

export function isLabel(value: string): boolean {
  return value.trim() !== '' && value.length <= MAX_LABEL_LENGTH && isStorable(value);
}

export function checkLabel(field: string, value: string): void {
  if (isLabel(value)) return;
  throw new AppError('INVALID_INPUT', `${field} must have 1 to ${MAX_LABEL_LENGTH} characters.`, {
    field: ['input', field],
  });
}

export function requireObject(field: string, value: unknown): object {
  if (value === null || value === undefined) return {};
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw new AppError('INVALID_INPUT', `${field} must be a JSON object.`, { field: ['input', field] });
  }
  const { length: given } = JSON.stringify(value);
  if (given <= MAX_JSON_LENGTH) return value;
  throw new AppError(
    'LIMIT_EXCEEDED',
    `${field} has ${given} characters as JSON; at most ${MAX_JSON_LENGTH} are taken.`,
    { field: ['input', field], details: { limit: MAX_JSON_LENGTH, given } },
  );
}
