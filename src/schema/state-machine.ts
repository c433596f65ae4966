// The machines as the API shows them. States are upper case, as everywhere in the API.

import { Field, ObjectType } from 'type-graphql';

@ObjectType({ simpleResolvers: true, description: 'One step that a machine allows.' })
export class Transition {
  @Field(() => String, { description: 'What happens; the word that the ledger uses too.' })
  event!: string;

  @Field(() => String, { description: 'The state it leaves.' })
  from!: string;

  @Field(() => String, { description: 'The state it leads to.' })
  to!: string;

  @Field(() => String, { description: 'Who may ask for it: API, WORKER, SYSTEM, or several of them.' })
  actor!: string;

  @Field(() => String, { description: 'When it happens.' })
  condition!: string;
}

@ObjectType({
  simpleResolvers: true,
  description: 'A state machine, as the database enforces it: what is not listed cannot happen.',
})
export class StateMachine {
  @Field(() => String, { description: 'Prefix of its events in the ledger, e.g. rule_run.' })
  name!: string;

  @Field(() => String, { description: 'The state in which everything begins.' })
  initial!: string;

  @Field(() => [String], { description: 'Every state there is.' })
  states!: readonly string[];

  @Field(() => [String], { description: 'The states that nothing leaves.' })
  finalStates!: readonly string[];

  @Field(() => [Transition], { description: 'Every step from one state to another that is allowed.' })
  transitions!: readonly Transition[];
}
