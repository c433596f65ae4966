// What makes a machine sound, each fault shown; and what every machine of ours answers.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  allowedEvents,
  defineMachine,
  findFaults,
  listTransitions,
  nextState,
  type EventRule,
  type Machine,
} from '../../src/domain/machine.js';
import { MACHINES } from '../../src/domain/machines.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';

function rule(from: string[], to: string): EventRule<string> {
  return { from, to, actors: ['API'], condition: 'always' };
}

/** A → B → C, with an event back from B. */
const SOUND: Machine = {
  name: 'sample',
  title: 'Sample',
  table: null,
  states: ['A', 'B', 'C'],
  initial: 'A',
  finalStates: ['C'],
  events: { go: rule(['A'], 'B'), back: rule(['B'], 'A'), end: rule(['B'], 'C') },
};

function altered(change: Partial<Machine>): Machine {
  return { ...SOUND, ...change };
}

describe('soundness', () => {
  test('a sound machine has no fault', () => {
    expect(findFaults(SOUND)).toEqual([]);
    expect(defineMachine(SOUND)).toBe(SOUND);
    expect(Object.isFrozen(defineMachine({ ...SOUND }))).toBe(true);
  });

  const { go, back, end } = SOUND.events as Record<string, EventRule<string>>;
  test.each<[string, Machine, string]>([
    [
      'an event from a state that is not declared',
      altered({ events: { go: rule(['A', 'X'], 'B'), back: back!, end: end! } }),
      'unknown state X',
    ],
    [
      'an event to a state that is not declared',
      altered({ events: { go: go!, back: back!, end: end!, lose: rule(['B'], 'X') } }),
      'unknown state X',
    ],
    ['an initial state that is not declared', altered({ initial: 'X' }), 'unknown state X'],
    ['a final state that is not declared', altered({ finalStates: ['C', 'X'] }), 'unknown state X'],
    [
      'two events for one pair',
      altered({ events: { go: go!, back: back!, end: end!, finish: rule(['B'], 'C') } }),
      'B → C is both end and finish',
    ],
    [
      'an event that leads nowhere else',
      altered({ events: { go: go!, back: back!, end: end!, stay: rule(['B'], 'B') } }),
      'stay does not change the state B',
    ],
    [
      'a state that nothing leads to',
      altered({
        states: ['A', 'B', 'C', 'D'],
        events: { go: go!, back: back!, end: end!, leave: rule(['D'], 'C') },
      }),
      'D cannot be reached',
    ],
    ['a dead end that is not final', altered({ finalStates: [] }), 'C is a dead end but not final'],
    ['a final state that can be left', altered({ finalStates: ['B', 'C'] }), 'B is final but can be left'],
  ])('%s is found, and stops the declaration', (_, machine, fault) => {
    expect(findFaults(machine)).toContain(fault);
    expect(() => defineMachine(machine)).toThrow(
      `machine sample is unsound: ${findFaults(machine).join('; ')}`,
    );
  });

  test('every fault is named at once', () => {
    const machine = altered({ initial: 'X', finalStates: [] });
    expect(findFaults(machine)).toEqual(
      expect.arrayContaining(['unknown state X', 'A cannot be reached', 'C is a dead end but not final']),
    );
  });
});

describe.each(MACHINES.map((machine) => ({ name: machine.name, machine })))('$name', ({ machine }) => {
  const events = Object.keys(machine.events);

  test('is sound and frozen', () => {
    expect(findFaults(machine)).toEqual([]);
    expect(Object.isFrozen(machine)).toBe(true);
  });

  test('names itself, its states and events as ledger lines and SQL do', () => {
    expect(machine.name).toMatch(/^[a-z]+(_[a-z]+)*$/);
    for (const event of events) expect(event).toMatch(/^[a-z]+(_[a-z]+)*$/);
    for (const state of machine.states) expect(state).toMatch(/^([A-Z]+(_[A-Z]+)*|[a-z]+)$/);
    expect(new Set(machine.states).size).toBe(machine.states.length);
  });

  test('says of each event who may ask and on what condition', () => {
    for (const { actors, condition } of Object.values(machine.events)) {
      expect(actors.length).toBeGreaterThan(0);
      expect(condition).not.toBe('');
    }
  });

  test('its three questions agree for every state and event', () => {
    const transitions = listTransitions(machine);
    for (const state of machine.states) {
      const allowed = allowedEvents(machine, state);
      for (const event of events) {
        const to = nextState(machine, state, event);
        expect(allowed.includes(event)).toBe(to !== null);
        const step = transitions.find((each) => each.event === event && each.from === state);
        expect(step?.to ?? null).toBe(to);
      }
    }
  });

  test('a final state can be reached from everywhere', () => {
    const ending = new Set<string>(machine.finalStates);
    for (let size = -1; size !== ending.size;) {
      size = ending.size;
      for (const { from, to } of listTransitions(machine)) if (ending.has(to)) ending.add(from);
    }
    expect(machine.states.filter((state) => !ending.has(state))).toEqual([]);
  });

  test('any walk by allowed events stays within the declared states', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(), { maxLength: 30 }), (choices) => {
        let state = machine.initial;
        for (const choice of choices) {
          const allowed = allowedEvents(machine, state);
          if (allowed.length === 0) return machine.finalStates.includes(state);
          state = nextState(machine, state, allowed[choice % allowed.length]!)!;
          if (!machine.states.includes(state)) return false;
        }
        return true;
      }),
    );
  });
});

test('a rule run that was applied or rolled back is not applied again, and none starts from its preview', () => {
  const pairs = listTransitions(ruleRunMachine).map(({ from, to }) => `${from} ${to}`);
  for (const forbidden of ['APPLIED APPLYING', 'ROLLED_BACK APPLYING', 'PREVIEW APPLYING']) {
    expect(pairs).not.toContain(forbidden);
  }
});
