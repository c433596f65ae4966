// From stored JSON to settings that a connector accepts. Owns how faults are told: every one of them, by
// its path, and never with the value, which may be a credential.

import { z } from 'zod';
import { AppError } from '../errors.js';

export interface SettingFault {
  readonly field: readonly string[];
  readonly message: string;
}

/** setTimeout fires at once for anything longer. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const LOOPBACK_HOSTS: ReadonlySet<string> = new Set(['127.0.0.1', 'localhost', '[::1]']);

export const TIMEOUT_MS = z.int().positive().max(LONGEST_TIMER_MS);

/** An address that calls with credentials may go to. */
export const GUARDED_URL = z
  .url({ abort: true })
  .refine(isGuarded, 'must be https: it carries credentials (http only on a loopback host)')
  .refine(isWithoutUser, 'must not hold a user name or password');

export function findFaults(error: z.ZodError | undefined, ...at: string[]): SettingFault[] {
  return (error?.issues ?? []).map(({ path, message }) => ({
    field: [...at, ...path.map(String)],
    message: inPlainWords(message),
  }));
}

/** Whoever wrote JSON has left something out: they gave nothing that was `undefined`. */
function inPlainWords(message: string): string {
  if (message.endsWith('received undefined')) return 'is missing';
  return message === 'Invalid input' ? 'is missing, or none of what it may be' : message;
}

/** One INVALID_INPUT for all of them. */
export function unsound(what: string, faults: readonly SettingFault[]): AppError {
  const list = faults.map(({ field, message }) => `${field.join('.') || 'config'}: ${message}`);
  return new AppError('INVALID_INPUT', `Not a ${what}: ${list.join('; ')}`, { details: { faults } });
}

/** Throws INVALID_INPUT that names every fault. */
export function parseSettings<T>(what: string, schema: z.ZodType<T>, json: unknown): T {
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  throw unsound(what, findFaults(parsed.error));
}

function isGuarded(address: string): boolean {
  const { protocol, hostname } = new URL(address);
  return protocol === 'https:' || (protocol === 'http:' && LOOPBACK_HOSTS.has(hostname));
}

function isWithoutUser(address: string): boolean {
  const { username, password } = new URL(address);
  return username === '' && password === '';
}
