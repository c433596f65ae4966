// How long what runs leave behind is kept, as tenants have set it. Without a figure nothing is ever deleted.

import { RUN_KINDS, type RunKind } from '../domain/run.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import { translated, type Database } from './db.js';
import type { RetentionPolicy } from './prisma/client.js';

export interface RetentionInput {
  readonly kind: RunKind;
  /** Null: for ever. */
  readonly keepDays: number | null;
  /** Null: as long as its prices stand. */
  readonly rollbackDays: number | null;
}

export interface TenantRetention extends RetentionInput {
  /** Null while nobody has set it. */
  readonly updatedBy: string | null;
  readonly updatedAt: Date | null;
}

const MAX_DAYS = 36_500;

/** One for each kind of run, as it holds for the viewer's tenant. */
export async function listRetentionPolicies(db: Database, { tenantId }: Viewer): Promise<TenantRetention[]> {
  const rows = await translated(db.prisma.retentionPolicy.findMany({ where: { tenantId } }));
  const byKind = new Map(rows.map((row) => [row.kind, row]));
  return RUN_KINDS.map((kind) => toRetention(kind, byKind.get(kind)));
}

export async function saveRetentionPolicy(
  db: Database,
  { tenantId, actor }: Viewer,
  input: RetentionInput,
): Promise<TenantRetention> {
  checkDays('keepDays', input.keepDays);
  checkDays('rollbackDays', input.rollbackDays);
  checkRollback(input);
  const { kind, keepDays, rollbackDays } = input;
  const figures = { keepDays, rollbackDays, updatedBy: actor, updatedAt: new Date() };
  const row = await translated(
    db.prisma.retentionPolicy.upsert({
      where: { tenantId_kind: { tenantId, kind } },
      create: { tenantId, kind, ...figures },
      update: figures,
    }),
  );
  return toRetention(kind, row);
}

function toRetention(kind: RunKind, row: RetentionPolicy | undefined): TenantRetention {
  const { keepDays = null, rollbackDays = null, updatedBy = null, updatedAt = null } = row ?? {};
  return { kind, keepDays, rollbackDays, updatedBy, updatedAt };
}

function checkDays(field: string, days: number | null): void {
  if (days === null || (days >= 1 && days <= MAX_DAYS)) return;
  throw refuse(field, `${field} must be from 1 to ${MAX_DAYS}; leave it out to keep for ever.`);
}

function checkRollback({ kind, keepDays, rollbackDays }: RetentionInput): void {
  if (rollbackDays === null) return;
  if (kind !== 'RULE') throw refuse('rollbackDays', `A ${kind} run cannot be rolled back.`);
  if (keepDays === null) throw refuse('rollbackDays', 'rollbackDays means nothing without keepDays.');
  if (rollbackDays >= keepDays) return;
  throw refuse(
    'rollbackDays',
    'A run that can be rolled back is kept no shorter than one that cannot: rollbackDays must be keepDays or more.',
  );
}

function refuse(field: string, message: string): AppError {
  return new AppError('INVALID_INPUT', message, { field: ['input', field] });
}
