// Rule runs: what is asked of them once they are made. Each mutation is one verb of the store.

import { Arg, Ctx, Mutation, Resolver } from 'type-graphql';
import { RetryFailedTargetsInput, RollBackRuleRunInput, RuleRunInput } from '../schema/rule-run-input.js';
import { RuleRunPayload } from '../schema/rule-run.js';
import { rollBackRuleRun } from '../store/roll-back.js';
import {
  cancelRuleRun,
  pauseRuleRun,
  resumeRuleRun,
  retryFailedTargets,
  retryRuleRun,
} from '../store/rule-run-control.js';
import type { RunRequest } from '../store/rule-run-row.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { answer } from './rule-run-mutation.js';

@Resolver()
export class RuleRunControlResolver {
  @Needs('OPERATE')
  @Mutation(() => RuleRunPayload, {
    description:
      'PREVIEW, QUEUED or APPLYING → CANCELLED. Nothing more is claimed; what is in flight settles with its true result, and what would be tried again is cancelled instead.',
  })
  cancelRuleRun(
    @Arg('input', () => RuleRunInput, { description: 'The run to stop.' }) input: RuleRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunPayload> {
    return answer(() => cancelRuleRun(db, viewer, requestOf(input)));
  }

  @Needs('OPERATE')
  @Mutation(() => RuleRunPayload, {
    description: 'Keeps workers from claiming more of a run that is under way, until it is resumed.',
  })
  pauseRuleRun(
    @Arg('input', () => RuleRunInput, { description: 'The run that is to wait.' }) input: RuleRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunPayload> {
    return answer(() => pauseRuleRun(db, viewer, requestOf(input)));
  }

  @Needs('OPERATE')
  @Mutation(() => RuleRunPayload, { description: 'Lets a paused run go on.' })
  resumeRuleRun(
    @Arg('input', () => RuleRunInput, { description: 'The run that is to go on.' }) input: RuleRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunPayload> {
    return answer(() => resumeRuleRun(db, viewer, requestOf(input)));
  }

  @Needs('OPERATE')
  @Mutation(() => RuleRunPayload, {
    description:
      'PARTIAL → APPLYING: some failed targets, or all of them, are tried again from their first attempt.',
  })
  retryFailedTargets(
    @Arg('input', () => RetryFailedTargetsInput, { description: 'The run, and which of its targets.' })
    input: RetryFailedTargetsInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunPayload> {
    const { targetIds = null } = input;
    return answer(() => retryFailedTargets(db, viewer, { ...requestOf(input), targetIds }));
  }

  @Needs('OPERATE')
  @Mutation(() => RuleRunPayload, {
    description: 'FAILED → APPLYING: every failed target is tried again from its first attempt.',
  })
  retryRuleRun(
    @Arg('input', () => RuleRunInput, { description: 'The run to try again.' }) input: RuleRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunPayload> {
    return answer(() => retryRuleRun(db, viewer, requestOf(input)));
  }

  @Needs('OPERATE')
  @Mutation(() => RuleRunPayload, {
    description:
      'Sets applied targets back to the price they had before, by the runner, which reads each price first. The run becomes ROLLED_BACK when none of its prices stands any more; until then it keeps its state.',
  })
  rollBackRuleRun(
    @Arg('input', () => RollBackRuleRunInput, { description: 'The run, and what of it.' })
    input: RollBackRuleRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunPayload> {
    const { targetIds = null } = input;
    const onConflict = input.onConflict ?? 'SKIP';
    return answer(() => rollBackRuleRun(db, viewer, { ...requestOf(input), targetIds, onConflict }));
  }
}

function requestOf({ runId, idempotencyKey = null }: RuleRunInput): RunRequest {
  return { runId, idempotencyKey };
}
