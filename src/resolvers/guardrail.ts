// Guardrails: reading and setting them.

import { Arg, Ctx, Mutation, Query, Resolver } from 'type-graphql';
import { Guardrails, GuardrailsPayload, SaveGuardrailsInput } from '../schema/guardrail.js';
import { shape } from '../schema/shape.js';
import { findGuardrails, saveGuardrails } from '../store/guardrail.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

@Resolver()
export class GuardrailResolver {
  @Needs('READ')
  @Query(() => Guardrails, { description: 'How much a run may change without being confirmed.' })
  async guardrails(@Ctx() { db, viewer }: Context): Promise<Guardrails> {
    return shape(Guardrails, await findGuardrails(db, viewer));
  }

  @Needs('ADMINISTER')
  @Mutation(() => GuardrailsPayload, { description: 'Sets the guardrails, for runs queued from now on.' })
  saveGuardrails(
    @Arg('input', () => SaveGuardrailsInput, { description: 'The guardrails to set.' })
    { maxTargets = null, maxChangePercent = null }: SaveGuardrailsInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<GuardrailsPayload> {
    return mutate<GuardrailsPayload>({ guardrails: null }, async () => {
      const saved = await saveGuardrails(db, viewer, { maxTargets, maxChangePercent });
      return { guardrails: shape(Guardrails, saved) };
    });
  }
}
