// Alerts: evaluating the policies of every tenant, and reading what came of it. One that fires is one row until
// it resolves, however many evaluate at once, and whoever is to be told is written down with it.

import {
  ALERT_POLICIES,
  describeAlert,
  isBreached,
  nextAlertEvent,
  POLICY_RULES,
  type AlertPolicyName,
  type AlertSeverity,
  type AlertState,
  type PolicySettings,
} from '../domain/alert.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { measure, type Measured } from './alert-measure.js';
import { mergeSettings, readAllPolicies, type PolicyRow } from './alert-policy.js';
import { translated, type Database } from './db.js';
import { isUuid, newId } from './id.js';
import { decodeCursor, encodeCursor, toPage, type Page } from './page.js';
import type { Alert, Prisma } from './prisma/client.js';

export type AlertRow = Omit<Alert, 'policy' | 'severity'> & {
  readonly policy: AlertPolicyName;
  readonly severity: AlertSeverity;
};

export interface AlertChange {
  readonly event: 'fire' | 'resolve';
  readonly alert: AlertRow;
}

interface StateRow extends AlertState {
  /** Null when it does not fire. */
  readonly alertId: string | null;
  readonly tenantId: string;
  readonly subject: string;
}

/** Fires and resolves what is due, for every tenant; answers what it did. */
export async function evaluateAlerts(db: Database): Promise<AlertChange[]> {
  const policies = await readAllPolicies(db);
  const changes: AlertChange[] = [];
  for (const policy of ALERT_POLICIES) changes.push(...(await evaluatePolicy(db, policy, policies)));
  return changes;
}

async function evaluatePolicy(
  db: Database,
  policy: AlertPolicyName,
  policies: readonly PolicyRow[],
): Promise<AlertChange[]> {
  const own = new Map(policies.filter((row) => row.policy === policy).map((row) => [row.tenantId, row]));
  const settingsOf = (tenantId: string) => mergeSettings(policy, own.get(tenantId));
  const windows = [...own.values()].map(({ tenantId }) => settingsOf(tenantId).windowSeconds ?? 0);
  const measured = await measure(db, policy, Math.max(POLICY_RULES[policy].windowSeconds ?? 0, ...windows));
  const states = new Map((await readStates(db, policy)).map((state) => [keyOf(state), state]));
  const changes: AlertChange[] = [];
  for (const each of measured) {
    const settings = settingsOf(each.tenantId);
    const state = states.get(keyOf(each)) ?? { isFiring: false, resolvedSecondsAgo: null, alertId: null };
    states.delete(keyOf(each));
    const breached = isBreached(policy, settings, each.value);
    const event = nextAlertEvent(breached, state, settings.cooldownSeconds);
    if (event === 'fire') changes.push(...(await fire(db, policy, settings, each)));
    if (event === 'resolve') changes.push(...(await resolve(db, state.alertId!)));
  }
  // Whatever fires and is not measured any more is over.
  for (const { alertId } of states.values()) if (alertId) changes.push(...(await resolve(db, alertId)));
  return changes;
}

function keyOf({ tenantId, subject }: { readonly tenantId: string; readonly subject: string }): string {
  return `${tenantId} ${subject}`;
}

/** What fires, and what resolved within a day: no cool-down is longer. */
function readStates(db: Database, policy: AlertPolicyName): Promise<StateRow[]> {
  return db.query<StateRow>(
    `SELECT DISTINCT ON (tenant_id, subject) tenant_id AS "tenantId", subject, resolved_at IS NULL AS "isFiring",
       CASE WHEN resolved_at IS NULL THEN id END AS "alertId",
       extract(epoch FROM clock_timestamp() - resolved_at)::float8 AS "resolvedSecondsAgo"
     FROM alert
     WHERE policy = $1 AND (resolved_at IS NULL OR resolved_at > clock_timestamp() - interval '1 day')
     ORDER BY tenant_id, subject, resolved_at DESC NULLS FIRST`,
    [policy],
  );
}

const COLUMNS = `id, tenant_id AS "tenantId", policy, subject, severity, message, value, threshold,
  fired_at AS "firedAt", resolved_at AS "resolvedAt"`;

async function fire(
  db: Database,
  policy: AlertPolicyName,
  settings: PolicySettings,
  { tenantId, subject, what, value }: Measured,
): Promise<AlertChange[]> {
  const message = describeAlert(policy, value, settings, what);
  const rows = await db.query<AlertRow>(
    `WITH fired AS (
       INSERT INTO alert (id, tenant_id, policy, subject, severity, message, value, threshold, fired_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp())
       ON CONFLICT (tenant_id, policy, subject) WHERE resolved_at IS NULL DO NOTHING RETURNING *
     ), told AS (
       INSERT INTO alert_notice (tenant_id, sink_id, alert_id, event)
       SELECT fired.tenant_id, sink.id, fired.id, 'FIRED' FROM fired
         JOIN alert_sink sink ON sink.tenant_id = fired.tenant_id AND sink.enabled AND fired.severity = ANY(sink.severities)
     )
     SELECT ${COLUMNS} FROM fired`,
    [newId(), tenantId, policy, subject, POLICY_RULES[policy].severity, message, value, settings.threshold],
  );
  return rows.map((alert) => ({ event: 'fire', alert }));
}

async function resolve(db: Database, alertId: string): Promise<AlertChange[]> {
  const rows = await db.query<AlertRow>(
    `WITH resolved AS (
       UPDATE alert SET resolved_at = clock_timestamp() WHERE id = $1 AND resolved_at IS NULL RETURNING *
     ), told AS (
       INSERT INTO alert_notice (tenant_id, sink_id, alert_id, event)
       SELECT notice.tenant_id, notice.sink_id, resolved.id, 'RESOLVED' FROM resolved
         JOIN alert_notice notice ON notice.alert_id = resolved.id AND notice.event = 'FIRED'
     )
     SELECT ${COLUMNS} FROM resolved`,
    [alertId],
  );
  return rows.map((alert) => ({ event: 'resolve', alert }));
}

export interface AlertFilter {
  /** True for what fires, false for what has resolved, null for both. */
  readonly isFiring: boolean | null;
  readonly policy: readonly AlertPolicyName[] | null;
}

export async function listAlerts(
  db: Database,
  viewer: Viewer,
  request: { readonly first: number; readonly after: string | null; readonly filter: AlertFilter },
): Promise<Page<AlertRow>> {
  const where = toWhere(viewer, request.filter);
  if (request.after !== null) where.id = { lt: decodeAlertCursor(request.after) };
  const rows = await translated(
    // Ids grow with time: newest first.
    db.prisma.alert.findMany({ where, orderBy: { id: 'desc' }, take: request.first + 1 }),
  );
  return toPage(rows.map(toRow), request.first, request.after);
}

export function countAlerts(db: Database, viewer: Viewer, filter: AlertFilter): Promise<number> {
  return translated(db.prisma.alert.count({ where: toWhere(viewer, filter) }));
}

/** What fires now, and whatever fired or resolved since then: for those who watch. */
export async function readAlertsSince(db: Database, tenantId: string, since: Date): Promise<AlertRow[]> {
  return db.query<AlertRow>(
    `SELECT ${COLUMNS} FROM alert
     WHERE tenant_id = $1 AND (resolved_at IS NULL OR resolved_at >= $2) ORDER BY id`,
    [tenantId, since],
  );
}

export function alertCursor({ id }: { readonly id: string }): string {
  return encodeCursor(id);
}

/** Forgets what is no longer of use: alerts that resolved long ago, and old throttles. */
export async function forgetOldAlerts(db: Database): Promise<void> {
  await db.query(`DELETE FROM alert WHERE resolved_at < clock_timestamp() - interval '90 days'`);
  await db.query(`DELETE FROM channel_throttle WHERE at < clock_timestamp() - interval '1 day'`);
}

function decodeAlertCursor(cursor: string): string {
  const id = decodeCursor(cursor, 1)[0]!;
  if (isUuid(id)) return id;
  throw new AppError('BAD_USER_INPUT', 'The cursor is not one of an alert.', { field: ['after'] });
}

function toWhere({ tenantId }: Viewer, { isFiring, policy }: AlertFilter): Prisma.AlertWhereInput {
  return {
    tenantId,
    ...(policy ? { policy: { in: [...policy] } } : {}),
    ...(isFiring === null ? {} : { resolvedAt: isFiring ? null : { not: null } }),
  };
}

function toRow(row: Alert): AlertRow {
  return { ...row, policy: row.policy as AlertPolicyName, severity: row.severity as AlertSeverity };
}
