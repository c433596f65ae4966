// What a run's targets come to: how many, how far prices move, and the hash that stands for exactly them. One
// statement computes it wherever it is needed, so that the hash shown is the hash compared. A run made from a
// rule keeps its summary from the start, any other from the moment it is queued; until then it is computed.

import type { EvaluationCounts, TargetSummary } from '../domain/rule-preview.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection, Database } from './db.js';
import { isUuid } from './id.js';

/** What a run shows of its preview; the counts of the evaluation only when a rule made it. */
export type RulePreviewRow = TargetSummary & Partial<EvaluationCounts>;

export interface SummarizedTargets {
  readonly summary: TargetSummary;
  /** Targets that change by more than was asked about. */
  readonly overChange: number;
  /** Targets whose price rises from zero: no percentage says by how much. */
  readonly fromZero: number;
}

const LARGEST_SHOWN = 5;

const largest = (condition: string, order: string) => `(
  SELECT coalesce(jsonb_agg(top), '[]') FROM (
    SELECT external_id AS "externalId", before_amount AS "beforeAmount", after_amount AS "afterAmount",
      round(percent::numeric, 4)::float8 AS "changePercent"
    FROM change WHERE ${condition} ORDER BY percent ${order}, id LIMIT ${LARGEST_SHOWN}) top)`;

const shown = (percent: string) => `round((${percent})::numeric, 4)::float8`;

// The hash covers the run, each target in order, and with items the version of each target's catalog item:
// PostgreSQL gives a row another xmin whenever it changes, whoever changes it. Lengths before texts, so that
// no two lists of targets read the same.
const summarySql = (withItems: boolean) => `
  SELECT run.id AS "runId", summary.* FROM rule_run run, LATERAL (
    WITH change AS MATERIALIZED (
      SELECT target.id, target.external_id, target.before_amount, target.after_amount,
        CASE WHEN before_amount > 0 THEN (after_amount - before_amount) * 100::float8 / before_amount END AS percent,
        ${withItems ? "coalesce(item.xmin::text, 'none')" : "''"} AS version
      FROM rule_target target
      ${
        withItems
          ? `LEFT JOIN catalog_item item ON item.tenant_id = target.tenant_id
               AND item.external_id = target.external_id AND item.deleted_at IS NULL`
          : ''
      }
      WHERE target.run_id = run.id
    )
    SELECT count(*)::integer AS count, ${shown('min(percent)')} AS "minChangePercent",
      ${shown('percentile_cont(0.5) WITHIN GROUP (ORDER BY percent)')} AS "medianChangePercent",
      ${shown('max(percent)')} AS "maxChangePercent",
      (count(*) FILTER (
        WHERE abs(after_amount - before_amount) * 100::numeric > before_amount * $2::numeric AND before_amount > 0
      ))::integer AS "overChange",
      (count(*) FILTER (WHERE before_amount = 0 AND after_amount > 0))::integer AS "fromZero",
      encode(sha256(convert_to(run.id || coalesce(string_agg(
        concat_ws(' ', '', before_amount, after_amount, version, length(external_id), external_id), '' ORDER BY id
      ), ''), 'UTF8')), 'hex') AS hash,
      ${largest('percent > 0', 'DESC')} AS "largestIncreases",
      ${largest('percent < 0', 'ASC')} AS "largestDecreases"
    FROM change
  ) summary
  WHERE run.id = ANY($1::uuid[])`;

export async function summarizeTargets(
  connection: Connection,
  runIds: readonly string[],
  options: { readonly withItems: boolean; readonly maxChangePercent?: number },
): Promise<Map<string, SummarizedTargets>> {
  const { rows } = await connection.query<
    TargetSummary & { runId: string; overChange: number; fromZero: number }
  >(summarySql(options.withItems), [runIds, options.maxChangePercent ?? null]);
  return new Map(
    rows.map(({ runId, overChange, fromZero, ...summary }) => [runId, { summary, overChange, fromZero }]),
  );
}

/** The preview of each run: as it was kept, or else as the targets are now. */
export function findRulePreviews(
  db: Database,
  viewer: Viewer,
  runIds: readonly string[],
): Promise<Map<string, RulePreviewRow>> {
  return db.transaction(viewer.actor, async (connection) => {
    const { rows } = await connection.query<{ id: string; preview: RulePreviewRow | null; count: number }>(
      'SELECT id, preview, total_count AS count FROM rule_run WHERE id = ANY($1::uuid[]) AND tenant_id = $2',
      [runIds.filter(isUuid), viewer.tenantId],
    );
    const open = rows.filter(({ preview }) => preview === null).map(({ id }) => id);
    const computed =
      open.length > 0 ? await summarizeTargets(connection, open, { withItems: false }) : new Map();
    // The run's own count: of one that was pruned, the targets are gone.
    return new Map(
      rows.map(({ id, preview, count }) => [id, preview ?? { ...computed.get(id)!.summary, count }]),
    );
  });
}
