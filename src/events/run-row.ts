// How a run of each kind is read for those who watch it: a kind adds its line to FINDERS and to RunRow.
// Called by run-states.

import type { RunKind } from '../domain/run.js';
import type { Viewer } from '../domain/viewer.js';
import type { Database } from '../store/db.js';
import { findOpsRuns, type OpsRunRow } from '../store/ops-run.js';
import { findPipelineRuns, type PipelineRunRow } from '../store/pipeline-run.js';
import { findRuleRuns, type RuleRunRow } from '../store/rule-run-row.js';

interface Shown<Kind extends RunKind, Row> {
  readonly kind: Kind;
  readonly run: Row;
}

/** A run as it was at one moment; the same object for everybody who is shown that moment. */
export type RunRow = Shown<'RULE', RuleRunRow> | Shown<'PIPELINE', PipelineRunRow> | Shown<'OPS', OpsRunRow>;

export type RunRowOf<Kind extends RunKind> = Extract<RunRow, { readonly kind: Kind }>;

/** What is needed of every run here. */
interface WatchedRun {
  readonly lastSeq: number;
  readonly projectId: string;
}

type FindRuns = (
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
) => Promise<ReadonlyMap<string, WatchedRun>>;

const FINDERS: Readonly<Record<RunKind, FindRuns>> = {
  RULE: findRuleRuns,
  PIPELINE: findPipelineRuns,
  OPS: findOpsRuns,
};

export async function findRunRows(
  db: Database,
  tenantId: string,
  kind: RunKind,
  ids: readonly string[],
): Promise<Map<string, RunRow>> {
  // Rows are read once for everybody in the tenant: nobody's rights may narrow them here.
  const viewer: Viewer = { tenantId, role: 'VIEWER', actor: 'feed', keyId: null };
  const runs = await FINDERS[kind](db, viewer, ids);
  return new Map([...runs].map(([id, run]) => [id, { kind, run } as RunRow]));
}
