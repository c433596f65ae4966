// The trace that a run's work belongs to: that of the last request which asked something of the run. Whoever
// takes the work up, in whatever process, goes on with it.

import { currentSpan, currentTraceparent } from '../tracing.js';
import type { Connection, Database } from './db.js';
import { RUN_KEYS } from './ledger.js';

export type TracedRunKind = keyof typeof RUN_KEYS;

export interface TracedRun {
  readonly kind: TracedRunKind;
  readonly runId: string;
  readonly correlationId: string;
}

/** Keeps the trace of the request that is being served; costs nothing while there is none. */
export async function rememberTrace(
  connection: Connection,
  { kind, runId, correlationId }: TracedRun,
): Promise<void> {
  const traceparent = currentTraceparent();
  if (traceparent === null) return;
  currentSpan()?.note({ 'runledger.run_id': runId, 'runledger.correlation_id': correlationId });
  const [table, key] = RUN_KEYS[kind];
  await connection.query(`UPDATE ${table} SET trace_parent = $2 WHERE ${key} = $1`, [runId, traceparent]);
}

export async function readTrace(
  db: Database,
  { kind, runId }: Pick<TracedRun, 'kind' | 'runId'>,
): Promise<string | null> {
  const [table, key] = RUN_KEYS[kind];
  const [row] = await db.query<{ traceparent: string | null }>(
    `SELECT trace_parent AS traceparent FROM ${table} WHERE ${key} = $1`,
    [runId],
  );
  return row?.traceparent ?? null;
}
