// Runs of every kind that are watched by the client that is published, and what it was shown of them.
import { expect } from 'vitest';
import type { AnyRunState, RunledgerClient } from '../../src/client/index.js';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import type { RunKind } from '../../src/domain/run.js';
import type { Database } from '../../src/store/db.js';
import { appendRunLines } from '../../src/store/ledger.js';
import type { MachineRow } from '../support/fixtures.js';

export const KINDS = [
  ['RULE', ruleRunMachine, 'PREVIEW', 'cancel', 'CANCELLED'],
  ['PIPELINE', pipelineRunMachine, 'CREATED', 'cancel', 'CANCELLED'],
  ['OPS', opsRunMachine, 'running', 'succeed', 'SUCCESS'],
] as const;

/** Every state that one iterator was shown, by run. */
export class Watch {
  readonly states = new Map<string, AnyRunState[]>();
  private onShown: () => void = () => {};

  constructor(states: AsyncIterable<AnyRunState>) {
    void this.read(states);
  }

  last(id: string): AnyRunState | undefined {
    return this.states.get(id)?.at(-1);
  }

  async until(isShown: () => boolean): Promise<void> {
    while (!isShown()) await new Promise<void>((resolve) => (this.onShown = resolve));
  }

  private async read(states: AsyncIterable<AnyRunState>): Promise<void> {
    for await (const state of states) {
      this.states.set(state.id, [...(this.states.get(state.id) ?? []), state]);
      this.onShown();
    }
  }
}

export function watch(client: RunledgerClient, kind: RunKind, id: string): AsyncIterable<AnyRunState> {
  if (kind === 'RULE') return client.ruleRunProgress(id, { stay: true });
  if (kind === 'PIPELINE') return client.pipelineRunProgress(id, { stay: true });
  return client.opsRunProgress(id, { stay: true });
}

/** One line in the run's ledger, unlike the one before, which of an ops run would be taken for the same. */
export async function touch(db: Database, kind: RunKind, { id }: MachineRow, n: number): Promise<void> {
  const line = { type: 'log', level: 'INFO' as const, message: `touched ${n}`, payload: {} };
  if (kind === 'OPS') await db.query("SELECT ops.append_event($1, 'info', $2)", [`run-${id}`, line.message]);
  else await db.transaction('writer', (connection) => appendRunLines(connection, kind, id, [line]));
}

async function lastSeqOf(db: Database, { id }: MachineRow): Promise<number> {
  const [row] = await db.query<{ seq: number }>(
    'SELECT max(seq)::int AS seq FROM run_event WHERE run_id = $1',
    [id],
  );
  return row!.seq;
}

/** None is older than one before it or shown twice, and the last is the run as it ended. */
export async function expectEnd(
  db: Database,
  row: MachineRow,
  id: string,
  final: string,
  watch: Watch,
): Promise<void> {
  const lastSeq = await lastSeqOf(db, row);
  await watch.until(() => watch.last(id)?.lastSeq === lastSeq);
  const states = watch.states.get(id)!;
  expect(states.at(-1)!.status).toBe(final);
  const seqs = states.map((state) => state.lastSeq);
  expect(seqs).toEqual([...new Set(seqs)].sort((a, b) => a - b));
}
