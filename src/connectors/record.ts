// What a record must be to be kept, whatever its source: an id that an index can hold, and JSON that
// PostgreSQL can store. Pure; every source passes its records through here, so that one bad record is set
// aside alone and never takes its page with it.

import { createHash } from 'node:crypto';
import { MAX_EXTERNAL_ID_LENGTH } from '../domain/external-id.js';
import { isObject } from '../domain/json.js';
import { storableText } from '../domain/text.js';
import type { FeedRecord } from './source.js';

const MAX_JSON_LENGTH = 256 * 1024;
const MAX_DEPTH = 64;
/** Enough of an unusable record to recognise it by. */
const MAX_KEPT_LENGTH = 2_000;

export function readRecord(payload: unknown, id: unknown): FeedRecord {
  // Before anything else: JSON.stringify throws at a few thousand levels.
  if (depthOf(payload) > MAX_DEPTH) {
    const reason = `the record is nested deeper than ${MAX_DEPTH} levels`;
    return setAside(outlineOf(payload), reason, isObject(payload) && isId(id) ? String(id) : null);
  }
  const json = JSON.stringify(payload) ?? 'null';
  const reason = faultOf(payload, json, id);
  if (reason === null) return { externalId: String(id), json };
  return setAside(json, reason, isObject(payload) && isId(id) ? String(id) : null);
}

/** What is no record, as text; cut short, and without what cannot be stored. */
export function setAside(text: string, reason: string, externalId: string | null = null): FeedRecord {
  return { externalId, json: JSON.stringify({ text: storableText(text, MAX_KEPT_LENGTH) }), reason };
}

/** Of what a page has: the same for the same records in the same order. */
export function fingerprintOf(records: readonly FeedRecord[]): string {
  const hash = createHash('sha256');
  for (const { json } of records) hash.update(json).update('\n');
  return hash.digest('base64url');
}

function faultOf(payload: unknown, json: string, id: unknown): string | null {
  if (!isObject(payload)) return 'the record is no object';
  if (!isId(id)) return 'the record has no usable id';
  if (json.length > MAX_JSON_LENGTH) return `the record has more than ${MAX_JSON_LENGTH} characters`;
  if (!isStorable(json)) return 'the record has a character that cannot be stored';
  return null;
}

function isId(id: unknown): boolean {
  if (typeof id === 'number') return Number.isSafeInteger(id);
  return (
    typeof id === 'string' &&
    id.trim() !== '' &&
    id.length <= MAX_EXTERNAL_ID_LENGTH &&
    !/[\p{Cc}\p{Cs}]/u.test(id)
  );
}

// JSON.stringify writes a NUL and a lone surrogate as escapes, and a backslash of the text as two.
function isStorable(json: string): boolean {
  return !json.includes('\\u') || !/(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/.test(json);
}

/** The first level as JSON, the rest left out. */
function outlineOf(payload: unknown): string {
  return JSON.stringify(payload, (_, value: unknown) =>
    value !== payload && typeof value === 'object' && value !== null ? '…' : value,
  );
}

function depthOf(value: unknown): number {
  let depth = 0;
  let level: unknown[] = [value];
  while (level.length > 0 && depth <= MAX_DEPTH) {
    depth += 1;
    level = level.flatMap((each) => (typeof each === 'object' && each !== null ? Object.values(each) : []));
  }
  return depth;
}
