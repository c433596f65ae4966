// Rule runs: making them and setting them off. Each mutation is one verb of the store.

import { Arg, Ctx, Mutation, Resolver } from 'type-graphql';
import { AddRuleTargetsInput, CreateRuleRunInput, RuleRunInput } from '../schema/rule-run-input.js';
import { RuleRunPayload } from '../schema/rule-run.js';
import type { RuleRunRow } from '../store/rule-run-row.js';
import { addRuleTargets, createRuleRun, queueRuleRun } from '../store/rule-run.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';
import { showRuleRun } from './rule-run.js';

@Resolver()
export class RuleRunMutationResolver {
  @Needs('OPERATE')
  @Mutation(() => RuleRunPayload, {
    description: 'Makes a run in PREVIEW: nothing is sent until it is queued.',
  })
  createRuleRun(
    @Arg('input', () => CreateRuleRunInput, { description: 'The run to make.' }) input: CreateRuleRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunPayload> {
    return answer(() =>
      createRuleRun(db, viewer, {
        projectId: input.projectId ?? 'default',
        channelId: input.channelId,
        ruleId: input.ruleId ?? null,
        targets: input.targets ?? null,
        metadata: input.metadata,
        correlationId: input.correlationId ?? null,
        startAt: input.startAt ?? null,
        autoRevertAt: input.autoRevertAt ?? null,
        idempotencyKey: input.idempotencyKey ?? null,
      }),
    );
  }

  @Needs('OPERATE')
  @Mutation(() => RuleRunPayload, { description: 'Adds targets to a run in PREVIEW.' })
  addRuleTargets(
    @Arg('input', () => AddRuleTargetsInput, { description: 'The run and its new targets.' })
    input: AddRuleTargetsInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunPayload> {
    return answer(() => addRuleTargets(db, viewer, input));
  }

  @Needs('OPERATE')
  @Mutation(() => RuleRunPayload, { description: 'PREVIEW → QUEUED: workers take it up from here.' })
  queueRuleRun(
    @Arg('input', () => RuleRunInput, { description: 'The run to queue.' }) input: RuleRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RuleRunPayload> {
    const { runId, idempotencyKey = null, confirm = null } = input;
    return answer(() => queueRuleRun(db, viewer, { runId, idempotencyKey, confirm }));
  }
}

/** The run that a verb leaves, or its refusal. */
export function answer(verb: () => Promise<RuleRunRow>): Promise<RuleRunPayload> {
  return mutate<RuleRunPayload>({ ruleRun: null }, async () => ({ ruleRun: showRuleRun(await verb()) }));
}
