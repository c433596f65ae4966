// What an answer means, by the channel's settings. Pure: owns the way from status and body to an outcome for
// each item of a call, and from a body to prices.

import { fromDecimal, isUnitAmount } from '../../domain/money.js';
import { outcomes } from '../batch.js';
import type { Failure, FailureCode, ItemOutcome, Outcome, PriceChange } from '../channel.js';
import { invalid, MALFORMED, permanent, retryable, statusFailure } from '../failures.js';
import type { AnswerSettings, ReadSettings } from './config.js';
import type { Reading } from '../readings.js';
import type { Reply } from './http-client.js';
import { valueAt } from './json-pointer.js';

/** One failure for the whole call, or an outcome for each item. */
export type Verdict = { readonly whole: Failure } | { readonly results: readonly ItemOutcome[] };

const PASSING: ReadonlySet<FailureCode> = new Set(['RATE_LIMITED', 'TIMEOUT', 'UPSTREAM']);

export function judgeWrite(
  items: readonly PriceChange[],
  reply: Reply,
  settings: AnswerSettings | undefined,
): Verdict {
  if (!isSuccess(reply)) return { whole: refusedStatus(reply, settings) };
  if (!settings) return { results: outcomes(items, { kind: 'applied' }) };
  const json = parseJson(reply.text);
  if (json === undefined) return { whole: MALFORMED };
  if (settings.items === undefined) {
    const outcome = outcomeOf(json, settings);
    return outcome.kind === 'applied' ? { results: outcomes(items, outcome) } : { whole: outcome };
  }
  const answers = valueAt(json, settings.items);
  return Array.isArray(answers) ? judgeItems(items, answers, settings) : { whole: MALFORMED };
}

function judgeItems(
  items: readonly PriceChange[],
  answers: readonly unknown[],
  settings: AnswerSettings,
): Verdict {
  const { id } = settings;
  if (id === undefined) {
    // By their order alone: one missing would shift the rest.
    if (answers.length !== items.length) return { whole: MALFORMED };
    return {
      results: items.map(({ externalId }, i) => ({ externalId, outcome: outcomeOf(answers[i], settings) })),
    };
  }
  const byId = new Map(answers.map((answer) => [String(valueAt(answer, id)), answer]));
  const results = items.map(({ externalId }) => ({
    externalId,
    outcome: byId.has(externalId) ? outcomeOf(byId.get(externalId), settings) : UNMENTIONED,
  }));
  return { results };
}

const UNMENTIONED = retryable('UPSTREAM', 'The answer does not mention it');

function outcomeOf(json: unknown, settings: AnswerSettings): Outcome {
  if (isApplied(json, settings)) return { kind: 'applied' };
  const message = readMessage(json, settings) ?? 'The channel refused it';
  const retryAfterMs = readDelay(json, settings);
  const named = settings.code && settings.code.means[String(valueAt(json, settings.code.at))];
  const code = named ?? (retryAfterMs === null ? 'INVALID' : 'RATE_LIMITED');
  if (retryAfterMs !== null || PASSING.has(code)) return retryable(code, message, retryAfterMs);
  return permanent(code, message);
}

function isApplied(json: unknown, { ok, error }: AnswerSettings): boolean {
  if (ok) return (ok.is as readonly unknown[]).includes(valueAt(json, ok.at));
  // Without a place for success, it is where no error stands.
  const found = error === undefined ? undefined : valueAt(json, error);
  return found === undefined || found === null || found === '' || found === false;
}

function refusedStatus({ status, headers, text }: Reply, settings: AnswerSettings | undefined): Failure {
  const json = settings && parseJson(text);
  const reason = (settings && readMessage(json, settings)) ?? '';
  const failure = statusFailure(status, headers, reason);
  if (failure.kind !== 'retryable' || failure.retryAfterMs !== undefined || !settings) return failure;
  return retryable(failure.code, failure.message, readDelay(json, settings));
}

function readMessage(json: unknown, { error }: AnswerSettings): string | null {
  const found = error === undefined ? undefined : valueAt(json, error);
  if (found === undefined || found === null || found === '') return null;
  return typeof found === 'string' ? found : showJson(found);
}

/** Null when it is nested deeper than anything can show. */
function showJson(value: unknown): string | null {
  try {
    return JSON.stringify(value);
  } catch {
    return null;
  }
}

function readDelay(json: unknown, { retryAfter }: AnswerSettings): number | null {
  const seconds = retryAfter === undefined ? NaN : Number(valueAt(json, retryAfter) ?? NaN);
  return seconds >= 0 && seconds < 1e9 ? Math.ceil(seconds * 1000) : null;
}

export type PriceList = { readonly failure: Failure } | { readonly prices: readonly Reading[] };

/** The prices that an answer to a read for `ids` holds. */
export function readPrices(
  ids: readonly string[],
  reply: Reply,
  { items, id, amount: at, unit }: ReadSettings['answer'],
  currency: string,
): PriceList {
  // One item was asked for, and there is none.
  if (items === undefined && (reply.status === 404 || reply.status === 410)) return { prices: [] };
  if (!isSuccess(reply)) return { failure: statusFailure(reply.status, reply.headers) };
  const json = parseJson(reply.text);
  const list = items === undefined ? [json] : valueAt(json, items);
  if (json === undefined || !Array.isArray(list)) return { failure: MALFORMED };
  if (id === undefined && list.length !== ids.length) return { failure: MALFORMED };
  const prices: Reading[] = [];
  for (const [index, entry] of list.entries()) {
    const found = valueAt(entry, at);
    if (found === undefined || found === null) continue;
    const externalId = id === undefined ? ids[index]! : String(valueAt(entry, id));
    const amount = toUnitAmount(found, unit, currency);
    prices.push([externalId, amount ?? invalid(`The channel's price is no amount of ${currency}`)]);
  }
  return { prices };
}

function toUnitAmount(found: unknown, unit: 'minor' | 'decimal', currency: string): number | null {
  if (typeof found !== 'number' && typeof found !== 'string') return null;
  if (unit === 'decimal') return fromDecimal(String(found), currency);
  const amount = typeof found === 'number' || /^\d+$/.test(found) ? Number(found) : NaN;
  return isUnitAmount(amount) ? amount : null;
}

function isSuccess({ status }: Reply): boolean {
  return status >= 200 && status < 300;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
