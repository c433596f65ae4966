// What every mutation's payload shares: the refusals that a person can cause and mend.

import { Field, InterfaceType, ObjectType } from 'type-graphql';
import { REFUSALS } from '../errors.js';
import { JsonScalar } from './scalar.js';

@ObjectType({
  simpleResolvers: true,
  description: 'Why a mutation was refused. A refused mutation has changed nothing.',
})
export class UserError {
  @Field(() => String, { description: `One of ${REFUSALS.join(', ')}.` })
  code!: string;

  @Field(() => String, { description: 'What is wrong, for a person to read.' })
  message!: string;

  @Field(() => [String], {
    nullable: true,
    description: 'Path of the argument at fault, e.g. ["input", "targets", "3", "after"].',
  })
  field!: readonly string[] | null;

  @Field(() => JsonScalar, {
    nullable: true,
    description:
      'Facts for a program. Of an ILLEGAL_TRANSITION: machine, event, from, and the events allowed instead.',
  })
  details!: unknown;
}

@InterfaceType({ description: 'What every mutation answers.' })
export abstract class Payload {
  @Field(() => [UserError], { description: 'Empty when the mutation was carried out.' })
  userErrors!: readonly UserError[];
}
