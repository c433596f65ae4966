// What a settle tells the ledger itself, beside the guards' lines: the troubles of a rollback, which are no change
// of status, and results that came when the claim was lost. Called by settle, under the run's lock.

import type { Settlement } from '../domain/rule-target.js';
import type { Claim, ClaimedTarget } from './claim.js';
import type { Connection } from './db.js';
import { appendRunLines, linesOfTargets } from './ledger.js';

export interface SettledTarget {
  readonly targetId: string;
  readonly settlement: Settlement;
}

export interface SortedResults {
  /** Results that this statement wrote. */
  readonly held: readonly SettledTarget[];
  /** Results of targets that the claim had lost before. */
  readonly late: readonly SettledTarget[];
}

/**
 * Tells results that were written from those that came too late, which become lines. One that the claim itself wrote
 * before is neither: the answer to that commit was lost. Mostly all are written, and nobody needs to be told which.
 */
export async function sortResults(
  connection: Connection,
  claim: Claim,
  settled: readonly SettledTarget[],
  heldCount: number,
): Promise<SortedResults> {
  if (heldCount === settled.length) return { held: settled, late: [] };
  const { rows } = await connection.query<{ id: string }>(
    'SELECT id FROM rule_target WHERE id = ANY($1::bigint[]) AND xmin = pg_current_xact_id()::xid',
    [settled.map(({ targetId }) => targetId)],
  );
  const written = new Set(rows.map(({ id }) => id));
  const others = settled.filter(({ targetId }) => !written.has(targetId));
  const before = await findWrittenBefore(connection, claim, others);
  const late = others.filter(({ targetId }) => !before.has(targetId));
  await appendRunLines(
    connection,
    'RULE',
    claim.runId,
    late.map(({ targetId, settlement }) => ({
      type: 'rule_target.late_result',
      level: 'WARN',
      message: `${claim.workerId} lost its claim before it could report ${settlement.event}`,
      payload: { targetId, epoch: claim.epoch, purpose: claim.purpose, result: settlement },
      targetId,
    })),
  );
  return { held: settled.filter(({ targetId }) => written.has(targetId)), late };
}

/** Those of whose result the ledger has the line already, by this worker and of this attempt. */
async function findWrittenBefore(
  connection: Connection,
  { tenantId, workerId, purpose, targets }: Claim,
  settled: readonly SettledTarget[],
): Promise<Set<string>> {
  const claimed = byId(targets);
  // A target is set back once; its line tells of the attempt at which it was applied.
  const attempts = settled.map(({ targetId, settlement }) =>
    purpose === 'roll_back' && settlement.event === 'succeed' ? null : claimed.get(targetId)!.attempts,
  );
  const { rows } = await connection.query<{ id: string }>(
    `SELECT result.id FROM unnest($1::bigint[], $3::text[], $4::int[]) AS result (id, type, attempt)
     WHERE EXISTS (
       SELECT 1 FROM (${linesOfTargets('target_id, type, actor, attempt, payload')}) AS line
       WHERE line.target_id = result.id AND line.type = result.type AND line.actor = $5
         AND coalesce(coalesce(line.attempt, (line.payload ->> 'attempt')::int) = result.attempt, true))`,
    [
      settled.map(({ targetId }) => targetId),
      tenantId,
      settled.map(({ settlement }) => lineTypeOf(purpose, settlement)),
      attempts,
      workerId,
    ],
  );
  return new Set(rows.map(({ id }) => id));
}

/** A failure to set a target back is no change of its status: the guards write no line for it. */
export async function recordRollBackTrouble(
  connection: Connection,
  { runId, purpose, targets }: Claim,
  settled: readonly SettledTarget[],
): Promise<void> {
  const claimed = byId(targets);
  const lines = settled.flatMap(({ targetId, settlement }) => {
    if (settlement.event === 'succeed') return [];
    const { code, message } = settlement;
    const { externalId, attempts: attempt } = claimed.get(targetId)!;
    const type = lineTypeOf(purpose, settlement);
    return {
      type,
      level: type === 'rule_target.roll_back_fail' ? ('ERROR' as const) : ('WARN' as const),
      message,
      payload: { targetId, externalId, attempt, error: { code, message } },
      targetId,
    };
  });
  await appendRunLines(connection, 'RULE', runId, lines);
}

/** Of the line that tells of a result, whoever writes it. */
function lineTypeOf(purpose: Claim['purpose'], settlement: Settlement): string {
  if (purpose === 'apply') return `rule_target.${settlement.event}`;
  if (settlement.event === 'succeed') return 'rule_target.roll_back';
  if (settlement.event === 'retry') return 'rule_target.roll_back_retry';
  return `rule_target.roll_back_${settlement.code === 'CONFLICT' ? 'conflict' : 'fail'}`;
}

function byId(targets: readonly ClaimedTarget[]): Map<string, ClaimedTarget> {
  return new Map(targets.map((target) => [target.id, target]));
}
