// The alert policies as tenants have set them.

import {
  defaultSettings,
  policiesOf,
  POLICY_RULES,
  type AlertPolicyName,
  type PolicySettings,
} from '../domain/alert.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { translated, type Database } from './db.js';
import type { AlertPolicy } from './prisma/client.js';

export type PolicyRow = AlertPolicy;

export interface PolicyInput {
  readonly policy: AlertPolicyName;
  readonly enabled: boolean;
  /** Null is the policy's own figure, here and below. */
  readonly threshold: number | null;
  readonly windowSeconds: number | null;
  readonly cooldownSeconds: number | null;
}

export interface TenantPolicy extends PolicySettings {
  readonly policy: AlertPolicyName;
}

const DAY_S = 86_400;

export function readAllPolicies(db: Database): Promise<PolicyRow[]> {
  return translated(db.prisma.alertPolicy.findMany());
}

/** Every policy, as it holds for the viewer's tenant. */
export async function listPolicies(db: Database, { tenantId }: Viewer): Promise<TenantPolicy[]> {
  const rows = await translated(db.prisma.alertPolicy.findMany({ where: { tenantId } }));
  return policiesOf(tenantId).map((policy) => ({
    policy,
    ...mergeSettings(
      policy,
      rows.find((row) => row.policy === policy),
    ),
  }));
}

export async function savePolicy(
  db: Database,
  { tenantId }: Viewer,
  input: PolicyInput,
): Promise<TenantPolicy> {
  const isShare = POLICY_RULES[input.policy].measure === 'success_rate';
  checkFigure('threshold', input.threshold, 0, isShare ? 100 : 1_000_000_000);
  checkFigure('windowSeconds', input.windowSeconds, 60, 30 * DAY_S);
  checkFigure('cooldownSeconds', input.cooldownSeconds, 0, DAY_S);
  if (input.windowSeconds !== null && POLICY_RULES[input.policy].windowSeconds === null) {
    throw new AppError('INVALID_INPUT', `${input.policy} is about what is so now: it has no window.`, {
      field: ['input', 'windowSeconds'],
    });
  }
  if (!policiesOf(tenantId).includes(input.policy)) {
    throw new AppError('INVALID_INPUT', `${input.policy} is for whoever operates the server.`, {
      field: ['input', 'policy'],
    });
  }
  const { policy, ...figures } = input;
  const row = await translated(
    db.prisma.alertPolicy.upsert({
      where: { tenantId_policy: { tenantId, policy } },
      create: { tenantId, policy, ...figures },
      update: { ...figures, updatedAt: new Date() },
    }),
  );
  return { policy, ...mergeSettings(policy, row) };
}

export function mergeSettings(policy: AlertPolicyName, row: PolicyRow | undefined): PolicySettings {
  const own = defaultSettings(policy);
  if (!row) return own;
  return {
    enabled: row.enabled,
    threshold: row.threshold ?? own.threshold,
    windowSeconds: row.windowSeconds ?? own.windowSeconds,
    cooldownSeconds: row.cooldownSeconds ?? own.cooldownSeconds,
  };
}

function checkFigure(field: string, value: number | null, least: number, most: number): void {
  if (value === null || (value >= least && value <= most)) return;
  throw new AppError('INVALID_INPUT', `${field} must be from ${least} to ${most}.`, {
    field: ['input', field],
  });
}
