// State machines as data. Owns the shape of a machine, the questions one may ask of it and what makes one
// sound. A machine is declared once, keyed by event; the database's guards, the GraphQL enums, the
// documentation and the exhaustive tests are all derived from that declaration.

export type Actor = 'API' | 'WORKER' | 'SYSTEM';

export interface EventRule<State extends string> {
  readonly from: readonly State[];
  readonly to: State;
  readonly actors: readonly Actor[];
  readonly condition: string;
}

export interface Machine<State extends string = string, Event extends string = string> {
  /** Prefix of the ledger's event types, e.g. `rule_run` in `rule_run.queue`. */
  readonly name: string;
  /** What it governs, for the documentation. */
  readonly title: string;
  /** The table whose `status` the database guards; null for a machine that lives in a process. */
  readonly table: string | null;
  readonly states: readonly State[];
  readonly initial: State;
  readonly finalStates: readonly State[];
  readonly events: Readonly<Record<Event, EventRule<State>>>;
}

export type StateOf<M> = M extends Machine<infer State, string> ? State : never;
export type EventOf<M> = M extends Machine<string, infer Event> ? Event : never;

export interface Transition<State extends string = string, Event extends string = string> {
  readonly event: Event;
  readonly from: State;
  readonly to: State;
  readonly actors: readonly Actor[];
  readonly condition: string;
}

/** Declares a machine; an unsound one stops the process at load, before it can govern anything. */
export function defineMachine<const State extends string, const Event extends string>(
  machine: Machine<State, Event>,
): Machine<State, Event> {
  const faults = findFaults(machine);
  if (faults.length > 0) throw new Error(`machine ${machine.name} is unsound: ${faults.join('; ')}`);
  return Object.freeze(machine);
}

export function listTransitions<State extends string, Event extends string>(
  machine: Machine<State, Event>,
): Transition<State, Event>[] {
  const rules = Object.entries(machine.events) as [Event, EventRule<State>][];
  return rules.flatMap(([event, { from: sources, ...rule }]) =>
    sources.map((from) => ({ event, from, ...rule })),
  );
}

/** Where `event` leads from `state`, or null when the machine forbids it there. */
export function nextState<State extends string, Event extends string>(
  machine: Machine<State, Event>,
  state: State,
  event: Event,
): State | null {
  const rule = machine.events[event];
  return rule.from.includes(state) ? rule.to : null;
}

export function allowedEvents<State extends string, Event extends string>(
  machine: Machine<State, Event>,
  state: State,
): Event[] {
  return listTransitions(machine)
    .filter(({ from }) => from === state)
    .map(({ event }) => event);
}

/** Everything wrong with a declaration, in words; empty when it is sound. */
export function findFaults(machine: Machine): string[] {
  const transitions = listTransitions(machine);
  return [
    ...findUnknownStates(machine, transitions),
    ...findAmbiguousPairs(transitions),
    ...findUnreachable(machine, transitions),
    ...findWrongEnds(machine, transitions),
  ];
}

function findUnknownStates(machine: Machine, transitions: readonly Transition[]): string[] {
  const named = [
    machine.initial,
    ...machine.finalStates,
    ...transitions.flatMap(({ from, to }) => [from, to]),
  ];
  const unknown = new Set(named.filter((state) => !machine.states.includes(state)));
  return [...unknown].map((state) => `unknown state ${state}`);
}

// The database sees a change of status, not an event: the pair alone must tell which event it was.
function findAmbiguousPairs(transitions: readonly Transition[]): string[] {
  const seen = new Map<string, string>();
  const faults: string[] = [];
  for (const { event, from, to } of transitions) {
    const pair = `${from} → ${to}`;
    if (from === to) faults.push(`${event} does not change the state ${from}`);
    const other = seen.get(pair);
    if (other) faults.push(`${pair} is both ${other} and ${event}`);
    seen.set(pair, event);
  }
  return faults;
}

function findUnreachable(machine: Machine, transitions: readonly Transition[]): string[] {
  const reached = new Set([machine.initial]);
  // A Set visits what is added while it is iterated.
  for (const state of reached) {
    for (const { from, to } of transitions) if (from === state) reached.add(to);
  }
  return machine.states.filter((state) => !reached.has(state)).map((state) => `${state} cannot be reached`);
}

function findWrongEnds(machine: Machine, transitions: readonly Transition[]): string[] {
  const leaves = (state: string) => transitions.some(({ from }) => from === state);
  return machine.states.flatMap((state) => {
    const isFinal = machine.finalStates.includes(state);
    if (isFinal && leaves(state)) return [`${state} is final but can be left`];
    if (!isFinal && !leaves(state)) return [`${state} is a dead end but not final`];
    return [];
  });
}
