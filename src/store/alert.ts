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
import { lookAtClock } from './prune.js';

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

type Tell = (change: AlertChange) => void;
type Change = () => Promise<readonly AlertChange[]>;

/**
 * Fires and resolves what is due, for every tenant, and tells of each change as soon as it is made. A policy that
 * cannot be evaluated, or an alert that cannot be changed, keeps no other waiting: it is thrown at the end.
 */
export async function evaluateAlerts(db: Database, tell: Tell): Promise<void> {
  const policies = await readAllPolicies(db);
  const faults: unknown[] = [];
  for (const policy of ALERT_POLICIES) {
    const changes = await findChanges(db, policy, policies).catch((fault: unknown) => {
      faults.push(fault);
      return [];
    });
    for (const change of changes) {
      try {
        (await change()).forEach(tell);
      } catch (fault) {
        faults.push(fault);
      }
    }
  }
  if (faults.length > 0) throw new AggregateError(faults, 'Not every alert could be evaluated.');
}

async function findChanges(
  db: Database,
  policy: AlertPolicyName,
  policies: readonly PolicyRow[],
): Promise<Change[]> {
  const own = new Map(policies.filter((row) => row.policy === policy).map((row) => [row.tenantId, row]));
  const settingsOf = (tenantId: string) => mergeSettings(policy, own.get(tenantId));
  const windows = [...own.values()].map(({ tenantId }) => settingsOf(tenantId).windowSeconds ?? 0);
  const measured = await measure(db, policy, Math.max(POLICY_RULES[policy].windowSeconds ?? 0, ...windows));
  const states = new Map((await readStates(db, policy)).map((state) => [keyOf(state), state]));
  const changes: Change[] = [];
  for (const each of measured) {
    const settings = settingsOf(each.tenantId);
    const state = states.get(keyOf(each)) ?? { isFiring: false, resolvedSecondsAgo: null, alertId: null };
    states.delete(keyOf(each));
    const breached = isBreached(policy, settings, each.value);
    const event = nextAlertEvent(breached, state, settings.cooldownSeconds);
    if (event === 'fire') changes.push(() => fire(db, policy, settings, each));
    if (event === 'resolve') changes.push(() => resolve(db, state.alertId!));
  }
  // Whatever fires and is not measured any more is over.
  for (const { alertId } of states.values()) if (alertId) changes.push(() => resolve(db, alertId));
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
     WHERE policy = $1 AND (resolved_at IS NULL OR resolved_at > statement_timestamp() - interval '1 day')
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
  { tenantId, subject, what, value, since }: Measured,
): Promise<AlertChange[]> {
  const message = describeAlert(policy, value, settings, what);
  const rows = await db.query<AlertRow>(
    `WITH fired AS (
       INSERT INTO alert (id, tenant_id, policy, subject, severity, message, value, threshold, fired_at)
       SELECT $1, $2, $3, $4, $5, $6, $7, $8, coalesce($10::timestamptz, clock_timestamp())
       -- Somebody else may have fired and resolved it since its state was read.
       WHERE NOT EXISTS (SELECT 1 FROM alert
         WHERE tenant_id = $2 AND policy = $3 AND subject = $4
           AND abs(extract(epoch FROM clock_timestamp() - resolved_at)) < $9)
       ON CONFLICT (tenant_id, policy, subject) WHERE resolved_at IS NULL DO NOTHING RETURNING *
     ), told AS (
       INSERT INTO alert_notice (tenant_id, sink_id, alert_id, event, urgent)
       SELECT fired.tenant_id, sink.id, fired.id, 'FIRED', fired.severity = 'CRITICAL' FROM fired
         JOIN alert_sink sink ON sink.tenant_id = fired.tenant_id AND sink.enabled AND fired.severity = ANY(sink.severities)
     )
     SELECT ${COLUMNS} FROM fired`,
    [
      newId(),
      tenantId,
      policy,
      subject,
      POLICY_RULES[policy].severity,
      message,
      value,
      settings.threshold,
      settings.cooldownSeconds,
      since ?? null,
    ],
  );
  return rows.map((alert) => ({ event: 'fire', alert }));
}

async function resolve(db: Database, alertId: string): Promise<AlertChange[]> {
  const rows = await db.query<AlertRow>(
    `WITH resolved AS (
       -- A clock that was put back since is before its beginning.
       UPDATE alert SET resolved_at = greatest(fired_at, clock_timestamp())
       WHERE id = $1 AND resolved_at IS NULL RETURNING *
     ), told AS (
       INSERT INTO alert_notice (tenant_id, sink_id, alert_id, event, urgent)
       SELECT notice.tenant_id, notice.sink_id, resolved.id, 'RESOLVED', notice.urgent FROM resolved
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

export interface AlertsRead {
  readonly alerts: readonly AlertRow[];
  /** The database's time when they were read; nothing is compared with the clock of another machine. */
  readonly at: Date;
}

/** Rows are stamped before they are committed: what came a little late is still seen. */
const OVERLAP = '1 minute';

/** What fires now, and whatever resolved since then, or nothing of that: for those who watch. */
export async function readAlertsSince(
  db: Database,
  tenantId: string,
  since: Date | null,
): Promise<AlertsRead> {
  const [clock] = await db.query<{ at: Date }>('SELECT clock_timestamp() AS at');
  const alerts = await db.query<AlertRow>(
    `SELECT ${COLUMNS} FROM alert
     WHERE tenant_id = $1 AND (resolved_at IS NULL OR resolved_at >= $2::timestamptz - interval '${OVERLAP}')
     ORDER BY id`,
    [tenantId, since],
  );
  return { alerts, at: clock!.at };
}

export function alertCursor({ id }: { readonly id: string }): string {
  return encodeCursor(id);
}

/**
 * Forgets what is no longer of use: alerts that resolved long ago and are told, and old throttles. Nothing while a leap
 * of the clock has made everything look old.
 */
export async function forgetOldAlerts(db: Database): Promise<void> {
  if ((await lookAtClock(db)) !== null) return;
  await db.query(
    `DELETE FROM alert WHERE resolved_at < statement_timestamp() - interval '90 days' AND NOT EXISTS (
       SELECT 1 FROM alert_notice WHERE alert_id = alert.id AND next_attempt_at IS NOT NULL)`,
  );
  // Those of tests belong to no alert.
  await db.query(
    `DELETE FROM alert_notice WHERE alert_id IS NULL AND created_at < statement_timestamp() - interval '90 days'
       AND next_attempt_at IS NULL`,
  );
  await db.query(`DELETE FROM channel_throttle WHERE at < statement_timestamp() - interval '1 day'`);
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
