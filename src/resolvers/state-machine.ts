// The machines, straight from the declarations that the database's guards are generated from.

import { Query, Resolver } from 'type-graphql';
import { listTransitions, type Machine } from '../domain/machine.js';
import { MACHINES } from '../domain/machines.js';
import { shape } from '../schema/shape.js';
import { StateMachine, Transition } from '../schema/state-machine.js';
import { Needs } from './authorise.js';

@Resolver()
export class StateMachineResolver {
  @Needs('READ')
  @Query(() => [StateMachine], { description: 'The very tables that are enforced.' })
  stateMachines(): StateMachine[] {
    return MACHINES.map(showMachine);
  }
}

function showMachine(machine: Machine): StateMachine {
  const { name, initial, states, finalStates } = machine;
  return shape(StateMachine, {
    name,
    initial: initial.toUpperCase(),
    states: states.map((state) => state.toUpperCase()),
    finalStates: finalStates.map((state) => state.toUpperCase()),
    transitions: listTransitions(machine).map(({ event, from, to, actors, condition }) =>
      shape(Transition, {
        event,
        from: from.toUpperCase(),
        to: to.toUpperCase(),
        actor: actors.join(', '),
        condition,
      }),
    ),
  });
}
