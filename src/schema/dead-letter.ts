// Dead letters: what failed for good, summed up.

import { Field, InputType, Int, ObjectType } from 'type-graphql';
import { Payload } from './payload.js';
import { JsonScalar } from './scalar.js';

@InputType({ description: 'Whose dead letters to sum up.' })
export class DrainDeadLettersInput {
  @Field(() => String, { description: 'The label that the runs are filed under.' })
  projectId!: string;
}

@ObjectType({
  simpleResolvers: true,
  description: 'The dead letters of a project, and what to do about them.',
})
export class DeadLetterReport {
  @Field(() => Int, { description: 'How many there are.' })
  total!: number;

  @Field(() => JsonScalar, { description: 'How many for each error code, e.g. { "INVALID": 3 }.' })
  byErrorCode!: Readonly<Record<string, number>>;

  @Field(() => [String], { description: 'What to do about each error code, the most frequent first.' })
  recommendations!: readonly string[];
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The report. Nothing was changed.' })
export class DeadLetterReportPayload extends Payload {
  @Field(() => DeadLetterReport, { nullable: true, description: 'Null when it was refused.' })
  report!: DeadLetterReport | null;
}
