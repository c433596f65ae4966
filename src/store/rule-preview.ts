// The preview of a pricing rule: the targets that it makes of the catalog. The catalog is read through a
// cursor, a batch at a time, so that memory does not grow with it.

import { AppError } from '../errors.js';
import type { RuleDefinition } from '../domain/pricing-rule.js';
import type { RuledItem } from '../domain/pricing-rule-match.js';
import { RuleEvaluation } from '../domain/rule-preview.js';
import type { Viewer } from '../domain/viewer.js';
import type { Connection } from './db.js';
import { isUuid } from './id.js';
import { requireDefinition } from './pricing-rule.js';
import { insertTargets } from './rule-target.js';
import { summarizeTargets } from './target-summary.js';
import { notFound } from './transition.js';

/** A rule as a run keeps it: what it was when the run was made. */
export interface RuleSnapshot {
  readonly id: string;
  readonly name: string;
  readonly projectId: string;
  readonly enabled: boolean;
  readonly priority: number;
  readonly version: number;
  readonly definition: unknown;
}

const ITEMS_PER_BATCH = 2_000;

export async function requireUsableRule(
  connection: Connection,
  viewer: Viewer,
  ruleId: string,
): Promise<RuleSnapshot> {
  const { rows } = await connection.query<RuleSnapshot>(
    `SELECT id, name, project_id AS "projectId", enabled, priority, version, definition
     FROM pricing_rule WHERE id = $1 AND tenant_id = $2`,
    [isUuid(ruleId) ? ruleId : null, viewer.tenantId],
  );
  const field = ['input', 'ruleId'];
  const rule = rows[0];
  if (!rule) throw notFound('Pricing rule', ruleId, field);
  if (rule.enabled) return rule;
  throw new AppError('INVALID_INPUT', `The rule ${rule.name} is disabled: enable it to make a run from it.`, {
    field,
  });
}

/**
 * Evaluates the rule over the catalog, makes a target of every item whose price changes, and writes the
 * preview to the run. The transaction must see one snapshot: the preview's hash is taken after the last batch.
 */
export async function addTargetsByRule(
  connection: Connection,
  run: { readonly id: string; readonly tenantId: string },
  rule: RuleSnapshot,
): Promise<void> {
  const definition = requireDefinition(rule.definition, 'ruleId');
  const evaluation = new RuleEvaluation(definition);
  await openCatalog(connection, run.tenantId, definition);
  for (;;) {
    const { rows } = await connection.query<RuledItem>(`FETCH ${ITEMS_PER_BATCH} FROM catalog`);
    if (rows.length === 0) break;
    const targets = rows.map((item) => evaluation.evaluate(item)).filter((target) => target !== null);
    const [currency, ...others] = evaluation.currencies.keys();
    // Of several currencies only the counts are of interest any more, for the refusal.
    if (others.length > 0) continue;
    await insertTargets(connection, run, { targets, currency: currency ?? null, faults: [] });
  }
  await connection.query('CLOSE catalog');
  const currency = requireOneCurrency(evaluation.currencies);
  const { summary } = (await summarizeTargets(connection, [run.id], { withItems: true })).get(run.id)!;
  await connection.query('UPDATE rule_run SET currency = $2, preview = $3 WHERE id = $1', [
    run.id,
    currency,
    JSON.stringify({ ...summary, ...evaluation.counts }),
  ]);
}

function requireOneCurrency(currencies: ReadonlyMap<string, number>): string | null {
  const found = [...currencies].sort(([a], [b]) => (a < b ? -1 : 1));
  if (found.length <= 1) return found[0]?.[0] ?? null;
  const list = found.map(([currency, count]) => `${currency} (${count})`).join(', ');
  throw new AppError(
    'INVALID_INPUT',
    `The rule changes prices in ${list}; a run has one currency. Name one in the rule, or match on it.`,
    { field: ['input', 'ruleId'], details: { currencies: Object.fromEntries(found) } },
  );
}

async function openCatalog(
  connection: Connection,
  tenantId: string,
  { currency }: RuleDefinition,
): Promise<void> {
  await connection.query(
    `DECLARE catalog NO SCROLL CURSOR FOR
     SELECT external_id AS "externalId", title, unit_amount::float8 AS "unitAmount",
       cost_amount::float8 AS "costAmount", currency, attributes
     FROM catalog_item
     WHERE tenant_id = $1 AND deleted_at IS NULL AND ($2::text IS NULL OR currency = $2)
     ORDER BY external_id`,
    [tenantId, currency],
  );
}
