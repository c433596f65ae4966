// Reconciliation: asking for one and waiting for its report, which some runner makes. The end of it is told in
// the run's ledger, so that is what is waited for.

import { Arg, Ctx, Mutation, Resolver } from 'type-graphql';
import { AppError } from '../errors.js';
import { waitForLine } from '../events/wait-for-line.js';
import {
  ReconciliationMismatch,
  ReconciliationPayload,
  ReconciliationReport,
} from '../schema/reconciliation.js';
import { RuleRunInput } from '../schema/rule-run-input.js';
import { shape } from '../schema/shape.js';
import {
  askToReconcile,
  findReconciliation,
  type AskedReconciliation,
  type ReconciliationRow,
} from '../store/reconciliation.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

/** Longer than most comparisons take, shorter than proxies wait. */
const LONGEST_WAIT_MS = 20_000;

const FAILED = 'automation.reconciliation.fail';
const ENDS: ReadonlySet<string> = new Set([FAILED, 'automation.reconciliation.complete']);

@Resolver()
export class ReconciliationResolver {
  @Needs('OPERATE')
  @Mutation(() => ReconciliationPayload, {
    description: 'Compares what the run has applied with what its channel shows, and answers the report.',
  })
  reconcileRuleRun(
    @Arg('input', () => RuleRunInput, { description: 'The run to compare.' }) input: RuleRunInput,
    @Ctx() context: Context,
  ): Promise<ReconciliationPayload> {
    const { db, viewer } = context;
    const { runId, repair, idempotencyKey = null } = input;
    return mutate<ReconciliationPayload>({ report: null, pending: false }, async () => {
      const asked = await askToReconcile(db, viewer, { runId, repair: repair ?? false, idempotencyKey });
      const done = await findReconciliation(db, viewer, asked.id);
      if (!done && !asked.isUnderWay) throw cameToNothing();
      if (!done) await waitForEnd(context, runId, asked);
      const row = done ?? (await findReconciliation(db, viewer, asked.id));
      return { report: row && showReconciliation(row), pending: row === null };
    });
  }
}

/** Throws when the comparison came to nothing. */
async function waitForEnd(
  { feed, viewer }: Context,
  runId: string,
  { id, seq }: AskedReconciliation,
): Promise<void> {
  const end = await waitForLine(feed, viewer, {
    runId,
    after: seq,
    isIt: ({ type, payload }) => ENDS.has(type) && payload['reconciliationId'] === id,
    longestMs: LONGEST_WAIT_MS,
  });
  if (end?.type !== FAILED) return;
  throw new AppError('UNAVAILABLE', end.message, { details: { code: end.payload['code'] } });
}

function cameToNothing(): AppError {
  const message =
    'The comparison that this idempotencyKey stands for could not be made: ask with another key.';
  return new AppError('UNAVAILABLE', message);
}

export function showReconciliation(row: ReconciliationRow): ReconciliationReport {
  const details = row.details.map((mismatch) => shape(ReconciliationMismatch, mismatch));
  return shape(ReconciliationReport, { ...row, details });
}
