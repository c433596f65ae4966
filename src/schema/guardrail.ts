// Guardrails: how much a run may change before somebody has to say that they mean it.

import { Field, Float, InputType, Int, ObjectType } from 'type-graphql';
import { Payload } from './payload.js';

const MAX_TARGETS = 'The most targets of a run.';
const MAX_CHANGE = 'The most that any price may change, up or down, in per cent of the price before.';

@ObjectType({
  simpleResolvers: true,
  description: 'A run beyond these is queued only with `confirm`: the hash of its preview.',
})
export class Guardrails {
  @Field(() => Int, { description: MAX_TARGETS })
  maxTargets!: number;

  @Field(() => Float, { description: MAX_CHANGE })
  maxChangePercent!: number;
}

@InputType({ description: 'Guardrails as they are to be; one that is left out stays as it is.' })
export class SaveGuardrailsInput {
  @Field(() => Int, { nullable: true, description: MAX_TARGETS })
  maxTargets?: number | null;

  @Field(() => Float, { nullable: true, description: MAX_CHANGE })
  maxChangePercent?: number | null;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The guardrails as they were saved.' })
export class GuardrailsPayload extends Payload {
  @Field(() => Guardrails, { nullable: true, description: 'Null when the save was refused.' })
  guardrails!: Guardrails | null;
}
