// Targets that a person has picked out of a run: each must be of that run, and in a state that the event
// may happen in; one that is not refuses all of them.

import { AppError } from '../errors.js';
import { ruleTargetMachine, type RuleTargetEvent, type RuleTargetStatus } from '../domain/rule-target.js';
import type { Connection } from './db.js';
import { isRowNumber } from './id.js';
import { refuseTooMany } from './input.js';
import { notFound, requireNext } from './transition.js';

const MAX_CHOSEN = 10_000;
const FIELD = ['input', 'targetIds'];

export async function requireTargetsIn(
  connection: Connection,
  runId: string,
  targetIds: readonly string[],
  event: RuleTargetEvent,
): Promise<void> {
  refuseTooMany('targetIds', targetIds.length, MAX_CHOSEN, 'name fewer, or none for all of them');
  if (targetIds.length === 0) {
    throw new AppError('INVALID_INPUT', 'targetIds is empty: name some, or leave it out for all of them.', {
      field: FIELD,
    });
  }
  const { rows } = await connection.query<{ id: string; status: RuleTargetStatus }>(
    'SELECT id::text AS id, status FROM rule_target WHERE run_id = $1 AND id = ANY($2::bigint[])',
    [runId, targetIds.filter(isRowNumber)],
  );
  const statuses = new Map(rows.map(({ id, status }) => [id, status]));
  for (const id of targetIds) {
    const status = statuses.get(id);
    if (!status) throw notFound('Target', id, FIELD);
    requireNext(ruleTargetMachine, status, event, { field: FIELD, details: { targetId: id } });
  }
}
