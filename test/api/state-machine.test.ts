// The `stateMachines` query shows the very declarations that the database's guards are generated from.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { listTransitions } from '../../src/domain/machine.js';
import { MACHINES } from '../../src/domain/machines.js';
import { graphql } from '../generated/gql.js';
import { startApi, type TestApi } from './support.js';

const StateMachines = graphql(`
  query StateMachines {
    stateMachines {
      name
      initial
      states
      finalStates
      transitions {
        event
        from
        to
        actor
        condition
      }
    }
  }
`);

let api: TestApi;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.stop());

test('every machine, with its states in upper case', async () => {
  const { stateMachines } = await (await api.client('VIEWER')).ask(StateMachines, {});
  expect(stateMachines.map(({ name }) => name)).toEqual(MACHINES.map(({ name }) => name));
  for (const [index, machine] of MACHINES.entries()) {
    const shown = stateMachines[index]!;
    const upper = (states: readonly string[]) => states.map((state) => state.toUpperCase());
    expect(shown.states).toEqual(upper(machine.states));
    expect([shown.initial, ...shown.finalStates]).toEqual(upper([machine.initial, ...machine.finalStates]));
    expect(shown.transitions.map(({ event, from, to }) => `${event} ${from} ${to}`)).toEqual(
      listTransitions(machine).map(({ event, from, to }) => `${event} ${upper([from, to]).join(' ')}`),
    );
  }
});

test('actors and conditions are told', async () => {
  const { stateMachines } = await (await api.client('VIEWER')).ask(StateMachines, {});
  const queue = stateMachines[0]!.transitions.find(({ event }) => event === 'queue');
  expect(queue).toEqual({
    event: 'queue',
    from: 'PREVIEW',
    to: 'QUEUED',
    actor: 'API, SYSTEM',
    condition: 'a person or a schedule asks for it, and it has targets',
  });
});
