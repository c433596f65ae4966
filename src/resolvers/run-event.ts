// A line of the ledger as the API shows it.

import { publicRunId } from '../domain/run.js';
import { RunEvent } from '../schema/run.js';
import { shape } from '../schema/shape.js';
import type { RunEventRow } from '../store/ledger.js';

export function showRunEvent(row: RunEventRow): RunEvent {
  const runId = publicRunId(row.runKind, row.runId);
  return shape(RunEvent, { ...row, runId, id: `${runId}:${row.seq}` });
}
