// Idempotency keys. The first use of a key does the work and is remembered in the same transaction; the
// same request again finds the run that came of it, and another request under that key is refused.

import { createHash } from 'node:crypto';
import { AppError } from '../errors.js';
import { isStorable } from '../domain/text.js';
import type { Connection, Database } from './db.js';

export interface KeyedRequest {
  readonly tenantId: string;
  /** The mutation's name: the same key may serve different mutations. */
  readonly operation: string;
  readonly key: string | null;
  /** Everything that makes the request what it is, but for the key. */
  readonly request: unknown;
}

const MAX_KEY_LENGTH = 255;

/**
 * Reserves the key for `runId`. Answers null when the caller is to do the work, or the run that an earlier
 * request under this key made. A concurrent first use is waited for.
 */
export async function reserveKey(
  connection: Connection,
  { tenantId, operation, key, request }: KeyedRequest,
  runId: string,
): Promise<string | null> {
  if (key === null) return null;
  checkKey(key);
  const hash = createHash('sha256').update(canonicalJson(request)).digest('hex');
  const inserted = await connection.query(
    `INSERT INTO idempotency_key (tenant_id, operation, key, request_hash, run_id) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT DO NOTHING`,
    [tenantId, operation, key, hash, runId],
  );
  if (inserted.rowCount === 1) return null;
  const { rows } = await connection.query<{ request_hash: string; run_id: string }>(
    'SELECT request_hash, run_id FROM idempotency_key WHERE tenant_id = $1 AND operation = $2 AND key = $3',
    [tenantId, operation, key],
  );
  const earlier = rows[0]!;
  if (earlier.request_hash === hash) return earlier.run_id;
  throw new AppError('IDEMPOTENCY_MISMATCH', 'This idempotencyKey was used with another input before.', {
    field: ['input', 'idempotencyKey'],
    details: { runId: earlier.run_id },
  });
}

/** The run that a request under this key has made; null when there is none yet. */
export async function findKeyedRun(
  db: Database,
  { tenantId, operation, key }: Pick<KeyedRequest, 'tenantId' | 'operation' | 'key'>,
): Promise<string | null> {
  const [row] = await db.query<{ runId: string }>(
    `SELECT run_id AS "runId" FROM idempotency_key WHERE tenant_id = $1 AND operation = $2 AND key = $3`,
    [tenantId, operation, key],
  );
  return row?.runId ?? null;
}

function checkKey(key: string): void {
  if (key.trim() !== '' && key.length <= MAX_KEY_LENGTH && isStorable(key)) return;
  throw new AppError('INVALID_INPUT', `idempotencyKey must have 1 to ${MAX_KEY_LENGTH} characters.`, {
    field: ['input', 'idempotencyKey'],
  });
}

/** JSON with sorted keys: the order in which a client wrote an object's fields does not make it another. */
function canonicalJson(value: unknown): string {
  // A time has no fields of its own: without its text, any two would be the same.
  if (typeof value !== 'object' || value === null || value instanceof Date)
    return JSON.stringify(value) ?? 'null';
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  const fields = Object.entries(value)
    .filter(([, field]) => field !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, field]) => `${JSON.stringify(name)}:${canonicalJson(field)}`);
  return `{${fields.join(',')}}`;
}
