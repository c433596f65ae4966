// Pricing rules. A save is a version: the row holds the newest, and a run keeps the one it was made from.

import { AppError } from '../errors.js';
import type { RuleDefinition } from '../domain/pricing-rule.js';
import { parseRule } from '../domain/pricing-rule-parser.js';
import type { Viewer } from '../domain/viewer.js';
import { translated, type Connection, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import { checkLabel, refuseFaults } from './input.js';
import type { Prisma, PricingRule } from './prisma/client.js';
import { notFound } from './transition.js';

export type PricingRuleRow = PricingRule;

export interface PricingRuleInput {
  /** Null: a new rule. */
  readonly id: string | null;
  readonly projectId: string;
  readonly name: string;
  readonly enabled: boolean;
  readonly priority: number;
  readonly definition: unknown;
  /** When given, the save is refused unless this is the newest version. */
  readonly expectedVersion: number | null;
}

/** Highest priority first; between equals, an order that stays. */
const RULE_ORDER: Prisma.PricingRuleOrderByWithRelationInput[] = [
  { priority: 'desc' },
  { name: 'asc' },
  { id: 'asc' },
];

/** The definition is evaluated once per catalog item: it may be long, but not without end. */
const MAX_DEFINITION_LENGTH = 64 * 1024;

export async function savePricingRule(
  db: Database,
  viewer: Viewer,
  input: PricingRuleInput,
): Promise<PricingRuleRow> {
  checkLabel('projectId', input.projectId);
  checkLabel('name', input.name);
  requireDefinition(input.definition, 'definition');
  const id = input.id ?? newId();
  await db.transaction(viewer.actor, async (connection) => {
    if (input.id === null) return insertRule(connection, viewer, id, input);
    await lockVersion(connection, viewer, id, input.expectedVersion);
    return updateRule(connection, id, input);
  });
  return (await findPricingRules(db, viewer, [id])).get(id)!;
}

async function insertRule(
  connection: Connection,
  viewer: Viewer,
  id: string,
  { projectId, name, enabled, priority, definition }: PricingRuleInput,
): Promise<void> {
  await connection.query(
    `INSERT INTO pricing_rule (id, tenant_id, project_id, name, enabled, priority, definition)
     VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    [id, viewer.tenantId, projectId, name, enabled, priority, JSON.stringify(definition)],
  );
}

async function updateRule(
  connection: Connection,
  id: string,
  { projectId, name, enabled, priority, definition }: PricingRuleInput,
): Promise<void> {
  await connection.query(
    `UPDATE pricing_rule
     SET project_id = $2, name = $3, enabled = $4, priority = $5, definition = $6,
       version = version + 1, updated_at = clock_timestamp()
     WHERE id = $1`,
    [id, projectId, name, enabled, priority, JSON.stringify(definition)],
  );
}

async function lockVersion(
  connection: Connection,
  viewer: Viewer,
  id: string,
  expected: number | null,
): Promise<void> {
  const { rows } = await connection.query<{ version: number }>(
    'SELECT version FROM pricing_rule WHERE id = $1 AND tenant_id = $2 FOR NO KEY UPDATE',
    [isUuid(id) ? id : null, viewer.tenantId],
  );
  const found = rows[0];
  if (!found) throw notFound('Pricing rule', id, ['input', 'id']);
  if (expected === null || expected === found.version) return;
  throw new AppError('CONFLICT', `The rule is at version ${found.version} by now, not ${expected}.`, {
    field: ['input', 'expectedVersion'],
    details: { version: found.version },
  });
}

/** A definition as a client wrote it, typed; or the refusal of it. */
export function requireDefinition(definition: unknown, ...field: readonly string[]): RuleDefinition {
  if (JSON.stringify(definition ?? null).length > MAX_DEFINITION_LENGTH) {
    throw new AppError(
      'LIMIT_EXCEEDED',
      `The definition is longer than ${MAX_DEFINITION_LENGTH} characters.`,
      {
        field: ['input', ...field],
        details: { limit: MAX_DEFINITION_LENGTH },
      },
    );
  }
  const { rule, faults } = parseRule(definition);
  refuseFaults(faults, ...field);
  return rule!;
}

export function listPricingRules(
  db: Database,
  viewer: Viewer,
  projectId: string | null,
): Promise<PricingRuleRow[]> {
  const where: Prisma.PricingRuleWhereInput = { tenantId: viewer.tenantId };
  if (projectId !== null) where.projectId = projectId;
  return translated(
    db.prisma.pricingRule.findMany({
      where,
      orderBy: RULE_ORDER,
    }),
  );
}

export async function findPricingRules(
  db: Database,
  viewer: Viewer,
  ids: readonly string[],
): Promise<Map<string, PricingRuleRow>> {
  const rows = await translated(
    db.prisma.pricingRule.findMany({ where: { id: { in: ids.filter(isUuid) }, tenantId: viewer.tenantId } }),
  );
  return new Map(rows.map((row) => [row.id, row]));
}

/** The enabled rules of a project, typed, in the order in which they are asked. For the runner. */
export async function listEnabledRules(
  db: Database,
  { tenantId, projectId }: { readonly tenantId: string; readonly projectId: string },
): Promise<RuleDefinition[]> {
  const rows = await translated(
    db.prisma.pricingRule.findMany({
      where: { tenantId, projectId, enabled: true },
      orderBy: RULE_ORDER,
    }),
  );
  return rows.map(({ definition }) => requireDefinition(definition, 'definition'));
}
