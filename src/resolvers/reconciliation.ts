// Reconciliation: asking for one and waiting for its report, which some runner makes. The end of it is told in
// the run's ledger, so that is what is waited for.

import { Arg, Ctx, FieldResolver, Int, Mutation, Resolver, Root } from 'type-graphql';
import { MAX_FINDINGS_LISTED, type Mismatch, type Unread } from '../domain/reconciliation.js';
import { AppError } from '../errors.js';
import { waitForLine } from '../events/wait-for-line.js';
import {
  ReconciliationMismatch,
  ReconciliationPayload,
  ReconciliationReport,
  ReconciliationUnread,
} from '../schema/reconciliation.js';
import { First } from '../schema/page.js';
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

/** As many as anybody reads through: what is not limited is priced as these, for few reports have more. */
const FINDINGS = 1_000;

/** They are kept in one piece: reading many of them costs less than as many rows would. */
function priceOfFindings({ args, childComplexity }: PricedField): number {
  const first: unknown = args['first'];
  const length = typeof first === 'number' ? Math.min(Math.max(first, 1), MAX_FINDINGS_LISTED) : FINDINGS;
  return 1 + Math.ceil(length / 4) * childComplexity;
}

interface PricedField {
  readonly args: Readonly<Record<string, unknown>>;
  readonly childComplexity: number;
}

@Resolver(() => ReconciliationReport)
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

  @FieldResolver(() => [ReconciliationMismatch], {
    complexity: priceOfFindings,
    description: `Those that differed, up to ${MAX_FINDINGS_LISTED} are kept; the ledger tells of each.`,
  })
  async details(
    @Root() { id }: ReconciliationReport,
    @Arg('first', () => Int, { nullable: true, description: 'How many at most; all when absent.' })
    first: number | null | undefined,
    @Ctx() { loaders }: Context,
  ): Promise<ReconciliationMismatch[]> {
    const page = await loaders.findings.load(id, { kind: 'expected', first: first ?? MAX_FINDINGS_LISTED });
    return page.nodes.map((found) => shape(ReconciliationMismatch, found as Mismatch));
  }

  @FieldResolver(() => [ReconciliationUnread], {
    complexity: priceOfFindings,
    description: 'Those that could not be compared, and why; not each of very many.',
  })
  async unreadItems(
    @Root() { id }: ReconciliationReport,
    @First(FINDINGS, MAX_FINDINGS_LISTED) first: number | null,
    @Ctx() { loaders }: Context,
  ): Promise<ReconciliationUnread[]> {
    const page = await loaders.findings.load(id, { kind: 'code', first: first ?? FINDINGS });
    return page.nodes.map((found) => shape(ReconciliationUnread, found as Unread));
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
  return shape(ReconciliationReport, row);
}
